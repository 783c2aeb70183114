package openbsd

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"unbloat/internal/cure/lang/pf"
	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform"
	"unbloat/internal/cure/platform/conf"
)

// Retune returns the pfctl(8) command that loads pf.conf with other queues in place of
// our file, from standard input: pf has no way to change one queue alone. No file
// changes, so a reboot loads the plan's rates. States of connections stay.
func (b *Backend) Retune(now platform.State, p, to plan.Plan) ([]platform.Step, error) {
	s, err := conf.Decode(now)
	if err != nil {
		return nil, err
	}
	if b.Altq {
		return nil, errors.New("change the rates of ALTQ's queues: that takes them away and makes them anew")
	}
	rs, _, err := pf.Render(to)
	if err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(lines(rs.Queues), func(q string) bool { return !slices.Contains(s.Live, q) }) {
		return nil, nil
	}
	text := s.Files.Text(PfConf)
	if !strings.Contains(text, includeLine(p.WAN)) {
		return nil, fmt.Errorf("change the rates of %s: %s does not include our queues", p.WAN, PfConf)
	}
	return []platform.Step{{Argv: []string{"pfctl", "-f", "-"}, Stdin: strings.Replace(text, includeLine(p.WAN), rs.String(), 1)}}, nil
}

// Retuned returns the state with the queues of to in place of those of from.
func (b *Backend) Retuned(state platform.State, from, to plan.Plan) (platform.State, error) {
	is, _, err := pf.Render(from)
	if err != nil {
		return nil, err
	}
	want, _, err := pf.Render(to)
	if err != nil {
		return nil, err
	}
	return conf.Replace(state, lines(is.Queues), lines(want.Queues))
}
