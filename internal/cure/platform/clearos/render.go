package clearos

import (
	mech "unbloat/internal/cure/lang/clearos"
	"unbloat/internal/cure/lang/tc"
	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform"
	"unbloat/internal/cure/platform/linux"
)

// Render writes the lines of ClearOS's configuration and, if the plan has an
// AQM, an engine.
func Render(p plan.Plan) ([]platform.PlanPart, []string, error) {
	s, notes, err := mech.Render(p)
	if err != nil {
		return nil, nil, err
	}
	var parts []platform.PlanPart
	if len(s.Network) > 0 {
		parts = append(parts, platform.PlanPart{Where: mech.NetworkConf + ": the speeds, in kbit/s", Text: mech.Format(s.Network, false)})
	}
	parts = append(parts, platform.PlanPart{Where: mech.QoSConf + ": set these lines and leave the others", Text: mech.Format(s.QoS, true)})
	if p.AQM == plan.FQCoDel {
		commands, _ := linux.UntouchedCommands(p) // what tc cannot do is left out
		engine, err := mech.Engine(tc.Scope(plan.Plan{WAN: p.WAN, Up: p.Up, Down: p.Down}), append(linux.OffloadCommands(p), commands...))
		if err != nil {
			return nil, nil, err
		}
		parts = append(parts, platform.PlanPart{Where: mech.EngineFile + ": an engine with an AQM, which ClearOS's own has not", Text: engine})
	}
	return append(parts, platform.PlanPart{Where: "then:", Text: "service firewall restart\n"}), notes, nil
}
