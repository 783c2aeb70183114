package clearos

import (
	mech "unbloat/internal/lang/clearos"
	"unbloat/internal/lang/iptables"
	"unbloat/internal/lang/tc"
	"unbloat/internal/plan"
	"unbloat/internal/platform/linux"
	"unbloat/internal/platform/render"
)

// Render writes the lines of ClearOS's configuration and, if the plan has an
// AQM, an engine.
func Render(p plan.Plan) ([]render.Part, []string, error) {
	s, notes, err := mech.Render(p)
	if err != nil {
		return nil, nil, err
	}
	var parts []render.Part
	if len(s.Network) > 0 {
		parts = append(parts, render.Part{Where: mech.NetworkConf + ": the speeds, in kbit/s", Text: mech.Format(s.Network, false)})
	}
	parts = append(parts, render.Part{Where: mech.QoSConf + ": set these lines and leave the others", Text: mech.Format(s.QoS, true)})
	if p.AQM == plan.FQCoDel {
		commands, _ := linux.UntouchedCommands(p) // what tc cannot do is left out
		engine, err := mech.Engine(tc.Scope(plan.Plan{WAN: p.WAN, Up: p.Up, Down: p.Down}), append(linux.OffloadCommands(p), commands...), iptables.Render(p, tc.OurRoot))
		if err != nil {
			return nil, nil, err
		}
		parts = append(parts, render.Part{Where: mech.EngineFile + ": an engine with an AQM, which ClearOS's own has not", Text: engine})
	}
	return append(parts, render.Part{Where: "then:", Text: "service firewall restart\n"}), notes, nil
}
