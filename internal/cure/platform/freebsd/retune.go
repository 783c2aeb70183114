package freebsd

import (
	"fmt"
	"slices"
	"strings"

	"unbloat/internal/cure/lang/dummynet"
	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform"
	"unbloat/internal/cure/platform/conf"
)

// Retune returns the dnctl(8) commands that give the pipes other bandwidths. What
// waits in them stays. Our rules file, which a reboot loads, keeps the plan's.
func (b *Backend) Retune(now platform.State, p, to plan.Plan) ([]platform.Step, error) {
	s, err := conf.Decode(now)
	if err != nil {
		return nil, err
	}
	c, _, err := dummynet.Render(to)
	if err != nil {
		return nil, err
	}
	var out []platform.Step
	for _, x := range c.Pipes {
		if !hasNumber(s.Live, "pipe", x.Number) {
			return nil, fmt.Errorf("change the rates of %s: there is no pipe %d", p.WAN, x.Number)
		}
		if !slices.Contains(s.Live, pipeLine(x)) {
			out = append(out, platform.Step{Argv: append([]string{"dnctl"}, strings.Fields(x.String())...)})
		}
	}
	return out, nil
}

// pipeLine is how a state shows a pipe.
func pipeLine(p dummynet.Pipe) string {
	return dummynet.Config{Pipes: []dummynet.Pipe{p}}.ShownLines()[0]
}

// Retuned returns the state with the pipes of to in place of those of from.
func (b *Backend) Retuned(state platform.State, from, to plan.Plan) (platform.State, error) {
	is, _, err := dummynet.Render(from)
	if err != nil {
		return nil, err
	}
	want, _, err := dummynet.Render(to)
	if err != nil {
		return nil, err
	}
	pipes := func(c dummynet.Config) []string { return dummynet.Config{Pipes: c.Pipes}.ShownLines() }
	return conf.Replace(state, pipes(is), pipes(want))
}
