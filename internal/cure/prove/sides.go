package prove

import (
	"fmt"
	"strings"

	"unbloat/internal/cure/plan"
)

// Names of sides, as --between takes them.
const (
	SideNone  = "none"  // no shaping at all
	SidePlan  = "plan"  // the plan as it is
	SideECN   = "ecn"   // the plan with fq_codel and ECN
	SideNoECN = "noecn" // the plan with fq_codel without ECN
)

// DefaultBetween are the sides that are compared by default.
const DefaultBetween = SideNone + "," + SidePlan

// A Side is one of the two things that are compared.
type Side struct {
	Name string
	Plan *plan.Plan // nil: no shaping
}

// A SideError says that two sides cannot be compared, and why.
type SideError struct {
	Between string
	Why     string
}

func (e *SideError) Error() string {
	return fmt.Sprintf("compare %q: %s", e.Between, e.Why)
}

// SideNames returns the two names in a text such as "none,plan". Errors are
// *SideError.
func SideNames(between string) (names [2]string, err error) {
	parts := strings.Split(between, ",")
	if len(parts) != 2 {
		return names, &SideError{between, "give two sides with a comma between, such as " + DefaultBetween}
	}
	for i, name := range parts {
		switch name = strings.TrimSpace(name); name {
		case SideNone, SidePlan, SideECN, SideNoECN, string(plan.CAKE), string(plan.FQCoDel), string(plan.FIFO):
			names[i] = name
		default:
			return names, &SideError{between, fmt.Sprintf("%q is no side; use none, plan, cake, fq_codel, fifo, ecn or noecn", name)}
		}
	}
	return names, nil
}

// NeedPlan reports whether one of the sides is made from a plan.
func NeedPlan(names [2]string) bool { return names[0] != SideNone || names[1] != SideNone }

// Sides makes the two sides from a plan. They have the same rates, and differ only
// as their names say. Errors are *SideError, or those of plan.Make.
func Sides(names [2]string, base plan.Plan) (sides [2]Side, err error) {
	for i, name := range names {
		sides[i].Name = name
		if name == SideNone {
			continue
		}
		p := base
		if name != SidePlan {
			if p, err = variant(name, base); err != nil {
				return sides, err
			}
		}
		sides[i].Plan = &p
	}
	if a, b := sides[0].Plan, sides[1].Plan; a != nil && b != nil && (!sameDevices(a.Down, b.Down) || !sameDevices(a.Up, b.Up) || a.WAN != b.WAN) {
		return sides, &SideError{names[0] + "," + names[1], "the two plans shape different devices, so they can't be exchanged in place"}
	}
	return sides, nil
}

func sameDevices(a, b *plan.Shaper) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Device == b.Device && a.IngressOf == b.IngressOf
}

// variant makes the plan again with another AQM, or with or without ECN.
func variant(name string, base plan.Plan) (plan.Plan, error) {
	b := base.Basis
	if b == nil {
		return plan.Plan{}, &SideError{name, "the plan does not say what it was made from, so it can't be made anew; give it as `unbloat plan --json` prints it, or --down and --up"}
	}
	// Numbers chosen for one AQM do not fit another.
	w := plan.Preferences{
		Goal: b.Preferences.Goal, Side: b.Preferences.Side, Only: b.Preferences.Only,
		Down: plan.RatePreference{Rate: base.DownBps}, Up: plan.RatePreference{Rate: base.UpBps},
	}
	switch {
	case base.DownBps == 0:
		w.Only = plan.DirectionUp
	case base.UpBps == 0:
		w.Only = plan.DirectionDown
	}
	if name == SideECN || name == SideNoECN {
		mark := name == SideECN
		w.AQM, w.ECN = plan.FQCoDel, &mark // CAKE always marks
	} else {
		w.AQM = plan.AQM(name)
	}
	if w.AQM == b.Preferences.AQM || b.Preferences.AQM == "" && w.AQM == base.AQM {
		w.Target, w.Interval, w.Limit, w.Flows, w.Quantum = b.Preferences.Target, b.Preferences.Interval, b.Preferences.Limit, b.Preferences.Flows, b.Preferences.Quantum
		w.Tins, w.AckFilter, w.Latency = b.Preferences.Tins, b.Preferences.AckFilter, b.Preferences.Latency
	}
	return plan.Make(b.Line, b.Capabilities, w)
}
