package lab_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"unbloat/internal/cure/tune"
	"unbloat/lab"
	"unbloat/testkit/labtest"
)

// programID is the kernel's number of a BPF program, as tc(8) shows it.
var programID = regexp.MustCompile(` id \d+`)

// routerState returns everything that a tuning could change, as the tools show
// it.
func routerState(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	for _, argv := range [][]string{
		{"tc", "-j", "-d", "qdisc", "show"}, {"tc", "class", "show", "dev", lab.RouterWAN},
		{"tc", "filter", "show", "dev", lab.RouterWAN}, {"tc", "filter", "show", "dev", lab.RouterWAN, "ingress"},
		{"ip", "-j", "link", "show"}, {"nft", "--terse", "list", "ruleset"},
		{"ethtool", "-k", lab.RouterWAN}, {"ethtool", "-k", lab.RouterLAN},
	} {
		out, err := exec.CommandContext(t.Context(), argv[0], argv[1:]...).Output()
		if err != nil {
			t.Fatalf("%s: %v", strings.Join(argv, " "), err)
		}
		for line := range strings.Lines(string(out)) {
			if !strings.HasPrefix(line, "class cake ") { // CAKE shows its busy flows as classes
				b.WriteString(programID.ReplaceAllString(line, "")) // a program that is loaded again has another one
			}
		}
		b.WriteByte(10)
	}
	return b.String()
}

// A tuning that is interrupted or killed at any time leaves the router as it
// was. By day it is asked to end, before and while the first trial is applied; one that is
// killed is internal/cure/apply.TestKilledTuner's.
func TestTuneInterrupted(t *testing.T) {
	t.Parallel()
	if !labtest.Inside(t, labtest.Options{Node: lab.NodeRouter, Server: true, Scenario: narrow(), Env: longEnv()}) {
		return
	}
	before := routerState(t)
	moments := map[syscall.Signal][]time.Duration{syscall.SIGTERM: {500 * time.Millisecond, 41 * time.Second}}
	if long() {
		all := []time.Duration{500 * time.Millisecond, 20 * time.Second, 32 * time.Second, 41 * time.Second, 41100 * time.Millisecond, 52 * time.Second}
		moments = map[syscall.Signal][]time.Duration{syscall.SIGTERM: all, syscall.SIGKILL: all, syscall.SIGINT: all}
	}
	for signal, moments := range moments {
		for _, after := range moments {
			cmd := exec.Command(labtest.Unbloat(), "tune", "--server", lab.Server(), "--wan", lab.RouterWAN, "--lan", lab.RouterLAN, "--quiet")
			cmd.Env = append(os.Environ(), "GOMAXPROCS=1")
			var said strings.Builder
			cmd.Stderr = &said
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(after)
			if err := cmd.Process.Signal(signal); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait()
			if signal == syscall.SIGKILL {
				time.Sleep(3 * time.Second) // for the watchdog
			} else if code := cmd.ProcessState.ExitCode(); code != 1 || !strings.Contains(said.String(), "as it was") {
				t.Errorf("%v after %v: exit code %d, said %q", signal, after, code, said.String())
			}
			if now := routerState(t); now != before {
				t.Errorf("%v after %v left a change (-before +now):\n%s", signal, after, cmp.Diff(before, now))
			}
			time.Sleep(5 * time.Second) // for the queues to drain
		}
	}
}

// A second tuning starts at the line's rates, not at those that the first one
// shaped. It ends at the same rates, and changes nothing on a line that is good
// already.
func TestTuneAgain(t *testing.T) {
	t.Parallel()
	if !labtest.Inside(t, labtest.Options{Node: lab.NodeRouter, Server: true, Scenario: narrow()}) {
		return
	}
	before := routerState(t)
	first, code := tuneOnce(t)
	if code != 0 || !first.Kept {
		t.Fatalf("first tuning: exit code %d, %s", code, first.Reason)
	}
	second, code := tuneOnce(t)
	if code != 0 || !second.Kept {
		t.Fatalf("second tuning: exit code %d, %s", code, second.Reason)
	}
	for _, r := range []float64{float64(second.Plan.DownBps) / float64(first.Plan.DownBps), float64(second.Plan.UpBps) / float64(first.Plan.UpBps)} {
		within(t, "second tuning over first", r, 0.98, 1.02)
	}
	// A goal that any line meets without shaping: no shaping is better than
	// none, the exit code is 3, and the earlier shaping is back.
	shaped := routerState(t)
	third, code := tuneOnce(t, "--goal", "10s")
	if code != 3 || third.Kept {
		t.Errorf("with a goal of 10 s: exit code %d, kept %v (%s)", code, third.Kept, third.Reason)
	}
	if now := routerState(t); now != shaped {
		t.Errorf("a tuning that kept nothing left a change (-before +now):\n%s", cmp.Diff(shaped, now))
	}
	if out, err := exec.CommandContext(t.Context(), labtest.Unbloat(), "revert").CombinedOutput(); err != nil {
		t.Fatalf("revert: %v: %s", err, out)
	}
	if now := routerState(t); now != before {
		t.Errorf("revert did not bring back the start (-before +now):\n%s", cmp.Diff(before, now))
	}
}

func tuneOnce(t *testing.T, more ...string) (*tune.Result, int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), labtest.Unbloat(),
		append([]string{"tune", "--server", lab.Server(), "--wan", lab.RouterWAN, "--lan", lab.RouterLAN, "--json", "--quiet"}, more...)...)
	var said strings.Builder
	cmd.Stderr = &said
	out, _ := cmd.Output()
	var r tune.Result
	if err := json.Unmarshal(out, &r); err != nil {
		t.Fatalf("tune: %v: %s", err, said.String())
	}
	time.Sleep(5 * time.Second)
	return &r, cmd.ProcessState.ExitCode()
}
