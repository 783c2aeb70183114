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
	"unbloat/lab/scenario"
	"unbloat/testkit/labtest"
	"unbloat/unit"
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
	if !labtest.Inside(t, labtest.Options{Node: lab.NodeRouter, Server: true, Scenario: narrow()}) {
		return
	}
	before := routerState(t)
	moments := map[syscall.Signal][]time.Duration{syscall.SIGTERM: {500 * time.Millisecond, 41 * time.Second}}
	if labtest.Long() {
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
// shaped. It ends at the same rates, within 2 %, and 3 % with every other server's protocol (by day
// one of the others stands for all), and changes nothing on a line that is good already.
func TestTuneAgain(t *testing.T) {
	t.Parallel()
	if !labtest.Inside(t, labtest.Options{Node: lab.NodeRouter, Server: true, Scenario: narrow()}) {
		return
	}
	before := routerState(t)
	const tenMs = "--goal=10ms"
	first, code := tuneOnce(t, tenMs)
	if code != 0 || !first.Kept || !first.GoalHeld {
		t.Fatalf("first tuning: exit code %d, goal held %v: %s", code, first.GoalHeld, first.Reason)
	}
	cloudflare := "cloudflare+https://" + lab.ServerAddr + ":7680"
	servers := []string{cloudflare}
	if labtest.Long() {
		servers = []string{lab.Server(), cloudflare, "ndt7+ws://" + lab.ServerAddr + ":7680", "iperf3://" + lab.ServerAddr}
	}
	for _, server := range servers {
		r, code := tuneOnce(t, tenMs, "--insecure", "--server", server)
		t.Logf("%s: line %s, %s; shaped to %s, %s; probes %q; %.0f s, %d trials", server, r.LineDownBps.Short(), r.LineUpBps.Short(), r.Plan.DownBps.Short(), r.Plan.UpBps.Short(), r.After.Probe, r.LineSeconds, len(r.Trials))
		if code != 0 || !r.Kept || !r.GoalHeld {
			t.Fatalf("%s: exit code %d, goal held %v: %s", server, code, r.GoalHeld, r.Reason)
		}
		apart := 0.03
		if server == lab.Server() {
			apart = 0.02
		} else if r.After.Probe != "icmp "+lab.ServerAddr {
			t.Errorf("%s: the delay is that of %q", server, r.After.Probe)
		}
		for way, share := range map[string]float64{"down": float64(r.Plan.DownBps) / float64(first.Plan.DownBps), "up": float64(r.Plan.UpBps) / float64(first.Plan.UpBps)} {
			within(t, server+" "+way+" over the first", share, 1-apart, 1+apart)
		}
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

// narrow returns a slow line: with few packets, virtual seconds pass quickly.
func narrow() *scenario.Scenario {
	s := labtest.Home()
	s.Line = scenario.Line{Down: 12 * unit.MbitPerSecond, Up: 3 * unit.MbitPerSecond, RTT: 20 * time.Millisecond, BufferDown: 750 * unit.KB, BufferUp: 200 * unit.KB}
	return s
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
