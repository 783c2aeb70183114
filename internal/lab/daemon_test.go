package lab

import (
	"errors"
	"testing"

	"unbloat/internal/lab/scenario"
)

// A case with the daemon is refused by the lab's kernels before anything is started.
func TestDaemonNeedsTheSimulator(t *testing.T) {
	s := &scenario.Scenario{Name: "x", Cases: []scenario.Case{
		{Name: "before", Router: scenario.Router{Mode: scenario.ModeNone}},
		{Name: "follows", Router: scenario.Router{Mode: scenario.ModeDaemon, Daemon: &scenario.Daemon{}}},
	}}
	for _, engine := range []Engine{Virtual, Realtime} {
		_, err := Run(t.Context(), s, Options{Engine: engine})
		var only *SimulatedOnlyError
		if !errors.As(err, &only) || only.Case != "follows" {
			t.Errorf("%s: %v", engine, err)
		}
	}
}
