package lab

import (
	"errors"
	"testing"

	"unbloat/lab/scenario"
)

// Cases whose rates follow the line run on the lab's router alone; on a router's own
// image they are refused before anything is started.
func TestFollowingNeedsTheLabsRouter(t *testing.T) {
	for _, mode := range []string{scenario.ModeDaemon, scenario.ModeOracle, scenario.ModeAutorate} {
		_, err := imageCases([]scenario.Case{
			{Name: "before", Router: scenario.Router{Mode: scenario.ModeNone}},
			{Name: "follows", Router: scenario.Router{Mode: mode, Daemon: &scenario.Daemon{}}},
		}, scenario.Line{})
		var refused *UnsupportedCaseError
		if !errors.As(err, &refused) {
			t.Errorf("%s: %v", mode, err)
		}
	}
}

// What runs here leaves out cake-autorate where nobody says where it is, and says why.
func TestRunnableWithoutThePeer(t *testing.T) {
	t.Setenv(AutorateEnv, "")
	can, why := Runnable([]scenario.Case{
		{Name: "peer", Router: scenario.Router{Mode: scenario.ModeAutorate, Daemon: &scenario.Daemon{}}},
		{Name: "follows", Router: scenario.Router{Mode: scenario.ModeDaemon, Daemon: &scenario.Daemon{}}},
	})
	var missing *MissingError
	if len(can) != 1 || can[0].Name != "follows" || len(why) != 1 || !errors.As(why[0], &missing) {
		t.Errorf("can run %v; %v", can, why)
	}
	t.Setenv(AutorateEnv, t.TempDir())
	if _, err := FindAutorate(); !errors.As(err, &missing) {
		t.Errorf("a folder without cake-autorate: %v", err)
	}
}
