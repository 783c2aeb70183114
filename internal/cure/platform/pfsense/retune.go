package pfsense

import (
	"fmt"
	"slices"
	"strings"

	"unbloat/internal/cure/lang/dummynet"
	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform"
	"unbloat/internal/cure/platform/bsd"
	"unbloat/internal/cure/platform/conf"
)

// Retune returns the dnctl(8) commands that give our limiters' pipes other
// bandwidths, each as pfSense itself writes it into rules.limiter. config.xml keeps
// the plan's, which pfSense loads whenever it makes its rules anew.
func (b *Backend) Retune(now platform.State, p, to plan.Plan) ([]platform.Step, error) {
	s, err := conf.Decode(now)
	if err != nil {
		return nil, err
	}
	ls, facts, err := pipes(to)
	if err != nil {
		return nil, err
	}
	var out []platform.Step
	for line := range strings.Lines(ls.RulesLimiter(1)) {
		w := strings.Fields(line)
		if len(w) < 2 || w[0] != "pipe" {
			continue
		}
		of := func(f conf.Fact) bool { return f.Kind == pipe && f.Of == w[1] }
		at, want := slices.IndexFunc(s.Facts, of), slices.IndexFunc(facts, of)
		if at < 0 || want < 0 {
			return nil, fmt.Errorf("change the rates of %s: there is no pipe %s", p.WAN, w[1])
		}
		if s.Facts[at].Text != facts[want].Text {
			out = append(out, platform.Step{Argv: append([]string{"dnctl"}, w...)})
		}
	}
	return out, nil
}

// pipes returns a plan's limiters, and how the kernel shows their pipes.
func pipes(p plan.Plan) (ls dummynet.Limiters, shown []conf.Fact, err error) {
	if ls, _, err = dummynet.RenderLimiters(p, first); err != nil {
		return ls, nil, err
	}
	section, err := bsd.ParseConfig(ls.String())
	if err != nil {
		return ls, nil, err
	}
	_, kernel, err := generated(section, ls)
	return ls, slices.DeleteFunc(kernel, func(f conf.Fact) bool { return f.Kind != pipe }), err
}

// Retuned returns the state with the pipes of to in place of those of from.
func (b *Backend) Retuned(state platform.State, from, to plan.Plan) (platform.State, error) {
	s, err := conf.Decode(state)
	if err != nil {
		return nil, err
	}
	_, is, err := pipes(from)
	if err != nil {
		return nil, err
	}
	_, want, err := pipes(to)
	if err != nil {
		return nil, err
	}
	for i, f := range is {
		if at := slices.Index(s.Facts, f); at >= 0 && i < len(want) {
			s.Facts[at] = want[i]
		}
	}
	return conf.Encode(s)
}
