package daemon_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"unbloat/internal/keep/daemon"
	"unbloat/internal/keep/supervise"
	"unbloat/lab"
	"unbloat/testkit/await"
	"unbloat/testkit/labtest"
)

// The lab's tests run the program itself as a daemon on the router of an emulated
// home, with the kernel's own traffic control and nftables.

// houseInLab says that a test runs in the guest, which it has with others: a house
// leaves the router as it found it.
func houseInLab(t *testing.T) bool {
	t.Helper()
	return labtest.Inside(t, labtest.Options{With: "TestKeepsInLab|TestLosesNothingInLab|TestInterfaceComesBackInLab|TestContestInLab|TestCommandsInLab|" +
		"TestTwoWANsInLab|TestKilledInLab|TestFullDiskInLab|TestSocketInLab"})
}

// A house is a router with a daemon.
type house struct {
	t      *testing.T
	dir    string
	config string
	cmd    *exec.Cmd
	said   *bytes.Buffer
	notify *net.UnixConn
	env    []string // of all commands

	manager []string // what the service manager adds for the daemon
}

func newHouse(t *testing.T, config string) *house {
	t.Helper()
	return newHouseIn(t, t.TempDir(), config)
}

// newHouseIn has the daemon's files in dir.
func newHouseIn(t *testing.T, dir, config string) *house {
	t.Helper()
	h := &house{t: t, dir: dir}
	h.config = filepath.Join(h.dir, "unbloat.toml")
	if err := os.WriteFile(h.config, []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	address := filepath.Join(h.dir, "notify")
	var err error
	if h.notify, err = net.ListenUnixgram("unixgram", &net.UnixAddr{Name: address, Net: "unixgram"}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.notify.Close() })
	h.env = append(os.Environ(), "UNBLOAT_STATE_DIR="+h.dir, "UNBLOAT_CONFIG=")
	h.manager = []string{"NOTIFY_SOCKET=" + address, "WATCHDOG_USEC=3000000"}
	t.Cleanup(func() { // after the daemon's end
		_ = exec.Command("sh", "-c", "tc qdisc del dev wan root; tc qdisc del dev wan clsact; tc qdisc del dev wan ingress; ip link del ifb4wan; nft flush ruleset").Run() // each if it is there
	})
	h.start()
	return h
}

// start starts the daemon and waits until it is ready.
func (h *house) start() {
	h.t.Helper()
	h.said = &bytes.Buffer{}
	h.cmd = exec.Command(cmp.Or(os.Getenv(routerProgram), labtest.Unbloat()), "daemon", "--config", h.config)
	h.cmd.Env, h.cmd.Stdout, h.cmd.Stderr = slices.Concat(h.env, h.manager), h.said, h.said
	if err := h.cmd.Start(); err != nil {
		h.t.Fatal(err)
	}
	cmd := h.cmd
	h.t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	h.hears("READY=1")
}

// hears waits until the daemon tells the service manager something.
func (h *house) hears(line string) string {
	h.t.Helper()
	b := make([]byte, 4096)
	end := time.Now().Add(20 * time.Second)
	_ = h.notify.SetReadDeadline(end)
	for {
		n, err := h.notify.Read(b)
		if err != nil {
			h.t.Fatalf("the daemon does not say %q: %v\n%s", line, err, h.said)
		}
		if strings.Contains(string(b[:n]), line) {
			return string(b[:n])
		}
	}
}

func (h *house) end(signal syscall.Signal) {
	h.t.Helper()
	if err := h.cmd.Process.Signal(signal); err != nil {
		h.t.Fatal(err)
	}
	err := h.cmd.Wait()
	if signal == syscall.SIGTERM && err != nil {
		h.t.Fatalf("it ended with %v\n%s", err, h.said)
	}
}

// status asks the daemon.
func (h *house) status() daemon.Status {
	h.t.Helper()
	c, err := daemon.Dial(h.t.Context(), daemon.Socket(h.dir))
	if err != nil {
		h.t.Fatalf("%v\n%s", err, h.said)
	}
	defer c.Close()
	var s daemon.Status
	if err := c.Call(h.t.Context(), daemon.MethodStatus, "", "", nil, &s); err != nil {
		h.t.Fatal(err)
	}
	return s
}

// becomes waits until the first WAN is in a state.
func (h *house) becomes(s supervise.State) {
	h.t.Helper()
	for start := time.Now(); h.status().WANs[0].State != s; time.Sleep(50 * time.Millisecond) {
		if time.Since(start) > 10*time.Second {
			h.t.Fatalf("it does not become %s: %+v\n%s", s, h.status(), h.said)
		}
	}
}

// unbloat runs a command on the router.
func (h *house) unbloat(want int, args ...string) string {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(h.t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, labtest.Unbloat(), args...)
	cmd.Env = h.env
	out, err := cmd.CombinedOutput()
	if code := cmd.ProcessState.ExitCode(); code != want {
		h.t.Fatalf("unbloat %q: exit %d (%v), want %d\n%s\nthe daemon says\n%s", args, code, err, want, out, h.said)
	}
	return string(out)
}

func sh(t *testing.T, line string) string {
	t.Helper()
	out, err := exec.Command("sh", "-c", line).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", line, err, out)
	}
	return string(out)
}

// actionIndex is the number that the kernel gives a filter's action. A filter that is put
// back while the old one's actions are still being freed has another.
var actionIndex = regexp.MustCompile(`\bindex \d+\b`)

// shaped is what is shaped on devices, without what counts.
func shaped(devices ...string) string {
	var ask, all strings.Builder
	for _, d := range devices {
		fmt.Fprintf(&ask, "qdisc show dev %[1]s\nclass show dev %[1]s\nfilter show dev %[1]s parent ffff:\n", d)
	}
	tc := exec.Command("tc", "-force", "-batch", "-") // a device may be gone
	tc.Stdin = strings.NewReader(ask.String())
	out, _ := tc.CombinedOutput()
	for line := range strings.Lines(string(out)) {
		if !strings.HasPrefix(line, "class cake ") { // a flow of this moment
			all.WriteString(actionIndex.ReplaceAllString(line, "index N"))
		}
	}
	out, _ = exec.Command("nft", "-t", "list", "ruleset").CombinedOutput()
	tables := strings.SplitAfter(string(out), "\n}\n") // in the order in which they were made
	slices.Sort(tables)
	return all.String() + strings.Join(tables, "")
}

// within waits until what is shaped is as wanted, and fails if it takes longer than
// a second.
func (h *house) within(what, want string, devices ...string) {
	h.t.Helper()
	start := time.Now()
	for shaped(devices...) != want {
		if time.Since(start) > time.Second {
			h.t.Fatalf("%s: after %v it is\n%s\nwant\n%s\nthe daemon says\n%s", what, time.Since(start), shaped(devices...), want, h.said)
		}
		time.Sleep(50 * time.Millisecond)
	}
	h.t.Logf("%s: whole again after %v", what, time.Since(start).Round(time.Millisecond))
	// The kernel's state is whole before the daemon has verified it.
	await.Until(h.t, 10*time.Second, "the daemon to read back what it has done", func() bool { return len(h.journals()) == 0 })
}

// journals are the files of changes that have not ended.
func (h *house) journals() []string {
	h.t.Helper()
	left, err := filepath.Glob(filepath.Join(h.dir, "*.journal.json"))
	if err != nil {
		h.t.Fatal(err)
	}
	return left
}

const oneWAN = `[[wan]]
interface = "wan"   # the modem
lan = "lan"
down = "30 Mbit/s"
up = "5 Mbit/s"
`

// withRule is one whose table of nftables is beside the BPF programs.
const withRule = oneWAN + "last = [\"10.1.0.9\"]\n"

// ours are the devices of the lab's router that a plan touches.
func ours() []string { return []string{"wan", "ifb4wan"} }

// routerProgram names the program of routers in the guest, for TestMemoryInLab.
const routerProgram = "UNBLOAT_TEST_ROUTER_PROGRAM"

// TestMemoryInLab: the daemon of the program for routers takes at most 20 MB while it
// keeps a WAN, read-only pages of the program and all. The whole program has the
// laboratory in it, and some 20 MB. By day it has inlining, as cmd/unbloat's
// TestBuildForRouters compiles it: that makes it larger.
func TestMemoryInLab(t *testing.T) {
	var o labtest.Options
	if os.Getenv(routerProgram) == "" {
		labtest.NeedKernel(t)
		labtest.Tracks(t)
		root := filepath.Join("..", "..", "..")
		tags, err := exec.Command(filepath.Join(root, "scripts", "router"), "tags").Output()
		if err != nil {
			t.Fatal(err)
		}
		program := filepath.Join(t.TempDir(), "unbloat")
		args := []string{"build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-tags", strings.TrimSpace(string(tags)), "-o", program}
		if labtest.Long() {
			args = append(args, "-gcflags=all=-l")
		}
		build := exec.Command("go", append(args, "./cmd/unbloat")...)
		build.Dir, build.Env = root, append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		o.Env = []string{routerProgram + "=" + program}
	}
	if !labtest.Inside(t, o) {
		return
	}
	// What it starts has the pages alone that it touches, as on a router.
	if err := unix.Prctl(unix.PR_SET_THP_DISABLE, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	h := newHouse(t, withRule)
	want := shaped(ours()...)
	if !strings.Contains(want, "cake") || !strings.Contains(want, "table inet unbloat") {
		t.Fatalf("nothing is shaped:\n%s", want)
	}
	sh(t, "tc qdisc del dev wan root")
	h.within("the queue is deleted", want, ours()...)
	rss := sh(t, fmt.Sprintf("grep -E 'VmRSS|RssAnon' /proc/%d/status", h.cmd.Process.Pid))
	t.Logf("memory: %s", strings.Join(strings.Fields(rss), " "))
	kB := 0
	if _, err := fmt.Sscanf(rss, "VmRSS: %d", &kB); err != nil || kB > 20_000 {
		t.Errorf("it takes %d kB, more than 20 MB: %v", kB, err)
	}
	h.end(syscall.SIGTERM)
}

// TestKeepsInLab: whatever takes the shaping away, it is whole again within a second;
// what is right is not touched.
func TestKeepsInLab(t *testing.T) {
	if !houseInLab(t) {
		return
	}
	h := newHouse(t, withRule)
	if s := h.status().WANs[0]; s.State != supervise.InPlace || s.Mends != 0 && s.Mends != 1 {
		t.Fatalf("%+v\n%s", s, h.said)
	}
	want := shaped(ours()...)
	if !strings.Contains(want, "cake") || !strings.Contains(want, "table inet unbloat") {
		t.Fatalf("nothing is shaped:\n%s", want)
	}
	damages := []string{
		"tc qdisc del dev wan ingress || tc qdisc del dev wan clsact",
		"tc qdisc change dev wan root handle b10a: cake bandwidth 3mbit",
		"nft delete table inet unbloat_wan",
		"nft flush ruleset; tc qdisc del dev wan root; ip link del ifb4wan",
	}
	if labtest.Long() { // each of what the last one does at once
		damages = append(damages, "tc qdisc del dev wan root", "ip link del ifb4wan", "nft flush ruleset")
	}
	for _, damage := range damages {
		mends := h.status().WANs[0].Mends
		sh(t, damage)
		h.within(damage, want, ours()...)
		await.Until(t, 10*time.Second, "the daemon to have mended", func() bool { return h.status().WANs[0].Mends > mends })
		h.becomes(supervise.InPlace)
	}
	before := h.status().WANs[0]
	sh(t, "ip addr add 192.0.2.77/24 dev wan; ip addr del 192.0.2.77/24 dev wan; ip route add 198.51.100.0/24 dev lan; ip route del 198.51.100.0/24; ip link add other type ifb; ip link del other")
	time.Sleep(time.Second)
	if after := h.status().WANs[0]; after.Mends != before.Mends || shaped(ours()...) != want {
		t.Errorf("addresses, routes and other links made it mend: %+v, before %+v\n%s", after, before, h.said)
	}
	h.hears("WATCHDOG=1")

	// It dies, and the next one finds all as it should be.
	counters := sh(t, "tc -s qdisc show dev wan")
	h.end(syscall.SIGKILL)
	time.Sleep(time.Second)
	if got := shaped(ours()...); got != want {
		t.Errorf("it was killed, and now it is\n%s", got)
	}
	h.start()
	if s := h.status().WANs[0]; s.State != supervise.InPlace || s.Mends != 0 {
		t.Errorf("adopted: %+v", s)
	}
	if !strings.Contains(h.said.String(), "nothing was changed") {
		t.Errorf("it says %s", h.said)
	}
	sent := func(s string) string {
		_, after, _ := strings.Cut(s, "Sent ")
		b, _, _ := strings.Cut(after, " ")
		return b
	}
	if now := sh(t, "tc -s qdisc show dev wan"); len(sent(now)) < len(sent(counters)) {
		t.Errorf("the queue began anew: %s, before %s", now, counters)
	}
	h.end(syscall.SIGTERM)
	if got := shaped(ours()...); got != want {
		t.Errorf("it ended, and now it is\n%s", got)
	}
	if err := os.WriteFile(h.config, []byte("on_stop = \"revert\"\n"+withRule), 0o644); err != nil {
		t.Fatal(err)
	}
	h.start()
	h.end(syscall.SIGTERM)
	if got := shaped(ours()...); strings.Contains(got, "cake") || strings.Contains(got, "unbloat") {
		t.Errorf("it ended with on_stop = revert, and now it is\n%s", got)
	}
}

// TestLosesNothingInLab: what changes beside the shaping, a table of rules that is
// deleted and comes back, a reload, and a daemon that is killed and starts again: no
// packet of a machine behind the router is lost.
func TestLosesNothingInLab(t *testing.T) {
	if !houseInLab(t) {
		return
	}
	h := newHouse(t, withRule)
	want := shaped(ours()...)
	handle := func() string {
		return sh(t, "tc qdisc show dev wan; tc qdisc show dev ifb4wan; ip -o link show ifb4wan")
	}
	is := handle()
	const packets = 500 // each 10 ms
	ping := labtest.In(t.Context(), lab.Host(1), "ping", "-q", "-i", "0.01", "-c", fmt.Sprint(packets), "-W", "2", lab.ServerAddr)
	var out bytes.Buffer
	ping.Stdout, ping.Stderr = &out, &out
	if err := ping.Start(); err != nil {
		t.Fatal(err)
	}
	rounds := 1
	if labtest.Long() {
		rounds = 2
	}
	for range rounds {
		sh(t, "ip addr add 192.0.2.77/24 dev wan; ip addr del 192.0.2.77/24 dev wan; ip route add 198.51.100.0/24 dev lan; ip route del 198.51.100.0/24; ip link add other type ifb; ip link del other")
		sh(t, "nft delete table inet unbloat_wan")
		h.within("the table is deleted", want, ours()...)
		if err := h.cmd.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		h.hears("RELOADING=1")
		h.hears("READY=1")
		h.end(syscall.SIGKILL)
		h.start()
		h.within("it was killed", want, ours()...)
	}
	_ = ping.Wait() // what it says is checked
	if !strings.Contains(out.String(), fmt.Sprintf("%d packets transmitted, %d received", packets, packets)) {
		t.Errorf("ping says\n%s", out.String())
	}
	if now := handle(); now != is {
		t.Errorf("a queue or an interface was made anew: it is\n%s\nit was\n%s", now, is)
	}
}

// TestInterfaceComesBackInLab: an interface that goes and comes is shaped again
// within a second; so is one that appears only after the start.
func TestInterfaceComesBackInLab(t *testing.T) {
	if !houseInLab(t) {
		return
	}
	make := func() { sh(t, "ip link add ppp9 type ifb; ip link set ppp9 up") }
	t.Cleanup(func() { sh(t, "ip link del ppp9") })
	h := newHouse(t, "[[wan]]\ninterface = \"ppp9\"\nup = \"5 Mbit/s\"\n")
	if s := h.status().WANs[0]; s.State != supervise.Waiting || !strings.Contains(s.Why, "ppp9") {
		t.Fatalf("%+v", s)
	}
	await := func(what string) {
		t.Helper()
		for start := time.Now(); !strings.Contains(shaped("ppp9"), "cake"); time.Sleep(50 * time.Millisecond) {
			if time.Since(start) > time.Second {
				t.Fatalf("%s: after a second it is %s\n%s", what, shaped("ppp9"), h.said)
			}
		}
	}
	make()
	await("it appeared")
	times := 1
	if labtest.Long() {
		times = 3
	}
	for range times {
		sh(t, "ip link del ppp9")
		h.becomes(supervise.Waiting)
		make()
		await("it came back")
	}
	sh(t, "ip link set ppp9 down; ip link set ppp9 name ppp8; ip link set ppp8 mtu 1400; ip link set ppp8 name ppp9; ip link set ppp9 up")
	await("it was renamed")
}

// TestContestInLab: a program that puts its own shaper there again and again is
// left alone after the third time, and the daemon says so; doctor and status name
// it, and apply --again takes the WAN back.
func TestContestInLab(t *testing.T) {
	if !houseInLab(t) {
		return
	}
	h := newHouse(t, oneWAN)
	want := shaped(ours()...)
	// The kernel says which process asked; what it is called is read while it lives.
	const takeover = "(echo qdisc replace dev wan root tbf rate 3mbit burst 5000 limit 30000; sleep 0.2) | tc -batch -"
	for range supervise.MostTakeovers {
		time.Sleep(time.Second) // or the change counts as the daemon's own
		sh(t, takeover)
		h.within("a foreign shaper", want, ours()...)
	}
	sh(t, takeover)
	h.becomes(supervise.Contested)
	if !strings.Contains(sh(t, "tc qdisc show dev wan"), "tbf") {
		t.Error("it fights on")
	}
	if out := h.unbloat(1, "status"); !strings.Contains(out, "put its own shaper there 3 times") || !strings.Contains(out, "tc, started by sh (process ") {
		t.Errorf("status says %s", out)
	}
	if out := h.unbloat(5, "doctor", "--wan", "wan", "--lan", "lan"); !strings.Contains(out, "stop the other program") {
		t.Errorf("doctor says %s", out)
	}
	h.unbloat(0, "apply", "--again", "--yes")
	if got := shaped(ours()...); got != want {
		t.Errorf("it is\n%s", got)
	}
}

// TestCommandsInLab: apply, confirm, revert and apply again go through the daemon.
func TestCommandsInLab(t *testing.T) {
	if !houseInLab(t) {
		return
	}
	h := newHouse(t, oneWAN)
	start := shaped(ours()...)
	h.unbloat(0, "apply", "--shape-down", "20mbit", "--shape-up", "4mbit", "--wan", "wan", "--lan", "lan", "--confirm", "2s")
	h.becomes(supervise.Busy) // with the look that follows the command's end
	if shaped(ours()...) == start {
		t.Error("nothing was applied")
	}
	time.Sleep(3 * time.Second) // the watchdog takes it back
	h.within("nobody confirmed", start, ours()...)
	h.unbloat(0, "apply", "--shape-down", "20mbit", "--shape-up", "4mbit", "--wan", "wan", "--lan", "lan")
	h.unbloat(0, "confirm")
	text, _ := os.ReadFile(h.config)
	if !strings.Contains(string(text), `shape_down = "20 Mbit/s"`) || !strings.Contains(string(text), "# the modem") {
		t.Errorf("the configuration is\n%s", text)
	}
	kept := shaped(ours()...)
	h.hears("STATUS=wan is kept at 20 Mbit/s down and 4 Mbit/s up")
	sh(t, "tc qdisc del dev wan root")
	h.within("what was kept", kept, ours()...)
	if out := h.unbloat(0, "revert"); !strings.Contains(out, "wan is off") {
		t.Errorf("revert says %s", out)
	}
	for restarted := range 2 {
		time.Sleep(time.Second)
		if got := shaped(ours()...); strings.Contains(got, "cake") || h.status().WANs[0].State != supervise.Suspended {
			t.Errorf("it is off, and %+v\n%s", h.status(), got)
		}
		if restarted == 0 {
			h.end(syscall.SIGTERM)
			h.start()
		}
	}
	h.unbloat(0, "apply", "--again", "--yes")
	h.within("it is on", kept, ours()...)

	// A command that works on the WAN for long has the turn; another has to wait.
	c, err := daemon.Dial(t.Context(), daemon.Socket(h.dir))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Call(t.Context(), daemon.MethodTurn, "", "wan", daemon.TurnParams{For: "tune"}, nil); err != nil {
		t.Fatal(err)
	}
	sh(t, "tc qdisc del dev wan root")
	out := h.unbloat(5, "revert")
	time.Sleep(time.Second)
	if !strings.Contains(out, "`unbloat tune` is working on it") || strings.Contains(shaped("wan"), "cake") {
		t.Errorf("%s\n%s", out, shaped("wan"))
	}
	c.Close()
	h.within("the turn is over", kept, ours()...)

	// What it is asked to read again is valid, or changes nothing.
	reload := func(text string) {
		if err := os.WriteFile(h.config, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := h.cmd.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		if said := h.hears("RELOADING=1"); !strings.Contains(said, "MONOTONIC_USEC=") {
			t.Errorf("it says %q", said)
		}
		h.hears("READY=1")
	}
	reload("[[wan]]\ninterface = \"wan\"\nup = \"many\"\n")
	h.within("a bad configuration", kept, ours()...)
	if s := h.status(); !strings.Contains(s.Failure, "unbloat.toml:3: up") {
		t.Errorf("%+v", s)
	}
	reload(oneWAN)
	h.within("the first configuration", start, ours()...)
}

// TestTwoWANsInLab: two WANs are kept beside each other, each with its table of rules.
func TestTwoWANsInLab(t *testing.T) {
	if !houseInLab(t) {
		return
	}
	sh(t, "ip link add wan2 type ifb; ip link set wan2 up")
	t.Cleanup(func() { sh(t, "ip link del wan2") })
	h := newHouse(t, withRule+"[[wan]]\ninterface = \"wan2\"\nup = \"2 Mbit/s\"\nlast = [\"10.1.0.9\"]\n")
	devices := append(ours(), "wan2")
	want := shaped(devices...)
	if strings.Count(want, "cake b10a:") < 3 || strings.Count(want, "table inet unbloat_wan") != 2 {
		t.Fatalf("not both are shaped:\n%s\n%s", want, h.said)
	}
	damages := []string{"tc qdisc del dev wan root; ip link del wan2; ip link add wan2 type ifb; ip link set wan2 up", "nft delete table inet unbloat_wan2"}
	if labtest.Long() {
		damages = append(damages, "tc qdisc del dev wan root; tc qdisc del dev wan2 root", "nft flush ruleset")
	}
	for _, damage := range damages {
		sh(t, damage)
		h.within(damage, want, devices...)
	}
	h.unbloat(0, "revert", "--wan", "wan2")
	if got := shaped(devices...); strings.Contains(shaped("wan2"), "cake") || !strings.Contains(got, "table inet unbloat_wan {") || strings.Contains(got, "unbloat_wan2") {
		t.Errorf("the second is off: %s", got)
	}
}

// TestKilledInLab: the daemon is killed at random moments, some of them while it
// puts things back; the next one makes all as it should be.
func TestKilledInLab(t *testing.T) {
	if !houseInLab(t) {
		return
	}
	seed := labtest.Seed(t)
	t.Logf("UNBLOAT_SEED=%d", seed)
	random := rand.New(rand.NewPCG(seed, 16))
	h := newHouse(t, oneWAN)
	want := shaped(ours()...)
	damages := []string{"tc qdisc del dev wan root", "ip link del ifb4wan", "nft flush ruleset", "true"}
	kills := 2
	if labtest.Long() {
		kills = 30
	}
	for i := range kills {
		damage := damages[random.IntN(len(damages))]
		sh(t, damage)
		time.Sleep(time.Duration(random.IntN(300)) * time.Millisecond)
		h.end(syscall.SIGKILL)
		time.Sleep(time.Duration(random.IntN(500)) * time.Millisecond)
		h.start()
		h.within(fmt.Sprintf("killed %d times, after %s", i+1, damage), want, ours()...)
	}
	h.end(syscall.SIGTERM)
	for start := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		left := h.journals()
		if out, _ := exec.Command("pgrep", "-f", "watchdog.*"+h.dir).Output(); len(left) == 0 && len(out) == 0 {
			break
		} else if time.Since(start) > 5*time.Second {
			t.Fatalf("left: %q, watchdogs %s", left, out)
		}
	}
}

// TestFullDiskInLab: on a disk that is full, or read-only, the shaping stays. What can't
// be done without a journal is refused, and the daemon says why. Once there is room it
// goes on by itself.
func TestFullDiskInLab(t *testing.T) {
	if !houseInLab(t) {
		return
	}
	dir := t.TempDir()
	sh(t, "mount -t tmpfs -o size=512k,mode=700 none "+dir)
	t.Cleanup(func() { sh(t, "umount -l "+dir) })
	h := newHouseIn(t, dir, oneWAN)
	want := shaped(ours()...)
	if !strings.Contains(want, "cake") {
		t.Fatalf("nothing is shaped:\n%s", want)
	}
	const most = time.Minute // between two tries
	disks := []struct{ name, begins, says, ends string }{
		{"full", "! cat /dev/zero > " + dir + "/fill 2>&1", "no space left on device", "rm " + dir + "/fill"},
		{"read-only", "mount --bind " + dir + " " + dir + " && mount -o remount,bind,ro " + dir, "read-only file system", "umount " + dir},
	}
	if !labtest.Long() {
		disks = disks[:1]
	}
	for _, x := range disks {
		sh(t, x.begins)
		if out := h.unbloat(1, "apply", "--down", "20mbit", "--up", "4mbit", "--wan", "wan", "--lan", "lan", "--yes"); !strings.Contains(out, x.says) {
			t.Errorf("%s: apply says %s", x.name, out)
		}
		if got := shaped(ours()...); got != want {
			t.Errorf("%s: after apply it is\n%s", x.name, got)
		}
		sh(t, "tc qdisc del dev wan root")
		await.Until(t, most, "the daemon to say why it can't put the queue back", func() bool {
			s := h.status().WANs[0]
			return s.State != supervise.InPlace && strings.Contains(s.Why, x.says) && strings.Contains(h.said.String(), x.says)
		})
		sh(t, x.ends)
		start := time.Now()
		await.Until(t, most, "the queue to come back, where there is room again", func() bool {
			return h.status().WANs[0].State == supervise.InPlace && shaped(ours()...) == want
		})
		t.Logf("%s: whole again %v after it ended", x.name, time.Since(start).Round(time.Millisecond))
		h.becomes(supervise.InPlace)
	}
	h.unbloat(0, "revert")
	h.unbloat(0, "apply", "--again", "--yes")
	h.within("it is on", want, ours()...)
}

// TestSocketInLab: garbage, long lines and clients that neither speak nor listen do
// not keep others from an answer.
func TestSocketInLab(t *testing.T) {
	if !houseInLab(t) {
		return
	}
	h := newHouse(t, oneWAN)
	dial := func() net.Conn {
		c, err := net.Dial("unix", daemon.Socket(h.dir))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	answer := func(c net.Conn, line string) (r daemon.Response) {
		t.Helper()
		if _, err := c.Write([]byte(line)); err != nil && !errors.Is(err, syscall.EPIPE) {
			t.Fatal(err)
		}
		_ = c.SetReadDeadline(time.Now().Add(5 * time.Second))
		if err := json.NewDecoder(c).Decode(&r); err != nil {
			t.Fatalf("%.40q: %v", line, err)
		}
		return r
	}
	c := dial()
	for _, x := range []struct {
		line string
		code daemon.Code
	}{
		{"GET / HTTP/1.0\n", daemon.CodeRequest},
		{"[]\n", daemon.CodeRequest},
		{"{\"id\":1,\"method\":\"explode\"}\n", daemon.CodeMethod},
		{"{\"id\":\"x\",\"method\":\"status\",\"wan\":\"eth9\"}\n", daemon.CodeUnknownWAN},
		{"{\"id\":2,\"method\":\"apply\"}\n", daemon.CodeUsage},
		{"{\"id\":2,\"method\":\"apply\",\"params\":{\"plan\":{\"wan\":\"wan\",\"platform\":\"beos\"}}}\n", daemon.CodeUsage},
		{"{\"id\":2,\"method\":\"turn\",\"params\":{}}\n", daemon.CodeUsage},
	} {
		if r := answer(c, x.line); r.Error == nil || r.Error.Code != x.code {
			t.Errorf("%q is answered with %+v", x.line, r)
		}
	}
	if r := answer(c, "{\"id\":7,\"method\":\"status\"}\n"); string(r.ID) != "7" || r.Error != nil {
		t.Errorf("after garbage: %+v", r)
	}
	for range 25 { // they begin a line and never end it, or never read
		silent := dial()
		fmt.Fprint(silent, `{"id":`)
	}
	if r := answer(dial(), "{\"id\":8,\"method\":\"status\",\"wan\":\"wan\"}\n"); r.Error != nil {
		t.Errorf("beside silent clients: %+v", r)
	}
	long := dial()
	if r := answer(long, strings.Repeat("x", daemon.MostLine+8192)); r.Error == nil || r.Error.Code != daemon.CodeRequest {
		t.Errorf("a long line: %+v", r)
	}
	if info, err := os.Stat(daemon.Socket(h.dir)); err != nil || info.Mode().Perm() != 0o660 {
		t.Errorf("the socket is %v: %v", info.Mode(), err)
	}
	if out := h.unbloat(1, "daemon", "--config", h.config); !strings.Contains(out, "another one runs") {
		t.Errorf("a second daemon: %s", out)
	}
}
