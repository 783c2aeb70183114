package lab_test

import (
	"slices"
	"testing"
	"time"

	"unbloat/lab/scenario"
	"unbloat/testkit/labtest"
	"unbloat/unit"
)

// A draw is one seed's run of the lab.
type draw struct{ labtest.Draw }

func overDraws(t *testing.T, body func(d *draw)) {
	t.Helper()
	labtest.OverDraws(t, func(d *labtest.Draw) { body(&draw{*d}) })
}

// within holds a figure that is exact, or is one run's, between two bounds.
func within(t testing.TB, what string, got, least, most float64) {
	t.Helper()
	if got < least || got > most {
		t.Errorf("%s: %.6g, want %.6g to %.6g", what, got, least, most)
	} else {
		t.Logf("%s: %.6g (%.6g to %.6g)", what, got, least, most)
	}
}

// Phases with loads are at most so long in the short form: long enough for slow start to be over
// for a while, since the figures leave out the phase's first seconds. A hundred
// connections, a swarm and a video call's picture take longer to find their rates.
const (
	shortest = 15 * time.Second
	settling = 25 * time.Second
)

// byDay makes a scenario's short form: phases that are short, and in place of a
// tuning the rates that one finds, 98 % of what the line carries down and 99 % up; told of many
// downloads 86 % down. At night the scenario stays as it is.
func byDay(s *scenario.Scenario) {
	shorter(s)
	if labtest.Long() {
		return
	}
	down := 0.98
	if s.Test.FlowsDown >= 32 {
		down = 0.86
	}
	for i, c := range s.Cases {
		if c.Router.Mode == scenario.ModeTune {
			s.Cases[i].Router = shaped(share(s.Line.Down, down), share(s.Line.Up, 0.99))
		}
	}
}

// shaped is a router with our plan for two rates.
func shaped(down, up unit.Rate) scenario.Router {
	return scenario.Router{Mode: scenario.ModeFix, Fix: &scenario.Fix{Down: down, Up: up}}
}

// shorter makes the phases of a scenario short by day.
func shorter(s *scenario.Scenario) {
	if labtest.Long() {
		return
	}
	most := shortest
	if slices.ContainsFunc(s.Loads, func(l scenario.Load) bool {
		return l.Flows >= 100 || l.Kind == scenario.Torrent || l.Kind == scenario.WebRTC
	}) {
		most = settling
	}
	if s.Test.Seconds > most {
		s.Test.Seconds = most
		for i := range s.Loads { // a mailbox that is fetched in that time
			s.Loads[i].Messages /= 4
		}
	}
}

func share(r unit.Rate, of float64) unit.Rate { return unit.Rate(float64(r) * of) }
