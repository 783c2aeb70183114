package apply_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"unbloat/internal/cure/apply"
	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform"
	"unbloat/internal/cure/platform/linux"
	"unbloat/testkit/await"
	"unbloat/testkit/labtest"
	"unbloat/unit"
)

// These tests run on a real kernel, as root on the emulated home's router, in two
// guests. Each leaves the router as it found it.

// killedInLab says that a test which kills the applying process runs in the guest.
func killedInLab(t *testing.T) bool {
	t.Helper()
	return labtest.Inside(t, labtest.Options{With: "TestKilledAfterEachCommandCake|TestKilledAfterEachCommandHTB|TestKilledAfterEachCommandBPF|TestKilledTuner"})
}

// routerInLab says that a test of another kind does.
func routerInLab(t *testing.T) bool {
	t.Helper()
	if !labtest.Inside(t, labtest.Options{With: "TestUnreadProgramsStay|TestForeignShaper|TestTwiceRunsNothing|TestRefusals|TestMissingModule|" +
		"TestLongName|TestDeadlineAndPersist|TestRevertWithoutJournal|TestWatchdog|TestRetuneInPlace"}) {
		return false
	}
	if dir := filepath.Dir(labtest.Unbloat()); !strings.HasPrefix(os.Getenv("PATH"), dir) { // engines call it by its name
		if err := os.Setenv("PATH", dir+":"+os.Getenv("PATH")); err != nil {
			t.Fatal(err)
		}
	}
	return true
}

// engineIn returns an engine whose watchdog is the real program.
func engineIn(dir string, r platform.Runner) *apply.Engine {
	return &apply.Engine{
		Backend: &linux.Backend{Runner: r, Exe: labtest.Unbloat()}, Runner: r, Dir: dir,
		WatchdogArgv: []string{labtest.Unbloat(), "watchdog", "--state-dir", dir},
	}
}

// labPlan makes a plan for the router of the lab.
func labPlan(t testing.TB, aqm plan.AQM, down, up unit.Rate) plan.Plan {
	t.Helper()
	p, err := plan.Make(plan.Line{}, plan.Capabilities{Language: linux.Language(), WAN: "wan", LAN: "lan", IFB: true, MTU: 1500},
		plan.Preferences{AQM: aqm, Down: plan.RatePreference{Rate: down}, Up: plan.RatePreference{Rate: up}})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// bpfPlan is one whose classes a BPF program gives, beside a rule of nftables'.
func bpfPlan(t testing.TB, down, up unit.Rate) plan.Plan {
	t.Helper()
	p, err := plan.Make(plan.Line{}, plan.Capabilities{Language: linux.Language(), WAN: "wan", LAN: "lan", IFB: true, MTU: 1500},
		plan.Preferences{AQM: plan.CAKE, Down: plan.RatePreference{Rate: down}, Up: plan.RatePreference{Rate: up},
			Classes: plan.ClassPreferences{Classifier: plan.ByBPF, Rules: []plan.Rule{{Class: plan.Bulk, Protocol: "udp", FarPort: []plan.PortRange{{From: 5004, To: 5004}}}}}})
	if err != nil || !p.Classes.ByBPF() {
		t.Fatalf("plan with a BPF program: %v, %+v", err, p.Classes)
	}
	return p
}

var volatile = regexp.MustCompile(`"(index|ref|bind|refcnt|installed|last_used)":\d+,?|\b(id|load_time|btf_id|refcnt|index) \d+|class cake .*\n`) // CAKE lists a class for each flow that waits

// fullState returns everything that a change could leave behind, as the tools print
// it. Each tool is started once, since a start costs more than what it prints.
func fullState(t testing.TB) string {
	t.Helper()
	var out strings.Builder
	run := func(stdin string, argv ...string) {
		c := exec.Command(argv[0], argv[1:]...)
		c.Stdin = strings.NewReader(stdin)
		b, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %v\n%s%s", argv, err, stdin, b)
		}
		fmt.Fprintf(&out, "$ %s\n%s\n", strings.Join(argv, " "), volatile.ReplaceAll(b, nil))
	}
	links, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	shaping := "qdisc show\n"
	for _, l := range links {
		shaping += fmt.Sprintf("class show dev %[1]s\nfilter show dev %[1]s\nfilter show dev %[1]s ingress\n", l.Name)
	}
	run("link show\nroute show\n", "ip", "-j", "-d", "-batch", "-")
	run(shaping, "tc", "-d", "-batch", "-")
	run("", "ethtool", "-k", "*") // of all links
	run("", "nft", "list", "ruleset")
	err = filepath.WalkDir("/sys/fs/bpf", func(path string, _ fs.DirEntry, err error) error {
		if strings.Count(path, "/") > 4 && !errors.Is(err, fs.ErrNotExist) { // a directory of ours may stay; a file may just go
			fmt.Fprintln(&out, path, err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func sameState(t testing.TB, what, before, after string) {
	t.Helper()
	if before == after {
		return
	}
	a, b := strings.Split(before, "\n"), strings.Split(after, "\n")
	for i := range max(len(a), len(b)) {
		var x, y string
		if i < len(a) {
			x = a[i]
		}
		if i < len(b) {
			y = b[i]
		}
		if x != y {
			t.Fatalf("%s: the state differs, first here:\n  before %s\n  after  %s", what, x, y)
		}
	}
}

// changes reports whether a command changes something.
func changes(argv []string) bool {
	s := strings.Join(argv, " ")
	return argv[0] != "unshare" && (strings.Contains(s, " add ") || strings.Contains(s, " del ") || strings.Contains(s, " change ") ||
		strings.Contains(s, "classifier load") || strings.Contains(s, "classifier attach ") || strings.HasPrefix(s, "rm ") || strings.HasPrefix(s, "nft -f") || strings.HasPrefix(s, "nft delete") || strings.Contains(s, " set ") || strings.Contains(s, " replace ") || strings.Contains(s, "ethtool -K"))
}

// crasher kills its own process with SIGKILL after the nth command that counts.
type crasher struct {
	after int
	all   bool // reading commands count too
	n     int
}

func (c *crasher) Run(ctx context.Context, argv []string, stdin []byte) ([]byte, []byte, error) {
	out, errOut, err := platform.Local{}.Run(ctx, argv, stdin)
	if c.all || changes(argv) {
		if c.n++; c.n == c.after {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {} // until the signal arrives
		}
	}
	return out, errOut, err
}

const (
	crashEnv    = "UNBLOAT_TEST_CRASH" // "DIR AQM AFTER all|changes replace|bpf|-"; AFTER 0: never
	cameThrough = "CAME THROUGH"       // printed before the number of commands
)

// TestCrashHelper is the applying process of the crash tests.
func TestCrashHelper(t *testing.T) {
	spec := strings.Fields(os.Getenv(crashEnv))
	if len(spec) != 5 {
		return // it only acts as a child of the crash tests
	}
	after, _ := strconv.Atoi(spec[2])
	r := &crasher{after: after, all: spec[3] == "all"}
	e := engineIn(spec[0], r)
	b := e.Backend.(*linux.Backend)
	b.Replace, b.Exe = spec[4] == "replace", labtest.Unbloat()
	t.Setenv("PATH", filepath.Dir(labtest.Unbloat())+":"+os.Getenv("PATH")) // for what reads BPF programs, earlier ones too
	p := labPlan(t, plan.AQM(spec[1]), 20*unit.MbitPerSecond, 4*unit.MbitPerSecond)
	if spec[4] == "bpf" {
		p = bpfPlan(t, 20*unit.MbitPerSecond, 4*unit.MbitPerSecond)
	}
	tr, err := e.Begin(context.Background(), p, apply.Options{Confirm: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	tr.Close()
	fmt.Println(cameThrough, r.n)
}

// crashEverywhere kills the applying process behind its commands. After each kill the old
// state must return.
func crashEverywhere(t *testing.T, aqm plan.AQM, which, replace string) {
	t.Helper()
	crashAfter(t, aqm, which, replace, func(string) {})
}

// crashAfter is crashEverywhere after an earlier change, of which the directory is told.
// First the process comes through, and nobody confirms, which tells how many commands
// there are. By day it is then killed behind the first, the middle and the last of them,
// at night behind each: that every command can be undone is a law of each backend, too
// (conform), on what stands in for the kernel.
func crashAfter(t *testing.T, aqm plan.AQM, which, replace string, earlier func(dir string)) {
	t.Helper()
	earlier(t.TempDir())
	before := fullState(t)
	crash := func(after int) (commands int) {
		t.Helper()
		dir := t.TempDir()
		earlier(dir)
		cmd := exec.Command(os.Args[0], "-test.run", "^TestCrashHelper$", "-test.v")
		cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %s %d %s %s", crashEnv, dir, aqm, after, which, replace))
		out, err := cmd.CombinedOutput()
		_, said, through := strings.Cut(string(out), cameThrough)
		var exit *exec.ExitError
		if through != (after == 0) || !through && !(errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL) {
			t.Fatalf("crash after %d: it ended otherwise: %v\n%s", after, err, out)
		}
		_, _ = fmt.Sscan(said, &commands)
		waitWatchdog(t, dir)
		sameState(t, fmt.Sprintf("%s: killed after command %d", aqm, after), before, fullState(t))
		return commands
	}
	all := crash(0)
	if all < 3 {
		t.Fatalf("it ran %d commands", all)
	}
	behind := []int{1, (all + 1) / 2, all}
	if labtest.Long() {
		behind = behind[:0]
		for n := range all {
			behind = append(behind, n+1)
		}
	}
	for _, n := range behind {
		crash(n)
	}
	t.Logf("%s: the old state came back after kill -9 behind commands %v of %d (%s), and after the deadline", aqm, behind, all, which)
}

// waitWatchdog waits until the watchdog of dir, if any, has done its work.
func waitWatchdog(t testing.TB, dir string) {
	t.Helper()
	if await.True(15*time.Second, func() bool { _, err := os.Stat(filepath.Join(dir, "wan.journal.json")); return err != nil }) {
		return
	}
	log, _ := os.ReadFile(filepath.Join(dir, "wan.watchdog.log"))
	t.Fatalf("the watchdog has not closed its journal after 15 s; its log: %s", log)
}

// At night it is killed after commands that only read, too.
func TestKilledAfterEachCommandCake(t *testing.T) {
	if !killedInLab(t) {
		return
	}
	which := "changes"
	if labtest.Long() {
		which = "all"
	}
	crashEverywhere(t, plan.CAKE, which, "-")
}

func TestKilledAfterEachCommandBPF(t *testing.T) {
	if !killedInLab(t) {
		return
	}
	crashEverywhere(t, plan.CAKE, "changes", "bpf")
}

// Over an earlier plan with a BPF program, which the undo loads again if it is recorded,
// and keeps if it is not; from there to nftables, and from nftables to a program. Each
// has a guest of its own.
func TestKilledAfterEachCommandBPFLong(t *testing.T) {
	if !labtest.Long() {
		t.Skip("SKIPPED: it boots four guests; with UNBLOAT_LONG=1, as in `make bpf`, it runs")
	}
	earlier := func(classifier string) func(dir string) {
		return func(dir string) {
			runUnbloat(t, 0, "apply", "--wan", "wan", "--lan", "lan", "--aqm", "cake", "--shape-down", "10mbit", "--shape-up", "2mbit", "--classifier", classifier, "--yes", "--state-dir", dir, "--root", dir)
		}
	}
	for _, x := range []struct {
		name, to string
		before   string // the classifier of an earlier plan
		recorded bool   // it is in the directory of the one that is undone
	}{
		{name: "over_program_of_another", to: "bpf", before: "bpf"},
		{name: "over_program", to: "bpf", before: "bpf", recorded: true},
		{name: "from_program_to_nft", to: "-", before: "bpf", recorded: true},
		{name: "from_nft_to_program", to: "bpf", before: "nft", recorded: true},
	} {
		t.Run(x.name, func(t *testing.T) {
			if !labtest.Inside(t, labtest.Options{}) {
				return
			}
			before := earlier(x.before)
			before(t.TempDir())
			s := fullState(t)
			if program := strings.Contains(s, "name up_") && strings.Contains(s, "/sys/fs/bpf/unbloat/"); program != (x.before == "bpf") || strings.Contains(s, "table inet unbloat") != (x.before == "nft") {
				t.Fatalf("the earlier plan by %s is not there:\n%s", x.before, s)
			}
			if !x.recorded {
				before = func(string) {}
			}
			crashAfter(t, plan.CAKE, "changes", x.to, before)
		})
	}
}

// Programs that can't be read, as by an unbloat beside the router which has none of
// its own in its PATH, could not be attached again: nothing replaces them.
func TestUnreadProgramsStay(t *testing.T) {
	if !routerInLab(t) {
		return
	}
	dir := t.TempDir()
	runUnbloat(t, 0, "apply", "--wan", "wan", "--lan", "lan", "--aqm", "cake", "--shape-down", "10mbit", "--shape-up", "2mbit", "--classifier", "bpf", "--yes", "--state-dir", dir, "--root", dir)
	before := fullState(t)
	p := labPlan(t, plan.CAKE, 20*unit.MbitPerSecond, 4*unit.MbitPerSecond)
	with := os.Getenv("PATH")
	t.Setenv("PATH", strings.TrimPrefix(with, filepath.Dir(labtest.Unbloat())+":"))
	_, err := engineIn(t.TempDir(), &counter{}).Begin(t.Context(), p, apply.Options{Confirm: time.Minute})
	var refused *platform.PreconditionError
	if !errors.As(err, &refused) || !strings.Contains(refused.Doing, "BPF") {
		t.Errorf("not refused for the programs: %v", err)
	}
	sameState(t, "after the refusal", before, fullState(t))
	t.Setenv("PATH", with)
	tr, err := engineIn(t.TempDir(), &counter{}).Begin(t.Context(), p, apply.Options{Confirm: time.Minute})
	if err != nil {
		t.Fatalf("with unbloat in the PATH: %v", err)
	}
	if err := tr.Revert(t.Context()); err != nil {
		t.Fatal(err)
	}
	tr.Close()
	sameState(t, "undone", before, fullState(t))
	runUnbloat(t, 0, "revert", "--state-dir", dir, "--root", dir)
}

func TestKilledAfterEachCommandHTB(t *testing.T) {
	if !killedInLab(t) {
		return
	}
	crashEverywhere(t, plan.FQCoDel, "changes", "-")
}

// foreignShaper puts a foreign shaper on the WAN.
func foreignShaper(t testing.TB) {
	t.Helper()
	for _, c := range []string{
		"tc qdisc add dev wan root handle 1: stab mtu 2047 tsize 512 mpu 64 overhead 18 linklayer ethernet htb default 20",
		"tc class add dev wan parent 1: classid 1:1 htb rate 5mbit ceil 5mbit burst 4k",
		"tc class add dev wan parent 1:1 classid 1:10 htb rate 1mbit ceil 5mbit prio 1 quantum 3000",
		"tc class add dev wan parent 1:1 classid 1:20 htb rate 4mbit ceil 5mbit prio 2 quantum 3000",
		"tc qdisc add dev wan parent 1:10 handle 110: sfq perturb 10",
		"tc qdisc add dev wan parent 1:20 handle 120: fq_codel limit 900 target 7ms interval 90ms noecn",
		"tc filter add dev wan parent 1: protocol ip prio 1 u32 match ip dport 53 0xffff match ip protocol 17 0xff flowid 1:10",
		"tc filter add dev wan parent 1: protocol ip prio 2 handle 7 fw flowid 1:10",
		"tc qdisc add dev wan handle ffff: ingress",
		"tc filter add dev wan parent ffff: protocol all prio 50 matchall action mirred egress mirror dev lan",
	} {
		argv := strings.Fields(c)
		if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", c, err, out)
		}
	}
}

func TestForeignShaper(t *testing.T) {
	if !routerInLab(t) {
		return
	}
	foreignShaper(t)
	defer func() {
		for _, c := range []string{"tc qdisc del dev wan root", "tc qdisc del dev wan ingress"} {
			argv := strings.Fields(c)
			if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
				t.Errorf("%s: %v\n%s", c, err, out)
			}
		}
	}()
	before := fullState(t)
	dir := t.TempDir()
	unbloat := func(want int, args ...string) string {
		t.Helper()
		return runUnbloat(t, want, append(args, "--state-dir", dir, "--root", dir)...)
	}
	out := unbloat(5, "apply", "--wan", "wan", "--lan", "lan", "--shape-down", "20mbit", "--shape-up", "4mbit", "--yes")
	if !strings.Contains(out, "htb 1:") || !strings.Contains(out, "--replace") {
		t.Errorf("the refusal names neither the shaper nor the remedy: %s", out)
	}
	sameState(t, "after the refusal", before, fullState(t))
	unbloat(0, "apply", "--wan", "wan", "--lan", "lan", "--shape-down", "20mbit", "--shape-up", "4mbit", "--yes", "--replace")
	if s := fullState(t); !strings.Contains(s, "b10a:") {
		t.Fatalf("ours is not there:\n%s", s)
	}
	unbloat(0, "apply", "--wan", "wan", "--lan", "lan", "--shape-down", "21mbit", "--shape-up", "4mbit", "--yes")
	t.Log(unbloat(0, "revert"))
	sameState(t, "after the revert", before, fullState(t))
	crashEverywhere(t, plan.CAKE, "changes", "replace")
	// A shaper that cannot be restored is named and refused, and nothing is
	// changed.
	if b, err := exec.Command("tc", "filter", "add", "dev", "wan", "parent", "1:", "protocol", "ip", "prio", "9", "u32", "match", "ip", "dport", "80", "0xffff",
		"police", "rate", "1mbit", "burst", "10k", "drop", "flowid", "1:20").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, b)
	}
	before = fullState(t)
	out = unbloat(5, "apply", "--wan", "wan", "--lan", "lan", "--shape-down", "20mbit", "--shape-up", "4mbit", "--yes", "--replace")
	if !strings.Contains(out, "pref 9") {
		t.Errorf("the refusal does not say which part: %s", out)
	}
	sameState(t, "after the refused take-over", before, fullState(t))
}

// runUnbloat runs the program and expects an exit code.
func runUnbloat(t testing.TB, want int, args ...string) string {
	t.Helper()
	cmd := exec.Command(labtest.Unbloat(), args...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	code := cmd.ProcessState.ExitCode()
	if code != want {
		t.Fatalf("unbloat %s: exit %d (%v), want %d\n%s", strings.Join(args, " "), code, err, want, out.String())
	}
	return out.String()
}

// A counter counts the commands that change something.
type counter struct{ ran []string }

func (c *counter) Run(ctx context.Context, argv []string, stdin []byte) ([]byte, []byte, error) {
	if changes(argv) {
		c.ran = append(c.ran, strings.Join(argv, " "))
	}
	return platform.Local{}.Run(ctx, argv, stdin)
}

func TestTwiceRunsNothing(t *testing.T) {
	if !routerInLab(t) {
		return
	}
	before := fullState(t)
	for _, aqm := range []plan.AQM{plan.CAKE, plan.FQCoDel, plan.FIFO} {
		rates := [][2]unit.Rate{{2_345_678_901, 950_001}} // down, up
		if labtest.Long() {
			rates = append(rates, [2]unit.Rate{9_500_010, 950_001}, [2]unit.Rate{23_456_789_010, 2_345_678_901}, [2]unit.Rate{9_500_000, 950_000}, [2]unit.Rate{91_234_560, 9_123_456})
		}
		for _, rate := range rates {
			r := &counter{}
			e := engineIn(t.TempDir(), r)
			p := labPlan(t, aqm, rate[0], rate[1])
			for round := range 2 {
				r.ran = nil
				tr, err := e.Begin(t.Context(), p, apply.Options{Confirm: time.Minute, Hold: round == 0})
				if err != nil {
					t.Fatalf("%s at %s: %v", aqm, rate, err)
				}
				if err := tr.Commit(); err != nil {
					t.Fatal(err)
				}
				tr.Close()
				if round == 1 && len(r.ran) != 0 {
					t.Errorf("%s at %s: the second time ran %q", aqm, rate, r.ran)
				}
			}
			if _, done, err := e.Revert(t.Context(), apply.Journal{WAN: "wan"}); err != nil || !done {
				t.Fatalf("revert: %v %v", done, err)
			}
			sameState(t, fmt.Sprintf("%s at %s", aqm, rate), before, fullState(t))
		}
	}
}
