package protocol_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"unbloat/internal/measure/phases"
	"unbloat/internal/measure/protocol"
	"unbloat/internal/measure/verdict"
	"unbloat/lab"
	"unbloat/testkit/labtest"
	"unbloat/unit"
)

// Every protocol with load measures the same line, and its results are valid:
// goodput ± 3 %, and the 0.2 s of the line's buffers.
func TestProtocolsAgree(t *testing.T) {
	if !labtest.Inside(t, home(30*unit.MbitPerSecond, 5*unit.MbitPerSecond, 0)) {
		return
	}
	for _, server := range []string{"iperf3://" + lab.ServerAddr, "ndt7+ws://" + lab.ServerAddr + ":7680", "librespeed+http://" + lab.ServerAddr + ":7680", "rpm+https://" + lab.ServerAddr + ":7680"} {
		c := dialed(t, server, protocol.Options{Insecure: true, Ping: "icmp://" + lab.ServerAddr})
		var raws []phases.RawPhase
		for _, spec := range []phases.PhaseSpec{
			{Name: verdict.PhaseIdle, Duration: time.Second},
			{Name: verdict.PhaseDownload, Duration: 4 * time.Second, FlowsDown: 4},
			{Name: verdict.PhaseUpload, Duration: 4 * time.Second, FlowsUp: 4},
		} {
			raw, err := c.Phase(t.Context(), spec)
			if err != nil {
				t.Fatal(err)
			}
			raws = append(raws, *raw)
		}
		got := c.Judge("", raws)
		for _, p := range got.Phases() {
			t.Logf("%s %s: p50 %.1f, p95 %.1f ms, down %.2f, up %.2f Mbit/s", server, p.Name, p.Latency.RTTMs.P50, p.Latency.RTTMs.P95, p.GoodputDownBps/1e6, p.GoodputUpBps/1e6)
		}
		t.Logf("%s: grade %q, %q", server, got.Grade, got.InvalidReasons)
		if !got.Valid {
			t.Errorf("%s: %q", server, got.InvalidReasons)
		}
		const tcp = 1448.0 / 1514
		if down := got.Download.GoodputDownBps / (30e6 * tcp); math.Abs(down-1) > 0.03 {
			t.Errorf("%s: download %.3f of the line", server, down)
		}
		if up := got.Upload.GoodputUpBps / (5e6 * tcp); math.Abs(up-1) > 0.03 {
			t.Errorf("%s: upload %.3f of the line", server, up)
		}
		if q := got.Upload.Queue; q == nil || q.Direction != "up" || q.Ms < 120 || q.Ms > 230 {
			t.Errorf("%s: queue %+v", server, q)
		}
		c.Close()
	}
}

// A download by another program on this host is noticed, and makes the test
// invalid.
func TestOthersAreSeen(t *testing.T) {
	if !labtest.Inside(t, home(30*unit.MbitPerSecond, 5*unit.MbitPerSecond, 0)) {
		return
	}
	for _, busy := range []bool{false, true} {
		c, other := dialed(t, lab.Server(), protocol.Options{}), dialed(t, lab.Server(), protocol.Options{}).(*phases.Client)
		idle, err := c.Phase(t.Context(), phases.PhaseSpec{Name: verdict.PhaseIdle, Duration: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		var flows *phases.Flows
		if busy {
			if flows, err = other.StartFlows(t.Context(), phases.FlowSpec{Dir: phases.Down, Flows: 1}); err != nil {
				t.Fatal(err)
			}
		}
		load, err := c.Phase(t.Context(), phases.PhaseSpec{Name: verdict.PhaseDownload, Duration: 4 * time.Second, FlowsDown: 4})
		if err != nil {
			t.Fatal(err)
		}
		if flows != nil {
			if _, err := flows.Stop(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		got := c.Judge("", []phases.RawPhase{*idle, *load})
		if seen := strings.Contains(strings.Join(got.InvalidReasons, " "), "others used"); seen != busy || !load.Wire.Known {
			t.Errorf("others busy %v, seen %v: %q, counted %+v", busy, seen, got.InvalidReasons, load.Wire)
		}
		if own := load.Wire.OwnDown / load.Wire.Down; !busy && (own < 0.99 || own > 1.05) {
			t.Errorf("alone: the kernel's count of our segments is %.3f of the interface's: %+v", own, load.Wire)
		}
	}
}

// Forty connections in each direction, and three seconds of queue delay the
// acknowledgements: data that waits behind holes at the end is not counted as
// other traffic.
func TestManyHolesAreNotOthers(t *testing.T) {
	o := home(25*unit.MbitPerSecond, unit.MbitPerSecond, 0)
	o.Scenario.Line.RTT, o.Scenario.Line.BufferDown, o.Scenario.Line.BufferUp = 34*time.Millisecond, 1500*unit.KB, 375*unit.KB
	if !labtest.Inside(t, o) {
		return
	}
	c := dialed(t, lab.Server(), protocol.Options{})
	idle, err := c.Phase(t.Context(), phases.PhaseSpec{Name: verdict.PhaseIdle, Duration: 3 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	load, err := c.Phase(t.Context(), phases.PhaseSpec{Name: verdict.PhaseBoth, Duration: 10 * time.Second, CutHead: 2 * time.Second, FlowsDown: 40, FlowsUp: 40})
	if err != nil {
		t.Fatal(err)
	}
	got := c.Judge("", []phases.RawPhase{*idle, *load})
	t.Logf("counted %+v; goodput %.2f down, %.2f Mbit/s up; %q", load.Wire, got.Both.GoodputDownBps/1e6, got.Both.GoodputUpBps/1e6, got.InvalidReasons)
	if strings.Contains(strings.Join(got.InvalidReasons, " "), "others used") {
		t.Errorf("%q", got.InvalidReasons)
	}
	blind := *load
	blind.Wire.OwnKnown = false
	t.Logf("by the goodput alone: %q", c.Judge("", []phases.RawPhase{*idle, blind}).InvalidReasons)
	if w := load.Wire; !w.OwnKnown || w.OwnDown < 0.97*w.Down || w.OwnDown > 1.06*w.Down || w.OwnUp < 0.97*w.Up || w.OwnUp > 1.73*w.Up { // an acknowledgement has 66 to 114 bytes
		t.Errorf("the kernel's count of our segments is not the interface's: %+v", w)
	}
}
