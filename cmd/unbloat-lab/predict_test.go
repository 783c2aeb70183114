package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform/all"
	"unbloat/internal/show/cli"
	"unbloat/unit"
)

// A plan that `unbloat plan --json` printed is simulated on its own line; what is none
// is refused.
func TestSimPredict(t *testing.T) {
	facts, err := all.Assume("linux", "", "")
	if err != nil {
		t.Fatal(err)
	}
	p, err := plan.Make(plan.Line{Down: 3 * unit.MbitPerSecond, Up: unit.MbitPerSecond}, facts, plan.Preferences{})
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "plan.json")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	out, errs, code := asTyped(t, "sim", "predict", file)
	if code != cli.Done || errs != "" || !strings.Contains(out, "From the simulator, with 4 flows each way") || !strings.Contains(out, "planned  p95 ms") {
		t.Errorf("exit code %d, %q, %s", code, errs, out)
	}
	if err := os.WriteFile(file, []byte(`{"schema":"unbloat.plan/1"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, errs, code := asTyped(t, "sim", "predict", file); code != cli.Usage || !strings.Contains(errs, "unbloat plan --json") {
		t.Errorf("no plan: exit code %d, %q", code, errs)
	}
}
