// Package labtest runs ordinary Go tests on a real Linux kernel, as root in a
// namespace of the lab's emulated home:
//
//	func TestApply(t *testing.T) {
//		if !labtest.Inside(t, labtest.Options{Node: lab.NodeRouter}) {
//			return // it ran in the guest, with the same outcome
//		}
//		… // here the kernel is the guest's, and time is virtual
//	}
package labtest

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"unbloat/lab"
	"unbloat/lab/scenario"
	"unbloat/testkit/await"
	"unbloat/unit"
)

// Options say which home a test wants.
type Options struct {
	Node     string             // where the test runs; "" is the router
	Scenario *scenario.Scenario // nil: Home()
	Server   bool               // start `unbloat serve` on the server
	Env      []string           // added to the test's environment in the guest
	Seed     uint64             // added to Seed
	Within   time.Duration      // of wall time for the guest; 0: as long as the lab allows

	// With is a pattern of test names, as in "TestA|TestB": these tests have one guest
	// together, which saves its boot. Each leaves the home as it found it.
	With string
}

// Long says that the long form of tests was asked for, as `make test-long` does: more
// cases and longer runs. It is the same in the guest.
func Long() bool { return os.Getenv("UNBLOAT_LONG") != "" }

// insideEnv marks the test binary that runs in the guest; its value is the path
// of the unbloat binary there.
const insideEnv = "UNBLOAT_LABTEST_BINARY"

// Home is a plain line for tests that need no special one: 30/5 Mbit/s, 20 ms.
func Home() *scenario.Scenario {
	return &scenario.Scenario{
		Name: "labtest",
		Line: scenario.Line{
			Down: 30 * unit.MbitPerSecond, Up: 5 * unit.MbitPerSecond, RTT: 20 * time.Millisecond,
			BufferDown: 2500 * unit.KB, BufferUp: 600 * unit.KB,
		},
		Cases: []scenario.Case{{Name: "test", Router: scenario.Router{Mode: scenario.ModeNone}}},
	}
}

// HomeAt is Home with other rates, since a guest's time on the processor goes with the
// packets. Its queues hold as many seconds.
func HomeAt(down, up unit.Rate) *scenario.Scenario {
	s := Home()
	s.Line.BufferDown = s.Line.BufferDown * unit.Size(down) / unit.Size(s.Line.Down)
	s.Line.BufferUp = s.Line.BufferUp * unit.Size(up) / unit.Size(s.Line.Up)
	s.Line.Down, s.Line.Up = down, up
	return s
}

// Inside reports whether the test runs in the guest. Outside, it boots a guest
// that runs just this test, relays its output and its failure, and returns
// false. Without the virtual engine's kernel the test is skipped, and says so.
func Inside(t *testing.T, o Options) bool {
	t.Helper()
	_, inside := Output(t, o)
	return inside
}

// Output is like Inside; outside, it returns what the test printed in the guest too.
func Output(t *testing.T, o Options) (output string, inside bool) {
	t.Helper()
	if os.Getenv(insideEnv) != "" {
		return "", true
	}
	kernel := NeedKernel(t)
	if o.With == "" {
		output = boot(t, kernel, o, t.Name())
	} else {
		output = together(t, kernel, o)
	}
	switch {
	case strings.Contains(output, "--- FAIL: "+t.Name()+" "):
		t.Fatalf("failed in the guest:\n%s", output)
	case strings.Contains(output, "--- SKIP: "+t.Name()+" "):
		t.Skip("SKIPPED in the guest; its output says why")
	case !strings.Contains(output, "--- PASS: "+t.Name()+" "):
		t.Fatalf("the guest did not run %s to its end:\n%s", t.Name(), output)
	}
	if testing.Verbose() {
		t.Log(output)
	}
	return output, false
}

// boot boots a guest that runs tests, and returns what they printed.
func boot(t *testing.T, kernel lab.Kernel, o Options, tests string) string {
	t.Helper()
	if o.Node == "" {
		o.Node = lab.NodeRouter
	}
	if o.Scenario == nil {
		o.Scenario = Home()
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	env := []string{insideEnv + "=" + lab.GuestUnbloat, "UNBLOAT_SEED=" + os.Getenv("UNBLOAT_SEED"), "UNBLOAT_LONG=" + os.Getenv("UNBLOAT_LONG")}
	g := lab.Guest{
		Engine: kernel.Engine, Scenario: o.Scenario, Case: o.Scenario.Cases[0].Name, Node: o.Node, Server: o.Server, Seed: o.Seed + Seed(t),
		Programs: Programs(t), Dir: dir,
		Command: []string{self, "-test.run", "^(" + strings.ReplaceAll(tests, "/", ")$/^(") + ")$", "-test.v", "-test.count=1"},
		Env:     append(env, o.Env...), Within: o.Within,
	}
	// A guest that hangs is ended by Boot; the wait for a processor has no bound.
	r, wall, err := lab.Boot(t.Context(), kernel, g, nil)
	if err != nil {
		t.Fatal(err)
	}
	c := r.Commands[0]
	t.Logf("in the guest: %.1f s of its time in %.1f s, %.1f s of a processor, exit code %d", r.VirtualSeconds, wall.Seconds(), r.ProcessorSeconds, c.ExitCode)
	return c.Output
}

// guests holds what shared guests have printed that no test has asked for yet.
var guests struct {
	sync.Mutex
	printed map[string]string // by test
}

// together returns what this test printed in the guest that it has with others, which
// the first of them boots.
func together(t *testing.T, kernel lab.Kernel, o Options) string {
	t.Helper()
	guests.Lock()
	defer guests.Unlock()
	if _, ok := guests.printed[t.Name()]; !ok {
		wanted := flag.Lookup("test.run").Value.String()
		first, _, _ := strings.Cut(wanted, "/")
		asked, err := regexp.Compile(first)
		if err != nil {
			t.Fatal(err)
		}
		names := slices.DeleteFunc(strings.Split(o.With, "|"), func(n string) bool { return n != t.Name() && !asked.MatchString(n) })
		output := boot(t, kernel, o, strings.Join(names, "|"))
		if guests.printed == nil {
			guests.printed = map[string]string{}
		}
		for _, name := range names {
			_, mine, _ := strings.Cut(output, "=== RUN   "+name+"\n")
			for _, other := range names { // up to the next one, or to the end of a guest that broke off
				mine, _, _ = strings.Cut(mine, "=== RUN   "+other+"\n")
			}
			guests.printed[name] = mine
		}
	}
	output := guests.printed[t.Name()]
	delete(guests.printed, t.Name())
	return output
}

// NeedKernel returns the virtual engine's kernel. With -short, or where there is
// none, it skips the test, and says so.
func NeedKernel(t testing.TB) lab.Kernel {
	t.Helper()
	if testing.Short() {
		t.Skip("SKIPPED: -short boots no kernel; `make test` does")
	}
	kernel, err := lab.FindKernel(lab.Virtual)
	if err != nil {
		t.Skipf("SKIPPED: %v", err)
	}
	return kernel
}

// Seed is of all that is random in the lab's guests: 1, or what UNBLOAT_SEED
// says. What a test promises must hold for every seed.
func Seed(t testing.TB) uint64 {
	t.Helper()
	text := os.Getenv("UNBLOAT_SEED")
	if text == "" {
		return 1
	}
	seed, err := strconv.ParseUint(text, 10, 64)
	if err != nil || seed == 0 {
		t.Fatalf("UNBLOAT_SEED is %q, not a number from 1", text)
	}
	return seed
}

// Unbloat returns the path of the unbloat binary inside the guest.
func Unbloat() string { return os.Getenv(insideEnv) }

// In returns a command that runs in another node of the home. Only inside the guest.
func In(ctx context.Context, node string, argv ...string) *exec.Cmd {
	return exec.CommandContext(ctx, "ip", append([]string{"netns", "exec", node}, argv...)...)
}

// Programs builds the lab's programs from this tree, and returns their paths.
func Programs(t testing.TB) lab.Programs {
	t.Helper()
	return lab.Programs{Lab: must(t, builtLab), Unbloat: Binary(t)}
}

// Binary builds unbloat from this tree and returns its path, beside which Programs puts
// the laboratory's. It is built once a process, and linked once for all of them: Go leaves
// an output alone that is already what would be linked.
func Binary(t testing.TB) string {
	t.Helper()
	return must(t, builtUnbloat)
}

// Actor builds the program that plays those of a fake router, and returns its path.
func Actor(t testing.TB) string {
	t.Helper()
	return must(t, builtActor)
}

func must(t testing.TB, built func() (path string, err error)) string {
	t.Helper()
	path, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

var (
	builtUnbloat = sync.OnceValues(func() (string, error) { return build("cmd/unbloat") })
	builtLab     = sync.OnceValues(func() (string, error) { return build("cmd/unbloat-lab") })
	builtActor   = sync.OnceValues(func() (string, error) { return build("cmd/unbloat/testdata/actor") })
)

// madeEnv names the directory in which `make test` has made the programs. Go runs a test
// again when one that it has looked at there is another file.
const madeEnv = "UNBLOAT_PROGRAMS"

// Tracks has Go run a test again after a change of the sources, for one that builds a
// program itself, with tags of its own.
func Tracks(t testing.TB) {
	t.Helper()
	root, err := await.ModuleRoot()
	for _, dir := range []string{"cmd", "guard", "internal", "reason", "scripts", "unit"} {
		err = errors.Join(err, filepath.WalkDir(filepath.Join(root, dir), func(path string, _ fs.DirEntry, err error) error {
			_, _ = os.Stat(path) // Go notes what a test looks at
			return err
		}))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// build builds the program of a directory, unless it was made before.
func build(dir string) (string, error) {
	program := filepath.Base(dir)
	if made := os.Getenv(madeEnv); made != "" {
		path := filepath.Join(made, program)
		_, err := os.Stat(path)
		return path, err
	}
	root, err := await.ModuleRoot()
	if err != nil {
		return "", err
	}
	// Built under a name of its own and then moved: packages are tested side by side.
	// It begins as a copy of the last one, so that Go links again only after a change.
	path := filepath.Join(root, "bin", "labtest", program)
	fresh := fmt.Sprintf("%s-%d", path, os.Getpid())
	defer os.Remove(fresh) // where it does not build
	if last, err := os.ReadFile(path); err == nil {
		if err := os.WriteFile(fresh, last, 0o755); err != nil {
			return "", err
		}
	}
	cmd := exec.Command("go", "build", "-buildvcs=false", "-o", fresh, "./"+dir)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s for the lab: %w: %s", program, err, bytes.TrimSpace(out))
	}
	if err := os.Rename(fresh, path); err != nil {
		return "", err
	}
	return path, nil
}
