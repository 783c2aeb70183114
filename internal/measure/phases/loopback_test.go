package phases_test

import (
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"testing"
	"time"

	"unbloat/internal/measure/phases"
	"unbloat/internal/measure/verdict"
	"unbloat/internal/serve"
	"unbloat/testkit/await"
)

// soakRuns returns how often TestLoopback measures: few times, or as often as
// UNBLOAT_SOAK says (make soak: 100, as promised).
func soakRuns(t *testing.T, few int) int {
	t.Helper()
	text := os.Getenv("UNBLOAT_SOAK")
	if text == "" {
		return few
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("UNBLOAT_SOAK=%q is not a number of runs", text)
	}
	return n
}

// A loopback has no queue that deserves a grade below A. However busy the
// machine is: each measurement is right, or it is invalid and says why.
func TestLoopback(t *testing.T) {
	await.NotShort(t)
	server := startWith(t, serve.Limits{AddressBytes: 1 << 60, AddressTime: 1000 * time.Hour}) // high limits: a loopback moves many bytes
	for _, c := range []struct {
		name string
		busy int // processes that only use processor time
	}{{"idle", 0}, {"busy", runtime.NumCPU()}} {
		t.Run(c.name, func(t *testing.T) {
			for range c.busy {
				spin(t)
			}
			valid, grades, reasons := 0, map[string]int{}, map[string]int{}
			n := soakRuns(t, 1)
			for i := range n {
				got := measureBriefly(t, server)
				if got.Valid {
					valid++
					grades[got.Grade]++
				} else {
					reasons[kind(got.InvalidReasons[0])]++
				}
				if got.Valid && got.Grade != "A+" && got.Grade != "A" {
					t.Errorf("run %d: grade %s of a loopback: %s", i, got.Grade, got.Verdict)
					for _, p := range got.Phases() {
						t.Logf("%s: increase p95 %.1f, late p99 %.2f ms, CPU %.2f and %.2f", p.Name, p.Latency.IncreaseMs.P95, p.ProbeLatenessMs.P99, p.CPU, p.ServerCPU)
					}
				}
				if got.Valid == (len(got.InvalidReasons) > 0) || got.Valid == (got.Grade == "") {
					t.Errorf("run %d: valid %v, grade %q, reasons %q", i, got.Valid, got.Grade, got.InvalidReasons)
				}
			}
			t.Logf("%d of %d valid, graded %v; the others by their first reason: %v", valid, n, grades, reasons)
		})
	}
}

// measureBriefly runs short phases, with just enough probes to be judged.
func measureBriefly(t *testing.T, server string) *verdict.Test {
	t.Helper()
	c, err := phases.Dial(t.Context(), server, phases.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	got, err := phases.Run(t.Context(), c, phases.Config{Idle: 600 * time.Millisecond, Load: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// kind returns a reason without its figures.
func kind(reason string) string {
	var out []rune
	for _, r := range reason {
		switch {
		case r >= '0' && r <= '9' || r == '.':
			continue
		case r == '(' || r == ':' && len(out) > 12:
			return string(out)
		}
		out = append(out, r)
	}
	return string(out)
}

// spin keeps a processor busy until the test ends.
func spin(t *testing.T) {
	t.Helper()
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Skipf("SKIPPED: %v", err)
	}
	cmd := exec.Command(sh, "-c", "while :; do :; done")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	})
}
