package prove_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"unbloat/internal/cure/apply"
	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform"
	"unbloat/internal/cure/platform/linux"
	"unbloat/internal/cure/prove"
	"unbloat/internal/measure/phases"
	"unbloat/internal/measure/verdict"
	"unbloat/lab"
	"unbloat/lab/scenario"
	"unbloat/testkit/await"
	"unbloat/testkit/labtest"
	"unbloat/unit"
)

// These tests run on a real kernel in virtual time, as root on the router.

// slowHome is a slow line: with few packets, virtual seconds pass quickly.
func slowHome() labtest.Options {
	return labtest.Options{Server: true, With: "TestProveInLab|TestProveAgainstOthersInLab", Scenario: &scenario.Scenario{
		Name: "prove",
		Line: scenario.Line{
			Down: 4 * unit.MbitPerSecond, Up: unit.MbitPerSecond, RTT: 20 * time.Millisecond,
			BufferDown: 250 * unit.KB, BufferUp: 60 * unit.KB,
		},
		Cases: []scenario.Case{{Name: "test", Router: scenario.Router{Mode: scenario.ModeNone}}},
	}}
}

func labPlan(t *testing.T, aqm plan.AQM) plan.Plan {
	t.Helper()
	p, err := plan.Make(plan.Line{}, plan.Capabilities{Language: linux.Language(), WAN: lab.RouterWAN, LAN: lab.RouterLAN, IFB: true, MTU: 1500},
		plan.Preferences{AQM: aqm, Down: plan.RatePreference{Rate: 3600 * unit.KbitPerSecond}, Up: plan.RatePreference{Rate: 900 * unit.KbitPerSecond}})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func labEngine(dir string) *apply.Engine {
	here := platform.Local{Self: labtest.Unbloat()}
	return &apply.Engine{Backend: &linux.Backend{Runner: here, Exe: here.Self}, Runner: here, Dir: dir,
		WatchdogArgv: []string{labtest.Unbloat(), "watchdog", "--state-dir", dir}}
}

// volatile matches what always differs: the address that the kernel gives a new
// ifb device, the number that it gives a BPF program, and the flows with packets in a queue.
var volatile = regexp.MustCompile(`(?m)(ifb\S+ +\S+ +)[0-9a-f:]{17}| (?:id|load_time|btf_id) \d+|^class (?:cake|fq_codel) .*\n`)

// queues returns everything that a proof could leave behind, as the tools print
// it.
func queues(t *testing.T) string {
	t.Helper()
	var out strings.Builder
	for _, c := range []struct{ line, stdin string }{
		{"ip -br link", ""},
		{"tc -d -batch -", "qdisc show\nclass show dev wan\nfilter show dev wan\nfilter show dev wan ingress\n"},
		{"ethtool -k *", ""}, // of all links
	} {
		argv := strings.Fields(c.line)
		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.Stdin = strings.NewReader(c.stdin)
		b, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v: %s", c.line, err, b)
		}
		fmt.Fprintf(&out, "$ %s\n%s", c.line, volatile.ReplaceAll(b, []byte("$1")))
	}
	return out.String()
}

// unbloat runs the program and returns what it printed.
func unbloat(t *testing.T, dir string, want int, args ...string) (stdout, stderr string) {
	t.Helper()
	cmd := exec.Command(labtest.Unbloat(), args...)
	cmd.Env = append(os.Environ(), "UNBLOAT_STATE_DIR="+dir)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != want {
		t.Fatalf("unbloat %v: %v, want exit %d: %s%s", args, err, want, &out, &errs)
	}
	return out.String(), errs.String()
}

// TestHeldSides: each side is really in effect; on a side without shaping the
// router is as before; offloads are restored between AQMs; and in the end
// nothing is left.
func TestHeldSides(t *testing.T) {
	if !labtest.Inside(t, labtest.Options{With: "TestHeldSides|TestECNSides"}) {
		return
	}
	cake, fq := labPlan(t, plan.CAKE), labPlan(t, plan.FQCoDel)
	before, dir := queues(t), t.TempDir()
	for _, committed := range []bool{false, true} {
		start := before
		if committed {
			tr, err := labEngine(dir).Begin(t.Context(), cake, apply.Options{Confirm: time.Minute, Hold: true})
			if err != nil || tr.Commit() != nil {
				t.Fatal("commit a shaper first", err)
			}
			tr.Close()
			start = queues(t)
		}
		sides := [2]prove.Side{{Name: "cake", Plan: &cake}, {Name: "fq_codel", Plan: &fq}}
		h := prove.NewHeld(labEngine(dir), lab.RouterWAN, sides, time.Second)
		none := prove.Side{Name: prove.SideNone}
		shown := map[string]string{"none": before}
		order := []prove.Side{sides[0], sides[1], none, sides[1], sides[0]}
		switch {
		case labtest.Long():
			order = []prove.Side{none, sides[0], sides[1], sides[1], none, sides[1], sides[0], none, sides[0]}
		case committed:
			order = []prove.Side{none, sides[0], sides[1], none}
		}
		for _, s := range order {
			if err := h.Switch(t.Context(), s); err != nil {
				t.Fatalf("switch to %s: %v", s.Name, err)
			}
			now := queues(t)
			if was, ok := shown[s.Name]; ok && was != now {
				t.Errorf("%s is not what it was (committed before: %v): %s", s.Name, committed, cmp.Diff(was, now))
			}
			shown[s.Name] = now
			if s.Plan != nil && !strings.Contains(now, "qdisc "+string(s.Plan.AQM)) {
				t.Errorf("%s is not there:\n%s", s.Name, now)
			}
		}
		if err := h.Revert(t.Context()); err != nil {
			t.Fatal(err)
		}
		if now := queues(t); now != start {
			t.Errorf("in the end (committed before: %v): %s", committed, cmp.Diff(start, now))
		}
	}
	unbloat(t, dir, 0, "revert")
	if now := queues(t); now != before {
		t.Errorf("reverted: %s", cmp.Diff(before, now))
	}
}

// TestECNSides: the two sides of ecn,noecn differ only in ECN.
func TestECNSides(t *testing.T) {
	if !labtest.Inside(t, labtest.Options{With: "TestHeldSides|TestECNSides"}) {
		return
	}
	names, err := prove.SideNames("noecn,ecn")
	if err != nil {
		t.Fatal(err)
	}
	sides, err := prove.Sides(names, labPlan(t, plan.CAKE))
	if err != nil {
		t.Fatal(err)
	}
	before := queues(t)
	h := prove.NewHeld(labEngine(t.TempDir()), lab.RouterWAN, sides, time.Second)
	var shown []string
	for _, s := range sides {
		if err := h.Switch(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		shown = append(shown, queues(t))
	}
	with, without := strings.Count(shown[1], " ecn "), strings.Count(shown[0], " ecn ")
	if with != 2 || without != 0 || strings.ReplaceAll(shown[1], " ecn ", " ") != shown[0] {
		t.Errorf("%d queues mark on the side ecn, %d on noecn: %s", with, without, cmp.Diff(shown[0], shown[1]))
	}
	if err := h.Revert(t.Context()); err != nil || queues(t) != before {
		t.Errorf("revert: %v: %s", err, cmp.Diff(before, queues(t)))
	}
}

// TestProveInLab: the whole command. A real improvement is found, with its
// costs; an interrupt leaves everything as it was; and missing preconditions
// are named.
func TestProveInLab(t *testing.T) {
	if !labtest.Inside(t, slowHome()) {
		return
	}
	dir, before := t.TempDir(), queues(t)
	store := dir + "/results.db"
	base := []string{"prove", "--server", lab.Server(), "--wan", "wan", "--lan", "lan", "--store", store, "--seconds", "3", "--idle", "2", "--seed", "1"}
	with := func(args ...string) []string { return append(append([]string(nil), base...), args...) }

	if _, said := unbloat(t, dir, 5, base...); !strings.Contains(said, "no plan is committed there; find one with `unbloat tune`") {
		t.Errorf("without a plan: %s", said)
	}
	out, _ := unbloat(t, dir, 0, with("--down", "3600kbit", "--up", "900kbit", "--json")...)
	var r prove.Result
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatal(err)
	}
	if r.Outcome != verdict.Improved || r.PairsUsed != 5 || r.P95Ms.Hi > -100 || r.GoodputUp == nil || r.GoodputUp.Median > 0.2 || r.GoodputUp.Median < -0.3 {
		t.Errorf("%s: %+v, upload %+v", r.Sentence, r.P95Ms, r.GoodputUp)
	}
	t.Log(r.Sentence)
	if now := queues(t); now != before {
		t.Errorf("after the proof: %s", cmp.Diff(before, now))
	}
	if list, _ := unbloat(t, dir, 0, "history", "--store", store); !strings.Contains(list, "none→plan: improved") {
		t.Errorf("it was not kept: %s", list)
	} else if info, err := os.Stat(store); err == nil {
		t.Logf("as JSON it has %d bytes, the file of results %d", len(out), info.Size())
	}

	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGKILL} {
		cmd := exec.Command(labtest.Unbloat(), with("--down", "3600kbit", "--up", "900kbit", "--state-dir", dir)...)
		var said bytes.Buffer
		cmd.Stderr = &said
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		await.Until(t, time.Minute, "the proof to shape", func() bool { return queues(t) != before })
		_ = cmd.Process.Signal(signal)
		_ = cmd.Wait()
		await.Until(t, 10*time.Second, "the watchdog", func() bool { _, err := os.Stat(dir + "/wan.journal.json"); return err != nil })
		if now := queues(t); now != before {
			t.Errorf("after %v: %s", signal, cmp.Diff(before, now))
		}
		if signal == syscall.SIGINT && (cmd.ProcessState.ExitCode() != 1 || !strings.Contains(said.String(), "interrupted; everything is as it was")) {
			t.Errorf("interrupted: exit %d: %s", cmd.ProcessState.ExitCode(), &said)
		}
	}

	// A committed shaper is the one that is proved, and is back at the end.
	unbloat(t, dir, 0, "apply", "--wan", "wan", "--lan", "lan", "--shape-down", "3600kbit", "--shape-up", "900kbit", "--yes")
	kept := queues(t)
	if labtest.Long() {
		unbloat(t, dir, 0, base...)
	}
	out, _ = unbloat(t, dir, 3, with("--between", "plan,none", "--json")...)
	if err := json.Unmarshal([]byte(out), &r); err != nil || r.Outcome != verdict.Worsened {
		t.Errorf("without against with: %v: %s", err, r.Sentence)
	}
	if now := queues(t); now != kept {
		t.Errorf("what was committed has changed: %s", cmp.Diff(kept, now))
	}
	unbloat(t, dir, 0, "revert")
	if now := queues(t); now != before {
		t.Errorf("after a revert: %s", cmp.Diff(before, now))
	}
}

// unchanged proves n times on a line where nothing changes, and returns how
// often an improvement was claimed. In every other proof both sides have a
// shaper.
func unchanged(t *testing.T, from, n int) (claims int) {
	c, err := phases.Dial(t.Context(), lab.Server(), phases.Options{Agent: "prove", Probe: phases.ProbeSpec{Interval: 20 * time.Millisecond}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	shaped := labPlan(t, plan.CAKE)
	count := map[verdict.Outcome]int{}
	for i := from; i < from+n; i++ {
		sides := [2]prove.Side{{Name: "a"}, {Name: "b"}}
		if i%2 == 1 {
			sides[0].Plan, sides[1].Plan = &shaped, &shaped
		}
		r, err := prove.Run(t.Context(), prove.Config{
			Sides: sides, WAN: lab.RouterWAN, Load: 2 * time.Second, Idle: time.Second, Seed: uint64(i), FlowsDown: 2, FlowsUp: 2,
		}, c, prove.NewHeld(labEngine(t.TempDir()), lab.RouterWAN, sides, 2*time.Second))
		if err != nil {
			t.Fatalf("trial %d: %v", i, err)
		}
		count[r.Outcome]++
		t.Log(i, r.LineSeconds, r.Sentence)
	}
	t.Logf("of %d trials on an unchanged line: improved %d, worse %d, no difference shown %d, invalid %d",
		n, count[verdict.Improved], count[verdict.Worsened], count[verdict.NoDifference], count[verdict.Unproved])
	if count[verdict.Unproved] > n/4 {
		t.Errorf("%d of %d are invalid", count[verdict.Unproved], n)
	}
	return count[verdict.Improved]
}

// TestUnchangedInLab100 checks the promise: of 100 proofs on an unchanged line, every other
// one with a shaper on both sides, at most 5 claim an improvement. It runs with
// UNBLOAT_LONG=1 and in `make prove-100`; by day TestUnchangedLines has lines without a kernel.
func TestUnchangedInLab100(t *testing.T) {
	if !labtest.Long() {
		t.Skip("SKIPPED: it takes a quarter of an hour; UNBLOAT_LONG=1 runs it")
	}
	told := regexp.MustCompile(`on an unchanged line: improved (\d+),`)
	const parts, each = 10, 10
	ran, claims := 0, 0
	for part := range parts {
		t.Run(fmt.Sprintf("part%d", part), func(t *testing.T) {
			o := slowHome()
			o.With, o.Seed = "", uint64(part)
			out, inside := labtest.Output(t, o)
			if inside {
				unchanged(t, part*each, each)
				return
			}
			m := told.FindStringSubmatch(out)
			if m == nil {
				t.Fatalf("it does not say what was claimed:\n%s", out)
			}
			n, err := strconv.Atoi(m[1])
			if err != nil {
				t.Fatal(err)
			}
			ran, claims = ran+each, claims+n
			t.Logf("so far %d of %d claim an improvement", claims, ran)
		})
	}
	if labtest.Unbloat() == "" && (ran != parts*each || claims > 5) {
		t.Errorf("%d of %d trials claim an improvement; of 100 at most 5 may", claims, ran)
	}
}
