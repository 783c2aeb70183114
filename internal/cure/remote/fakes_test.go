package remote_test

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"unbloat/internal/cure/apply"
	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform"
	"unbloat/internal/cure/platform/all"
	"unbloat/internal/cure/platform/clearos"
	"unbloat/internal/cure/platform/freebsd"
	"unbloat/internal/cure/platform/openbsd"
	"unbloat/internal/cure/platform/openwrt"
	"unbloat/internal/cure/platform/pfsense"
	"unbloat/internal/cure/remote"
	"unbloat/testkit/await"
	"unbloat/testkit/fake"
	"unbloat/testkit/pfctl"
	"unbloat/testkit/pfsensefake"
	"unbloat/unit"
)

// A stage is a fake router behind a real SSH server. The programs in its PATH
// are this test binary, which passes each call to the fake in the test's own
// process. So every platform is tested with the real handling of commands,
// quoting, standard input and exit codes.

// stageEnv is the environment variable with the socket of the fake. If it is
// set, this binary acts as one of the router's programs.
const stageEnv = "UNBLOAT_TEST_STAGE"

// A call is a run of a program on the router; an answer is its result.
type call struct {
	Argv  []string
	Stdin []byte
}

type answer struct {
	Out, Err []byte
	Code     int
}

func TestMain(m *testing.M) {
	if socket := os.Getenv(stageEnv); socket != "" {
		os.Exit(act(socket))
	}
	// The tests mostly wait for deadlines, so more of them run at once than
	// there are processors.
	flag.Parse()
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// act runs as one of the router's programs.
func act(socket string) int {
	argv := append([]string{filepath.Base(os.Args[0])}, os.Args[1:]...)
	if slices.ContainsFunc(argv, func(a string) bool { return strings.Contains(a, "/unbloat-watchdog-") }) {
		return pass(argv) // the watchdog's own files, and watchdogFolder, are real
	}
	c := call{Argv: argv}
	c.Stdin, _ = io.ReadAll(os.Stdin)
	conn, err := net.Dial("unix", socket)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 126
	}
	defer conn.Close()
	var a answer
	if err := errors.Join(json.NewEncoder(conn).Encode(c), json.NewDecoder(conn).Decode(&a)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 126
	}
	_, _ = os.Stdout.Write(a.Out)
	_, _ = os.Stderr.Write(a.Err)
	return a.Code
}

// pass runs the real program of that name.
func pass(argv []string) int {
	path, err := exec.LookPath("/usr/bin/" + argv[0])
	if err == nil {
		err = syscall.Exec(path, argv, os.Environ())
	}
	fmt.Fprintln(os.Stderr, err)
	return 126
}

// newStage serves a fake's programs in dir/bin until the test ends. The lock
// one lets one call at a time run.
func newStage(t *testing.T, dir string, programs []string, r platform.Runner, one *sync.Mutex) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(dir, "bin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range programs {
		if err := os.Symlink(self, filepath.Join(bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	l, err := net.Listen("unix", filepath.Join(dir, "stage"))
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer conn.Close()
				var c call
				if json.NewDecoder(conn).Decode(&c) != nil {
					return
				}
				one.Lock()
				out, errOut, err := r.Run(t.Context(), c.Argv, c.Stdin)
				one.Unlock()
				a := answer{Out: out, Err: errOut}
				if err != nil {
					a.Code = 1
				}
				_ = json.NewEncoder(conn).Encode(a)
			})
		}
	})
	t.Cleanup(func() { l.Close(); all.Wait() })
}

// A fakeRouter is a fake router, and what the test asks of it.
type fakeRouter struct {
	name    string
	uname   string // output of uname -sr
	marks   []string
	machine *fake.Machine
	show    func() string
	wan     string
	backend func(r platform.Runner) platform.Backend

	lock *sync.Mutex
}

// text returns everything that a change can touch.
func (p fakeRouter) text() string {
	p.lock.Lock()
	defer p.lock.Unlock()
	return p.show()
}

func platforms() []fakeRouter {
	owrt, cos, bsd, sense, obsd, old := fake.NewOpenWrt(), fake.NewClearOS(), fake.NewFreeBSD(), pfsensefake.New(), fake.NewOpenBSD(pfctl.Today), fake.NewOpenBSD(pfctl.ALTQWithMatch)
	return []fakeRouter{
		{"openwrt", "Linux 6.6.110", []string{"/etc/openwrt_release"}, owrt.Machine, owrt.Text, "wan", func(r platform.Runner) platform.Backend { return &openwrt.Backend{Runner: r} }, &sync.Mutex{}},
		{"clearos", "Linux 3.10.0", []string{"/etc/clearos-release"}, cos.Machine, cos.Text, "wan", func(r platform.Runner) platform.Backend { return &clearos.Backend{Runner: r} }, &sync.Mutex{}},
		{"freebsd", "FreeBSD 14.3-RELEASE", nil, bsd.Machine, bsd.Text, "igb0", func(r platform.Runner) platform.Backend { return &freebsd.Backend{Runner: r} }, &sync.Mutex{}},
		{"pfsense", "FreeBSD 15.0-CURRENT", []string{"/etc/pfSense-rc"}, sense.Machine, sense.Text, "igb0", func(r platform.Runner) platform.Backend { return &pfsense.Backend{Runner: r} }, &sync.Mutex{}},
		{"openbsd", "OpenBSD 7.8", nil, obsd.Machine, obsd.Text, "em0", func(r platform.Runner) platform.Backend { return &openbsd.Backend{Runner: r} }, &sync.Mutex{}},
		{"openbsd-altq", "OpenBSD 5.4", nil, old.Machine, old.Text, "em0", func(r platform.Runner) platform.Backend { return &openbsd.Backend{Runner: r, Altq: true} }, &sync.Mutex{}},
	}
}

// addSystem adds to the fake the programs that tell which user and which system
// it is. It returns the names of all programs, except those called by path, and the shell, which
// is real.
func (p fakeRouter) addSystem() []string {
	say := func(text string) fake.Tool {
		return fake.Tool{Run: func([]string, []byte) (string, error) { return text + "\n", nil }}
	}
	p.machine.Tools["uname"], p.machine.Tools["id"] = say(p.uname), say("0")
	list := p.machine.Tools["ls"]
	p.machine.Tools["ls"] = fake.Tool{Run: func(args []string, in []byte) (string, error) {
		if slices.Contains(p.marks, args[len(args)-1]) {
			return args[len(args)-1], nil
		}
		return list.Run(args, in)
	}}
	var names []string
	for name := range p.machine.Tools {
		if !strings.Contains(name, "/") && name != "sh" {
			names = append(names, name)
		}
	}
	return names
}

// lacks returns which programs for shaping the router has not, though this machine may.
func (p fakeRouter) lacks() []string {
	return slices.DeleteFunc([]string{"tc", "ip", "ethtool", "nft", "unshare"}, func(name string) bool { _, has := p.machine.Tools[name]; return has })
}

// byPath makes programs that are called by path also available by their base
// name, which is what the stage passes on.
func (p fakeRouter) byPath() (paths []string) {
	for name, tool := range p.machine.Tools {
		if strings.Contains(name, "/") {
			paths = append(paths, name)
			p.machine.Tools[filepath.Base(name)] = tool
		}
	}
	return paths
}

// staged runs sshd so that it finds the programs of the stage, also at their
// paths.
func staged(t *testing.T, p fakeRouter) (*server, string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "stage") // in /tmp, since a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	paths := p.byPath()
	newStage(t, dir, p.addSystem(), p.machine, p.lock)
	s := startServerBy(t, inNamespace(t, paths, p.lacks(), dir), "SetEnv "+stageEnv+"="+dir+"/stage SHLVL=2 PATH="+dir+"/bin:/usr/bin:/bin")
	s.options.Path = dir + "/bin:/usr/bin:/bin"
	return s, dir
}

// TestEveryPlatformOverSSH: on every platform a plan is applied, read back,
// kept, and reverted to the byte. If it is not confirmed while the router
// cannot be reached, the router's own watchdog restores it to the byte.
func TestEveryPlatformOverSSH(t *testing.T) {
	await.NotShort(t)
	t.Parallel()
	for _, p := range platforms() {
		t.Run(p.name, func(t *testing.T) {
			if os.Getenv("UNBLOAT_LONG") == "" && p.name != "openwrt" && p.name != "freebsd" {
				t.Skip("SKIPPED: its contract holds without SSH, and two go over it; UNBLOAT_LONG=1 runs all")
			}
			t.Parallel()
			s, _ := staged(t, p)
			ssh := s.dial(t)
			if got := platform.Detect(t.Context(), ssh, all.Drivers()).Name(); got != p.name {
				t.Errorf("it takes itself for %s", got)
			}
			start := p.text()
			prefs := plan.Preferences{Up: plan.RatePreference{Rate: 5 * unit.MbitPerSecond}, Down: plan.RatePreference{Rate: 30 * unit.MbitPerSecond}}
			lang, err := all.Language(p.name)
			if err != nil {
				t.Fatal(err)
			}
			made, err := plan.Make(plan.Line{}, plan.Capabilities{Language: lang, WAN: p.wan, LAN: map[string]string{"wan": "lan", "igb0": "igb1", "em0": "em1"}[p.wan], IFB: true, Offloads: []plan.Offload{}}, prefs)
			if err != nil {
				t.Fatal(err)
			}
			b := p.backend(ssh)
			// The watchdog is patient: no test here waits until it misses its
			// holder, and on a busy machine a heartbeat through these programs
			// takes long.
			e := &apply.Engine{Backend: b, Runner: ssh, Dir: t.TempDir(),
				Watchdog: &remote.Watchdog{Runner: ssh, Backend: b, Uptime: apply.Uptime, Path: s.options.Path, Folder: watchdogFolder(t), Patience: time.Minute}}
			tr, err := e.Begin(t.Context(), made, apply.Options{Confirm: longAfter, Hold: true})
			if err != nil {
				t.Fatal(err)
			}
			if err := tr.Commit(); err != nil {
				t.Fatal(err)
			}
			tr.Close()
			if p.text() == start {
				t.Fatal("nothing was changed")
			}
			if _, _, err := e.Revert(t.Context(), apply.Journal{WAN: p.wan}); err != nil {
				t.Error(err)
			}
			if got := p.text(); got != start {
				t.Fatalf("reverted, it has\n%s\nbefore:\n%s", got, start)
			}
			if tr, err = e.Begin(t.Context(), made, apply.Options{Confirm: 10 * time.Second}); err != nil {
				t.Fatal(err)
			}
			tr.Close()
			s.cable.set(true)
			waitFor(t, "the watchdog to undo", func() bool { return p.text() == start })
			s.cable.set(false)
			if _, err := e.Confirm(t.Context(), p.wan, nil); err == nil {
				t.Error("what was undone was confirmed")
			}
			if got := p.text(); got != start {
				t.Errorf("undone, it has\n%s\nbefore:\n%s", got, start)
			}
		})
	}
}
