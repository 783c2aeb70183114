package lab

import (
	"errors"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"unbloat/lab/scenario"
	"unbloat/unit"
)

// A case's fix becomes flags of `unbloat plan`. A setting without a flag is
// refused before a router is booted.
func TestFixArguments(t *testing.T) {
	off := false
	got, err := fixArguments(scenario.Line{RTT: 24 * time.Millisecond}, &scenario.Fix{
		AQM: "fq_codel", Up: 950 * unit.KbitPerSecond, Target: 15 * time.Millisecond, ECN: &off, Quantum: 300})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"--rtt", "24ms", "--aqm", "fq_codel", "--shape-up", "950 kbit/s", "--only", "up", "--target", "15ms", "--quantum", "300", "--ecn", "off"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	var refused *UnsupportedCaseError
	if _, err := fixArguments(scenario.Line{}, &scenario.Fix{Tins: "diffserv4"}); !errors.As(err, &refused) {
		t.Errorf("tins: %v, want a *UnsupportedCaseError", err)
	}
}

// What a router has gained or lost is reported line by line.
func TestDifferences(t *testing.T) {
	before, after := "a\nb\nb\nc\n", "c\na\nb\nd\n"
	if got, want := differences(before, after), []string{"+d", "-b"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if got := differences(before, before); len(got) != 0 {
		t.Errorf("of the same: %q", got)
	}
}

// Impossible requests are refused before anything starts, with the right type
// of error.
func TestRouterRefused(t *testing.T) {
	file := filepath.Join(t.TempDir(), "router.img")
	if err := os.WriteFile(file, make([]byte, 512), 0o600); err != nil {
		t.Fatal(err)
	}
	ok := Router{Image: file, Identity: file, Address: netip.MustParseAddr(DefaultRouterAddress)}
	empty := t.TempDir()
	t.Setenv("PATH", empty)
	for name, c := range map[string]struct {
		change   func(*Router)
		scenario scenario.Scenario
		want     any
	}{
		"IPv6":         {func(r *Router) { r.Address = netip.MustParseAddr("fd00::1") }, scenario.Scenario{}, new(*InputError)},
		"a machine's":  {func(r *Router) { r.Address = netip.MustParseAddr("192.168.1.101") }, scenario.Scenario{}, new(*InputError)},
		"provider's":   {func(r *Router) { r.Address = netip.MustParseAddr("10.3.0.1") }, scenario.Scenario{}, new(*InputError)},
		"no key":       {func(r *Router) { r.Identity += ".missing" }, scenario.Scenario{}, new(*InputError)},
		"hidden":       {func(r *Router) { r.Identity = "/run/key" }, scenario.Scenario{}, new(*InputError)},
		"no image":     {func(r *Router) { r.Image += ".missing" }, scenario.Scenario{}, new(*FileError)},
		"far machines": {func(*Router) {}, scenario.Scenario{Home: scenario.Home{Away: []time.Duration{0, time.Second}}}, new(*UnsupportedCaseError)},
		"echoes alone": {func(*Router) {}, scenario.Scenario{Line: scenario.Line{EchoOnly: true}}, new(*UnsupportedCaseError)},
		"without QEMU": {func(*Router) {}, scenario.Scenario{}, new(*MissingError)},
	} {
		r := ok
		c.change(&r)
		if err := r.check(&c.scenario); !errors.As(err, c.want) {
			t.Errorf("%s: %v (%T), want %T", name, err, err, c.want)
		}
	}
}

// A line whose queue drops what waits longest has that queue below its rate, as many
// packets as go with each rate that it has, and no timestamps if it answers none.
func TestHeadDropWiring(t *testing.T) {
	l := scenario.Line{Down: 50 * unit.MbitPerSecond, Up: 5 * unit.MbitPerSecond, HeadDrop: 30 * time.Millisecond, EchoOnly: true}
	s := &scenario.Scenario{Line: l, Loads: []scenario.Load{{Host: 1}}}
	var all strings.Builder
	for _, b := range append(wiring(s, Virtual, nil), retune(l, scenario.Change{Down: 25 * unit.MbitPerSecond, Exact: true}, Virtual, nil)) {
		all.WriteString(b.text())
	}
	for _, want := range []string{
		"qdisc add dev m0 parent 2:1 handle 1: tbf rate 50000000bit burst 1600b limit 123b\nqdisc add dev m0 parent 1:1 handle 3: pfifo_head_drop limit 123\n",
		"qdisc add dev m1 parent 1:1 handle 3: pfifo_head_drop limit 12\n",
		"filter add dev net egress protocol ip flower ip_proto icmp type 13 action drop\n",
		"qdisc change dev m0 parent 2:1 handle 1: tbf rate 25000000bit burst 1600b limit 61b\n",
		"qdisc change dev m1 parent 2:1 handle 1: tbf rate 8bit burst 1600b limit 10b\n",
	} {
		if !strings.Contains(all.String(), want) {
			t.Errorf("there is no %q in:\n%s", want, all.String())
		}
	}
}

// With a router's image the home has no node for the router, and its machines
// are in the router's own network.
func TestRouterWiring(t *testing.T) {
	s := &scenario.Scenario{Line: scenario.Line{Down: unit.MbitPerSecond, Up: unit.MbitPerSecond, BufferDown: 9 * unit.KB, BufferUp: 9 * unit.KB},
		Loads: []scenario.Load{{Host: 2}}}
	var all strings.Builder
	for _, b := range wiring(s, Realtime, &Router{Address: netip.MustParseAddr("172.16.5.1")}) {
		if b.node == NodeRouter {
			t.Errorf("the router is a node: %s", b.text())
		}
		all.WriteString(b.text())
	}
	for _, want := range []string{
		"link set dev lab-wan netns modem name m0 ", "link set dev lab-lan netns switch name p0 ",
		"link set dev lab-near netns isp name net ", "link set dev lab-far netns server name eth0 ",
		"addr add 172.16.5.102/24 dev eth0\nroute add default via 172.16.5.1\n", "route add 172.16.5.0/24 via 10.2.0.2\n",
	} {
		if !strings.Contains(all.String(), want) {
			t.Errorf("there is no %q in:\n%s", want, all.String())
		}
	}
	if strings.Contains(all.String(), "netem") {
		t.Error("netem is needed, which this machine's kernel may not have")
	}
}

// frames is a device that returns the frames sent to it, and ends when it is
// closed.
type frames chan []byte

func (f frames) Read(b []byte) (int, error) {
	data, ok := <-f
	if !ok {
		return 0, io.EOF
	}
	return copy(b, data), nil
}

func (f frames) Write(b []byte) (int, error) {
	f <- slices.Clone(b)
	return len(b), nil
}

// Frames arrive in order, each half a round trip later, however closely they
// follow each other.
func TestDistance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, out := make(frames), make(frames)
		done := make(chan error)
		go func() { done <- farAway{one: 10 * time.Millisecond}.oneWay(in, out) }()
		start := time.Now()
		go func() {
			for i := range 100 {
				in <- []byte{byte(i)}
				time.Sleep(time.Millisecond)
			}
			close(in)
		}()
		for i := range 100 {
			f := <-out
			if d := time.Since(start) - time.Duration(i)*time.Millisecond; len(f) != 1 || f[0] != byte(i) || d != 10*time.Millisecond {
				t.Fatalf("frame %d: got %v after %v", i, f, d)
			}
		}
		if err := <-done; !errors.Is(err, io.EOF) {
			t.Errorf("it ended with %v, want why the device did", err)
		}
	})
}
