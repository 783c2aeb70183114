package path_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"unbloat/internal/measure/path"
	"unbloat/internal/measure/phases"
	"unbloat/lab"
	"unbloat/testkit/labtest"
	"unbloat/unit"
)

// hostInLab says that a test runs in the guest, on a machine of the home, beside others:
// each leaves the home as it found it.
func hostInLab(t *testing.T) bool {
	t.Helper()
	o := hostAlone()
	o.With = "TestLabPathUpload|TestLabPathDownload|TestLabPathInterrupted|TestLabPathHome|TestLabPathRateLimited|TestLabPathUnprivileged|TestLabPathIPv6|TestLabPathMtr|TestLabPathMtrLoaded|TestLabPathOtherServers"
	if !labtest.Inside(t, o) {
		return false
	}
	t.Cleanup(func() { time.Sleep(5 * time.Second) }) // virtual: for the queues to drain
	return true
}

func hostAlone() labtest.Options {
	return labtest.Options{Node: lab.Host(1), Server: true, Scenario: labtest.HomeAt(10*unit.MbitPerSecond, 2*unit.MbitPerSecond)}
}

// trace runs `unbloat path --json` and returns its result.
func trace(t *testing.T, change func(*exec.Cmd), args ...string) *path.Result {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), labtest.Unbloat(), append([]string{"path", "--json", "--quiet"}, args...)...)
	if change != nil {
		change(cmd)
	}
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %v: %s%s", cmd.Args, err, errs.String(), out.String())
	}
	var r path.Result
	if err := json.Unmarshal(out.Bytes(), &r); err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	_ = path.Write(&text, &r, 0) // into memory
	t.Logf("%v, by %s:\n%s", args, r.Method, text.String())
	return &r
}

// wake waits until the home's interfaces are up and neighbours are known.
func wake(t *testing.T, address string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), "ping", "-c", "2", "-w", "20", address).CombinedOutput(); err != nil {
		t.Fatalf("ping %s: %v: %s", address, err, out)
	}
}

// way checks that the path is that of the lab's home, and that every probe was
// answered.
func way(t *testing.T, r *path.Result, addresses ...string) {
	t.Helper()
	if !r.Valid || !r.Reached || len(r.Hops) != len(addresses) {
		t.Fatalf("valid %v, reached %v, %d hops", r.Valid, r.Reached, len(r.Hops))
	}
	for i, h := range r.Hops {
		if h.Address != addresses[i] || h.Destination != (i == len(addresses)-1) || len(h.Others) > 0 {
			t.Errorf("hop %d is %s %v, destination %v; want %s", h.Hop, h.Address, h.Others, h.Destination, addresses[i])
		}
		if h.Idle.Sent != 10 || h.Idle.Received != 10 {
			t.Errorf("hop %d: %d of %d answered when idle", h.Hop, h.Idle.Received, h.Idle.Sent)
		}
	}
}

func home4() []string { return []string{"10.1.0.1", "10.2.0.1", lab.ServerAddr} }

// near checks idle medians, in ms: the lab's provider adds 10 ms in each
// direction, and delays its own answers by one of them.
func near(t *testing.T, r *path.Result, want ...float64) {
	t.Helper()
	for i, h := range r.Hops {
		if got := h.Idle.RTTMs.P50; math.Abs(got-want[i]) > 0.2 {
			t.Errorf("hop %d: median %v ms, want %v", h.Hop, got, want[i])
		}
	}
}

// With an upload the increase begins at the uplink: the router answers as
// before, the provider's router and the server later, by the modem's queue.
func TestLabPathUpload(t *testing.T) {
	if !hostInLab(t) {
		return
	}
	r := trace(t, nil, lab.ServerAddr, "--load", lab.Server(), "--direction", "up")
	way(t, r, home4()...)
	near(t, r, 0, 10, 20)
	loaded(t, r, 960)
	if up := r.Load.GoodputUpBps; up < 1.8e6 || up > 2e6 || r.Load.GoodputDownBps != 0 {
		t.Errorf("the load moved %v up, %v down", up, r.Load.GoodputDownBps)
	}
}

// A download fills the queue of the same link in the other direction.
func TestLabPathDownload(t *testing.T) {
	if !hostInLab(t) {
		return
	}
	r := trace(t, nil, lab.ServerAddr, "--load", lab.Server(), "--direction", "down")
	way(t, r, home4()...)
	loaded(t, r, 667)
}

// loaded checks that the uplink is named, and that the increase is between half
// of the queue and all of it, in ms.
func loaded(t *testing.T, r *path.Result, queue float64) {
	t.Helper()
	b := r.Begins
	if b == nil || b.Hop != 2 || b.After != 1 || b.Place != path.Uplink || b.Unconfirmed {
		t.Fatalf("begins %+v", b)
	}
	if b.IncreaseMs < queue/2 || b.IncreaseMs > queue*1.02 {
		t.Errorf("increase %v ms; the queue holds %v", b.IncreaseMs, queue)
	}
	if i := r.Hops[0].Increase; i.P95 > 1 {
		t.Errorf("the router is slower by %v", i.P95)
	}
	for _, h := range r.Hops[1:] {
		if h.Increase.P50 < queue/2 || h.Increase.P95 > queue*1.02 || h.Loaded.Sent != 20 {
			t.Errorf("hop %d: %+v of %d probes", h.Hop, h.Increase, h.Loaded.Sent)
		}
	}
}

// Ctrl-C in the loaded phase ends the load, and prints what was measured until
// then.
func TestLabPathInterrupted(t *testing.T) {
	if !hostInLab(t) {
		return
	}
	r := trace(t, func(c *exec.Cmd) {
		go func() {
			time.Sleep(25 * time.Second) // virtual: ten seconds into the loaded phase
			_ = c.Process.Signal(os.Interrupt)
		}()
	}, lab.ServerAddr, "--load", lab.Server(), "--direction", "up")
	if b := r.Begins; b == nil || b.Hop != 2 || r.Load.GoodputUpBps < 1.6e6 || len(r.Notes) == 0 || !strings.Contains(r.Notes[0], "Interrupted in the upload phase") {
		t.Errorf("begins %+v, load %+v, notes %q", b, r.Load, r.Notes)
	}
	if n := r.Hops[2].Loaded.Sent; n < 8 || n > 12 {
		t.Errorf("%d probes before the interruption", n)
	}
}

// A slow Wi-Fi between the router and the home is distinguished from a slow
// line. Here it is a queue on the router towards the home.
func TestLabPathHome(t *testing.T) {
	if !hostInLab(t) {
		return
	}
	run(t.Context(), t, lab.NodeRouter, "tc", "qdisc", "add", "dev", lab.RouterLAN, "root", "tbf", "rate", "4mbit", "burst", "1600", "limit", "120kb")
	defer run(t.Context(), t, lab.NodeRouter, "tc", "qdisc", "del", "dev", lab.RouterLAN, "root")
	r := trace(t, nil, lab.ServerAddr, "--load", lab.Server(), "--direction", "down")
	way(t, r, home4()...)
	if b := r.Begins; b == nil || b.Hop != 1 || b.After != 0 || b.Place != path.Home || b.IncreaseMs < 120 || b.IncreaseMs > 250 {
		t.Errorf("begins %+v", b)
	}
}

// A queue in the provider's network is distinguished too.
func TestLabPathProvider(t *testing.T) {
	if !labtest.Inside(t, hostAlone()) {
		return
	}
	run(t.Context(), t, lab.NodeISP, "tc", "qdisc", "replace", "dev", "net", "root", "tbf", "rate", "1200kbit", "burst", "1600", "limit", "60kb")
	r := trace(t, nil, lab.ServerAddr, "--load", lab.Server(), "--direction", "up")
	way(t, r, home4()...)
	near(t, r, 0, 10, 10)
	if b := r.Begins; b == nil || b.Hop != 3 || b.After != 2 || b.Place != path.Provider || b.IncreaseMs < 200 || b.IncreaseMs > 410 {
		t.Errorf("begins %+v", b)
	}
}

// A router that answers only once in three seconds shows no loss.
func TestLabPathRateLimited(t *testing.T) {
	if !hostInLab(t) {
		return
	}
	run(t.Context(), t, lab.NodeISP, "sh", "-c", "cp /proc/sys/net/ipv4/icmp_ratelimit /tmp/icmp_ratelimit; echo 3000 > /proc/sys/net/ipv4/icmp_ratelimit")
	defer run(t.Context(), t, lab.NodeISP, "sh", "-c", "cat /tmp/icmp_ratelimit > /proc/sys/net/ipv4/icmp_ratelimit")
	r := trace(t, nil, lab.ServerAddr, "--idle", "20")
	if f := r.Hops[1].Idle; f.Sent != 20 || f.Received == 20 || f.Received < 5 || r.Hops[2].Idle.Loss != 0 {
		t.Errorf("%d of %d answered", f.Received, f.Sent)
	}
	if len(r.Notes) != 1 || !strings.Contains(r.Notes[0], "Hop 2 does not answer every probe") {
		t.Errorf("notes %q", r.Notes)
	}
}

// On the router itself the path has no hop in the home, though its line has private
// addresses here.
func TestLabPathRouter(t *testing.T) {
	if !labtest.Inside(t, labtest.Options{Node: lab.NodeRouter, Server: true, Scenario: labtest.HomeAt(10*unit.MbitPerSecond, 2*unit.MbitPerSecond)}) {
		return
	}
	r := trace(t, nil, lab.ServerAddr, "--load", lab.Server())
	way(t, r, home4()[1:]...)
	if b := r.Begins; b == nil || b.Hop != 1 || b.Place != path.Uplink {
		t.Errorf("begins %+v", b)
	}
}

// No privileges are needed: another user's probes use ping sockets where the
// system allows them, otherwise the error queue of UDP sockets.
func TestLabPathUnprivileged(t *testing.T) {
	if !hostInLab(t) {
		return
	}
	wake(t, lab.ServerAddr)
	binary := copyForAll(t)
	setpriv, err := exec.LookPath("setpriv")
	if err != nil {
		t.Skip("SKIPPED: setpriv is missing; apt-get install util-linux")
	}
	nobody := func(c *exec.Cmd) {
		c.Path = setpriv
		c.Args = append([]string{setpriv, "--reuid=65534", "--regid=65534", "--clear-groups", binary}, c.Args[1:]...)
	}
	for _, c := range []struct{ groups, method string }{{"0 2147483647", "icmp"}, {"1 0", "udp"}} {
		if err := os.WriteFile("/proc/sys/net/ipv4/ping_group_range", []byte(c.groups), 0o644); err != nil {
			t.Fatal(err)
		}
		r := trace(t, nobody, lab.ServerAddr)
		if r.Method != c.method {
			t.Errorf("with ping_group_range %s: by %s", c.groups, r.Method)
		}
		way(t, r, home4()...)
		near(t, r, 0, 10, 20)
	}
	cmd := exec.CommandContext(t.Context(), binary, "path", "--way", "raw", lab.ServerAddr)
	nobody(cmd)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 5 || !strings.Contains(string(out), "CAP_NET_RAW") {
		t.Errorf("raw without privilege: %v: %s", err, out)
	}
}

// copyForAll copies the binary to a place where another user may run it.
func copyForAll(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile(labtest.Unbloat())
	if err != nil {
		t.Fatal(err)
	}
	to := filepath.Join(os.TempDir(), "unbloat-for-all")
	if err := os.WriteFile(to, b, 0o755); err != nil {
		t.Fatal(err)
	}
	return to
}

// The same with IPv6, with each kind of socket.
func TestLabPathIPv6(t *testing.T) {
	if !hostInLab(t) {
		return
	}
	for node, lines := range map[string][]string{
		lab.Host(1):    {"addr add 2001:db8:1::2/64 dev eth0 nodad", "route add default via 2001:db8:1::1"},
		lab.NodeRouter: {"addr add 2001:db8:1::1/64 dev lan nodad", "addr add 2001:db8:2::2/64 dev wan nodad", "route add default via 2001:db8:2::1", "neigh replace 2001:db8:2::1 lladdr 02:00:00:00:01:02 dev wan nud permanent"},
		lab.NodeISP:    {"addr add 2001:db8:2::1/64 dev home nodad", "addr add 2001:db8:3::1/64 dev net nodad", "route add 2001:db8:1::/64 via 2001:db8:2::2", "neigh replace 2001:db8:2::2 lladdr 02:00:00:00:00:01 dev home nud permanent", "neigh replace 2001:db8:3::2 lladdr 02:00:00:00:02:02 dev net nud permanent"},
		lab.NodeServer: {"addr add 2001:db8:3::2/64 dev eth0 nodad", "route add default via 2001:db8:3::1", "neigh replace 2001:db8:3::1 lladdr 02:00:00:00:02:01 dev eth0 nud permanent"},
	} {
		run(t.Context(), t, node, "sh", "-c", "echo 1 > /proc/sys/net/ipv6/conf/all/forwarding")
		for _, l := range lines {
			run(t.Context(), t, node, append([]string{"ip", "-6"}, strings.Fields(l)...)...)
		}
	}
	if err := os.WriteFile("/proc/sys/net/ipv4/ping_group_range", []byte("0 2147483647"), 0o644); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.WriteFile("/proc/sys/net/ipv4/ping_group_range", []byte("1 0"), 0o644) }()
	wake(t, "2001:db8:3::2")
	for _, by := range []string{"icmp", "raw", "udp"} {
		r := trace(t, nil, "2001:db8:3::2", "--way", by)
		way(t, r, "2001:db8:1::1", "2001:db8:2::1", "2001:db8:3::2")
		near(t, r, 0, 10, 20)
	}
}

func run(ctx context.Context, t *testing.T, node string, argv ...string) {
	t.Helper()
	if out, err := labtest.In(ctx, node, argv...).CombinedOutput(); err != nil {
		t.Fatalf("%v in %s: %v: %s", argv, node, err, out)
	}
}

// Debian's mtr measures the same on the idle line: loss, sent, average, best
// and worst within 1 ms or 5 %.
func TestLabPathMtr(t *testing.T) {
	if !hostInLab(t) {
		return
	}
	mtr, err := exec.LookPath("mtr")
	if err != nil {
		t.Skip("SKIPPED: mtr is missing; apt-get install mtr-tiny")
	}
	wake(t, lab.ServerAddr)
	for _, by := range []string{"raw", "udp"} {
		ours := trace(t, nil, lab.ServerAddr, "--way", by)
		args := []string{"-r", "-c", "10", "-n", "-j", lab.ServerAddr}
		if by == "udp" {
			args = append([]string{"-u"}, args...)
		}
		out, err := exec.CommandContext(t.Context(), mtr, args...).Output()
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("mtr %v: %s", args, out)
		compare(t, ours, out)
	}
}

// It does under load too. The two cannot probe at the same time, since routers
// limit their answers, so each measures its own twenty seconds of a queue that
// grows and shrinks: the averages and the worst agree within 10 %, and what a full
// queue drops of twenty probes within two.
func TestLabPathMtrLoaded(t *testing.T) {
	if !hostInLab(t) {
		return
	}
	mtr, err := exec.LookPath("mtr")
	if err != nil {
		t.Skip("SKIPPED: mtr is missing; apt-get install mtr-tiny")
	}
	client, err := phases.Dial(t.Context(), lab.Server(), phases.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if _, err := client.StartFlows(t.Context(), phases.FlowSpec{Dir: phases.Up, Flows: 4}); err != nil {
		t.Fatal(err)
	}
	time.Sleep(5 * time.Second) // virtual time, until the queue is full
	ours := trace(t, nil, lab.ServerAddr, "--idle", "20")
	out, err := exec.CommandContext(t.Context(), mtr, "-r", "-c", "20", "-n", "-j", lab.ServerAddr).Output()
	if err != nil {
		t.Fatal(err)
	}
	for i, m := range hubs(t, ours, out) {
		f := ours.Hops[i].Idle
		t.Logf("hop %d: avg %.1f ms, mtr %.1f; best %.1f, %.1f; worst %.1f, %.1f", i+1, f.AvgMs, m.Avg, f.BestMs, m.Best, f.WorstMs, m.Wrst)
		if math.Abs(f.AvgMs-m.Avg) > max(1, 0.1*m.Avg) || math.Abs(f.WorstMs-m.Wrst) > max(1, 0.1*m.Wrst) || math.Abs(100*f.Loss-m.Loss) > 10 {
			t.Errorf("hop %d: %+v, mtr %+v", i+1, f, m)
		}
	}
}

// A hub is a hop as mtr reports it.
type hub struct {
	Count                        json.Number `json:"count"`
	Host                         string      `json:"host"`
	Loss                         float64     `json:"Loss%"`
	Snt                          int
	Last, Avg, Best, Wrst, StDev float64
}

// hubs reads mtr's JSON, which must have the same hops as ours.
func hubs(t *testing.T, ours *path.Result, out []byte) []hub {
	t.Helper()
	var theirs struct{ Report struct{ Hubs []hub } }
	if err := json.Unmarshal(out, &theirs); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if len(theirs.Report.Hubs) != len(ours.Hops) {
		t.Fatalf("%d hops, mtr sees %d", len(ours.Hops), len(theirs.Report.Hubs))
	}
	return theirs.Report.Hubs
}

// compare compares a trace with mtr's JSON.
func compare(t *testing.T, ours *path.Result, out []byte) {
	t.Helper()
	for i, m := range hubs(t, ours, out) {
		h := ours.Hops[i]
		f := h.Idle
		if h.Address != m.Host || fmt.Sprint(h.Hop) != m.Count.String() || f.Sent != m.Snt || 100*f.Loss != m.Loss {
			t.Errorf("hop %d: %s %d sent %v lost; mtr: %s %s %d %v %%", h.Hop, h.Address, f.Sent, f.Loss, m.Count, m.Host, m.Snt, m.Loss)
		}
		for _, v := range []struct {
			name         string
			ours, theirs float64
		}{{"last", f.LastMs, m.Last}, {"avg", f.AvgMs, m.Avg}, {"best", f.BestMs, m.Best}, {"worst", f.WorstMs, m.Wrst}, {"stdev", f.StDevMs, m.StDev}} {
			if math.Abs(v.ours-v.theirs) > max(1, 0.05*v.theirs) {
				t.Errorf("hop %d: %s %v ms, mtr %v", h.Hop, v.name, v.ours, v.theirs)
			}
		}
	}
}
