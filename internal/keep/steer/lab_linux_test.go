package steer_test

import (
	"context"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"unbloat/internal/keep/delay"
	"unbloat/internal/keep/steer"
	"unbloat/internal/measure/netio"
	"unbloat/internal/measure/phases"
	"unbloat/lab"
	"unbloat/testkit/labtest"
)

const ms = time.Millisecond

// A watch runs a gauge as a controller does, and keeps its samples.
type watch struct {
	t       *testing.T
	g       *steer.Sockets
	clock   *netio.Clock
	targets int
	samples []delay.Sample
}

// round asks a target each interval and reads each 50 ms, until done says so.
func (w *watch) round(interval time.Duration, done func() bool) {
	w.t.Helper()
	next, i := w.clock.Now(), 0
	for !done() {
		now := w.clock.Now()
		if !now.Before(next) {
			next = now.Add(interval)
			if err := w.g.Ask(now, i%w.targets); err != nil {
				w.t.Fatal(err)
			}
			i++
		}
		if err := w.g.Read(now, func(s delay.Sample) { w.samples = append(w.samples, s) }); err != nil {
			w.t.Fatal(err)
		}
		time.Sleep(50 * ms)
	}
}

// rest waits until nothing is left of what was before, and forgets it.
func (w *watch) rest() {
	w.t.Helper()
	until := w.clock.Now().Add(3 * time.Second)
	w.round(100*ms, func() bool { return !w.clock.Now().Before(until) })
	w.samples = nil
}

// during runs a command in a node of the home, and measures meanwhile.
func (w *watch) during(interval time.Duration, node string, argv ...string) {
	w.t.Helper()
	c := labtest.In(w.t.Context(), node, argv...)
	ended := make(chan error, 1)
	go func() {
		out, err := c.CombinedOutput()
		if err != nil {
			w.t.Errorf("%v: %v: %s", argv, err, out)
		}
		ended <- err
	}()
	w.round(interval, func() bool { return len(ended) > 0 })
}

// of returns the sorted figures of the samples that match.
func (w *watch) of(match func(delay.Sample) bool, figure func(delay.Sample) time.Duration) []time.Duration {
	var out []time.Duration
	for _, s := range w.samples {
		if match(s) {
			out = append(out, figure(s))
		}
	}
	slices.Sort(out)
	return out
}

func rtt(s delay.Sample) time.Duration { return s.RTT }

func kind(k delay.Kind, way delay.Way) func(delay.Sample) bool {
	return func(s delay.Sample) bool { return s.Kind == k && s.Way == way }
}

func median(d []time.Duration) time.Duration {
	if len(d) == 0 {
		return 0
	}
	return d[len(d)/2]
}

// echo opens a stream at the lab's server.
func echo(ctx context.Context) (steer.Stream, error) {
	c, err := phases.Dial(ctx, lab.Server(), phases.Options{})
	if err != nil {
		return steer.Stream{}, err
	}
	to, token, err := c.OpenEcho(ctx)
	return steer.Stream{To: to, Token: token, Close: c.Close}, err
}

// Every source agrees with the truth on an idle line of 20 ms to within 1 ms, and
// with each other on one that queues; the queue shows in the direction that it is
// in; and the counters are those of the interface.
func TestSourcesInLab(t *testing.T) {
	if !labtest.Inside(t, labtest.Options{Server: true}) {
		return
	}
	server := netip.MustParseAddr(lab.ServerAddr)
	targets := []delay.Target{
		{Addr: server, Operator: "a", Kind: delay.Echo},
		{Addr: server, Kind: delay.FirstHop},
		{Addr: server, Operator: "b", Kind: delay.Native},
	}
	clock := netio.NewClock()
	g, err := steer.OpenGauge(steer.Config{Line: steer.Line{Device: lab.RouterWAN}, Clock: clock, Targets: targets, Echo: echo})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	if len(g.Missing()) > 0 {
		t.Fatalf("missing: %v", g.Missing())
	}
	w := &watch{t: t, g: g, clock: clock, targets: len(targets)}
	before, err := g.Count(clock.Now())
	if err != nil {
		t.Fatal(err)
	}

	w.rest() // until neighbours are known, and the server's stream is open
	// Idle, but for the opening of connections from the home.
	w.during(100*ms, lab.Host(1), labtest.Unbloat(), "path", "--json", "--quiet", lab.ServerAddr)
	w.during(100*ms, lab.Host(1), "bash", "-c", "for i in 1 2 3 4 5; do exec 3<>/dev/tcp/"+strings.Replace(lab.Server(), ":", "/", 1)+"; exec 3>&-; sleep 0.2; done")
	for name, c := range map[string]struct {
		got  []time.Duration
		want time.Duration
		off  time.Duration // at most
	}{
		"ICMP timestamp":      {w.of(kind(delay.Stamp, delay.NoWay), rtt), 20 * ms, ms},
		"UDP to a server":     {w.of(kind(delay.Native, delay.NoWay), rtt), 20 * ms, ms},
		"the first hop":       {w.of(kind(delay.FirstHop, delay.NoWay), rtt), 10 * ms, ms},
		"openings of TCP":     {w.of(kind(delay.Passive, delay.NoWay), rtt), 20 * ms, ms},
		"up by stamps":        {w.of(kind(delay.Stamp, delay.NoWay), func(s delay.Sample) time.Duration { return s.Up }), 0, 2 * ms}, // stamps are whole milliseconds (RFC 792)
		"up by the server":    {w.of(kind(delay.Native, delay.NoWay), func(s delay.Sample) time.Duration { return s.Up }), 0, ms},
		"down by the server":  {w.of(kind(delay.Native, delay.NoWay), func(s delay.Sample) time.Duration { return s.Down }), 0, ms},
		"answers from 10.2.1": {w.of(kind(delay.FirstHop, delay.NoWay), func(s delay.Sample) time.Duration { return time.Duration(s.Source.As4()[1]) }), 2, ms},
	} {
		least := 10
		if name == "openings of TCP" {
			least = 3
		}
		if len(c.got) < least {
			t.Errorf("%s: %d samples", name, len(c.got))
			continue
		}
		worst := max((c.got[0] - c.want).Abs(), (c.got[len(c.got)-1] - c.want).Abs())
		t.Logf("idle, %s: %d samples, %v to %v", name, len(c.got), c.got[0], c.got[len(c.got)-1])
		if worst > c.off {
			t.Errorf("idle, %s: %v to %v, the truth is %v", name, c.got[0], c.got[len(c.got)-1], c.want)
		}
	}

	for _, c := range []struct {
		direction string
		way       delay.Way
	}{{"up", delay.Up}, {"down", delay.Down}} {
		w.rest()
		w.during(130*ms, lab.Host(1), labtest.Unbloat(), "path", "--json", "--quiet", lab.ServerAddr, "--load", lab.Server(), "--direction", c.direction)
		passive := w.of(kind(delay.Passive, c.way), rtt)
		stamps, native := w.of(kind(delay.Stamp, delay.NoWay), rtt), w.of(kind(delay.Native, delay.NoWay), rtt)
		if len(passive) < 50 || len(stamps) < 20 {
			t.Fatalf("%s: %d samples of TCP, %d of ICMP", c.direction, len(passive), len(stamps))
		}
		t.Logf("%s: TCP %d samples, median %v, most %v; ICMP median %v, most %v; server %v, %v", c.direction, len(passive), median(passive), passive[len(passive)-1],
			median(stamps), stamps[len(stamps)-1], median(native), native[len(native)-1])
		if most := passive[len(passive)-1]; most < 400*ms || (most-stamps[len(stamps)-1]).Abs() > most/10 {
			t.Errorf("%s: at most %v by TCP, %v by ICMP", c.direction, most, stamps[len(stamps)-1])
		}
		w.near(c.direction, c.way)
		w.oneWay(c.direction)
	}

	after, err := g.Count(clock.Now())
	if err != nil {
		t.Fatal(err)
	}
	s := g.Stats()
	t.Logf("%+v; %+v", s, after)
	if s.Dropped > 0 || s.Probes == 0 || s.ProbeBytes < s.Probes*60 {
		t.Errorf("%+v", s)
	}
	up, down := after.Link.TxBytes-before.Link.TxBytes, after.Link.RxBytes-before.Link.RxBytes
	if after.Link.Index == 0 || up < 5e6 || down < 30e6 || after.Link.TxPackets <= before.Link.TxPackets || after.Inbound.Index != 0 {
		t.Errorf("%d bytes up, %d down; %+v", up, down, after)
	}
}

// near checks that what TCP and ICMP say within 150 ms of each other is the same.
func (w *watch) near(direction string, way delay.Way) {
	compared, far := 0, 0
	var worst time.Duration
	var last delay.Sample
	for _, s := range w.samples {
		switch {
		case s.Kind == delay.Passive && s.Way == way:
			last = s
		case s.Kind == delay.Stamp && last.At != 0 && s.At.Sub(last.At) < 150*ms:
			compared++
			d := (s.RTT - last.RTT).Abs()
			worst = max(worst, d)
			if d > 10*ms+s.RTT/10 { // the queue changes meanwhile
				far++
			}
		}
	}
	w.t.Logf("%s: %d pairs, %d far apart, the worst by %v", direction, compared, far, worst)
	if compared < 10 || far > compared/10 {
		w.t.Errorf("%s: of %d pairs of TCP and ICMP %d are far apart, the worst by %v", direction, compared, far, worst)
	}
}

// oneWay checks that the queue shows in the loaded direction.
func (w *watch) oneWay(direction string) {
	for _, k := range []delay.Kind{delay.Stamp, delay.Native} {
		up := w.of(kind(k, delay.NoWay), func(s delay.Sample) time.Duration { return s.Up })
		down := w.of(kind(k, delay.NoWay), func(s delay.Sample) time.Duration { return s.Down })
		loaded, other := up, down
		if direction == "down" {
			loaded, other = down, up
		}
		if len(loaded) < 10 || loaded[len(loaded)-1] < 400*ms || other[len(other)-1] > 30*ms {
			w.t.Errorf("%s by %v: at most %v up and %v down", direction, k, up[len(up)-1], down[len(down)-1])
		}
	}
}

// The counters of the queues are those that tc(8) shows.
func TestQueueCountsInLab(t *testing.T) {
	if !labtest.Inside(t, labtest.Options{Node: lab.NodeModem}) {
		return
	}
	c, err := netio.OpenLinkCounter()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	out := make([]netio.LinkCounts, 3)
	if err := c.Read([]string{"m1", "", "nobody"}, out); err != nil {
		t.Fatal(err)
	}
	if out[0].Index == 0 || out[0].Queue.Kind != "netem" || out[0].Queue.Handle != 0x20000 || out[1].Index != 0 || out[2].Index != 0 {
		t.Errorf("%+v", out)
	}
	if b, err := exec.CommandContext(t.Context(), "tc", "-s", "qdisc", "show", "dev", "m1", "root").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, b)
	} else {
		t.Logf("%s%+v", b, out[0])
	}
}
