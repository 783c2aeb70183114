package protocol_test

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"unbloat/internal/measure/netio"
	"unbloat/internal/measure/phases"
	"unbloat/internal/measure/protocol"
	"unbloat/internal/measure/protocol/irtt"
	"unbloat/internal/measure/verdict"
	"unbloat/lab"
	"unbloat/lab/scenario"
	"unbloat/testkit/labtest"
	"unbloat/unit"
)

// home is a line for TestAccuracy, with a queue of 0.2 s in each direction.
func home(down, up unit.Rate, loss float64) labtest.Options {
	s := labtest.Home()
	fifth := func(r unit.Rate) unit.Size { return max(unit.Size(int64(r)/8/5), 30*unit.KB) }
	s.Line = scenario.Line{Down: down, Up: up, RTT: 20 * time.Millisecond, BufferDown: fifth(down), BufferUp: fifth(up), Loss: loss}
	return labtest.Options{Node: lab.Host(1), Scenario: s, Server: true}
}

// From 1 to 300 Mbit/s, idle and under load, our figures match the line and
// what Debian's irtt measures at the same time: p50 ± 1 ms, p95 ± 2 ms or 3 %,
// goodput ± 2 %.
func TestAccuracy(t *testing.T) {
	program(t, "irtt")
	for _, c := range []struct{ down, up unit.Rate }{
		{1 * unit.MbitPerSecond, 1 * unit.MbitPerSecond},
		{30 * unit.MbitPerSecond, 5 * unit.MbitPerSecond},
		{300 * unit.MbitPerSecond, 50 * unit.MbitPerSecond},
	} {
		t.Run(fmt.Sprintf("%d", c.down/unit.MbitPerSecond), func(t *testing.T) {
			if c.down == 30*unit.MbitPerSecond && !labtest.Long() {
				t.Skip("SKIPPED: between the slowest and the fastest; UNBLOAT_LONG=1 runs it")
			}
			if !labtest.Inside(t, home(c.down, c.up, 0)) {
				return
			}
			accuracy(t, c.down, c.up)
		})
	}
}

func accuracy(t *testing.T, down, up unit.Rate) {
	const idle, load = 2 * time.Second, 5 * time.Second
	const mine, irtts = 74, 102 // bytes of both programs' probes, on Ethernet
	// irtt's probes are longer, so their round trip takes longer: by 0.45 ms at
	// 1 Mbit/s.
	longer := unit.Ms(down.Time(irtts-mine) + up.Time(irtts-mine))
	file := filepath.Join(t.TempDir(), "irtt.json")
	// As often as our own probes. With half as many, irtt's median would be off
	// by a millisecond.
	watch := exec.Command("irtt", "client", "-q", "-i", "10ms", "-d", (idle + 2*load + 4*time.Second).String(), "-o", file,
		fmt.Sprintf("%s:%d", lab.ServerAddr, irtt.Port))
	if err := watch.Start(); err != nil {
		t.Fatal(err)
	}
	c := dialed(t, lab.Server(), protocol.Options{})
	var raws []phases.RawPhase
	for _, spec := range []phases.PhaseSpec{
		{Name: verdict.PhaseIdle, Duration: idle},
		{Name: verdict.PhaseDownload, Duration: load, FlowsDown: 4},
		{Name: verdict.PhaseUpload, Duration: load, FlowsUp: 4},
	} {
		raw, err := c.Phase(t.Context(), spec)
		if err != nil {
			t.Fatal(err)
		}
		raws = append(raws, *raw)
	}
	if err := watch.Wait(); err != nil {
		t.Fatal(err)
	}
	truth := readIrtt(t, file)
	got := c.Judge("", raws)
	for i, p := range got.Phases() {
		var seen []float64
		for _, r := range truth {
			if !r.at.Before(raws[i].From) && r.at.Before(raws[i].To) {
				seen = append(seen, unit.Ms(r.rtt))
			}
		}
		slices.Sort(seen)
		rank := func(q float64) float64 { return seen[int(math.Ceil(q*float64(len(seen))))-1] - longer }
		l := p.Latency.RTTMs
		t.Logf("%s: p50 %.2f against %.2f, p95 %.2f against %.2f ms, %.3f and %.3f Mbit/s", p.Name, l.P50, rank(0.5), l.P95, rank(0.95), p.GoodputDownBps/1e6, p.GoodputUpBps/1e6)
		// Both take samples of a queue that swings: of 500, the median's rank is known to 2.5 %.
		if l.P50 < rank(0.475)-1 || l.P50 > rank(0.525)+1 {
			t.Errorf("%s: p50 %.2f ms, irtt saw %.2f (%.2f to %.2f)", p.Name, l.P50, rank(0.5), rank(0.475), rank(0.525))
		}
		if math.Abs(l.P95-rank(0.95)) > max(2, 0.03*rank(0.95)) {
			t.Errorf("%s: p95 %.2f ms, irtt saw %.2f", p.Name, l.P95, rank(0.95))
		}
		for _, d := range []struct {
			name    string
			rate    unit.Rate
			goodput float64
		}{{verdict.PhaseDownload, down, p.GoodputDownBps}, {verdict.PhaseUpload, up, p.GoodputUpBps}} {
			const probes = (mine + irtts) * 8 * 100 // of both, bits a second
			if want := (float64(d.rate) - probes) * 1448 / 1514; p.Name == d.name && math.Abs(d.goodput/want-1) > 0.02 {
				t.Errorf("%s: goodput %.0f bit/s, the line carries %.0f", p.Name, d.goodput, want)
			}
		}
	}
	if idle := got.Idle.Latency.RTTMs; math.Abs(idle.P50-20) > 1 || math.Abs(idle.P95-20) > 2 { // the line has 20 ms
		if up > unit.MbitPerSecond { // at 1 Mbit/s a probe itself takes 0.6 ms in each direction
			t.Errorf("idle: p50 %.2f, p95 %.2f ms, the line has 20", idle.P50, idle.P95)
		}
	}
}

type seen struct {
	at  unit.Instant
	rtt time.Duration
}

// readIrtt reads the round trip times that irtt wrote.
func readIrtt(t *testing.T, file string) []seen {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var r struct {
		RoundTrips []struct {
			Lost  any `json:"lost"`
			Delay struct {
				RTT int64 `json:"rtt"`
			} `json:"delay"`
			Timestamps struct {
				Client struct {
					Send struct {
						Wall int64 `json:"wall"`
					} `json:"send"`
				} `json:"client"`
			} `json:"timestamps"`
		} `json:"round_trips"`
	}
	if err := json.Unmarshal(b, &r); err != nil {
		t.Fatal(err)
	}
	var out []seen
	for _, p := range r.RoundTrips {
		if p.Lost == "false" && p.Delay.RTT > 0 {
			out = append(out, seen{unit.Instant(p.Timestamps.Client.Send.Wall), time.Duration(p.Delay.RTT)})
		}
	}
	return out
}

// The measured loss is what the kernel dropped, in each direction, ± 0.2
// points, with our own protocol and with irtt's.
func TestLossAccuracy(t *testing.T) {
	if !labtest.Inside(t, home(30*unit.MbitPerSecond, 5*unit.MbitPerSecond, 0.03)) {
		return
	}
	clock := netio.NewClock()
	c, err := phases.Dial(t.Context(), lab.Server(), phases.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for name, start := range map[string]func() (phases.Prober, error){
		"native": func() (phases.Prober, error) { return c.StartProbe(t.Context(), phases.ProbeSpec{}) },
		"irtt": func() (phases.Prober, error) {
			return irtt.Protocol().Ways[0].Start(t.Context(), protocol.Probing{
				Clock: clock, Host: fmt.Sprintf("%s:%d", lab.ServerAddr, irtt.Port), Interval: 10 * time.Millisecond,
			})
		},
	} {
		p, err := start()
		if err != nil {
			t.Fatal(err)
		}
		from, before := clock.Now(), drops(t)
		time.Sleep(15 * time.Second)
		to, after := clock.Now(), drops(t)
		time.Sleep(2 * time.Second) // for answers on the way
		samples, _ := p.Samples(from, to)
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
		l := verdict.EvaluateLatency(samples, verdict.Baseline{})
		sent := float64(l.Sent)
		up, down := float64(after[0]-before[0])/sent, float64(after[1]-before[1])/(sent*(1-l.LossUp))
		t.Logf("%s: lost up %.4f, the kernel dropped %.4f; down %.4f, %.4f; %d probes", name, l.LossUp, up, l.LossDown, down, l.Sent)
		if l.Sent < 1450 || math.Abs(l.LossUp-up) > 0.002 || math.Abs(l.LossDown-down) > 0.002 {
			t.Errorf("%s: lost up %.4f, the kernel dropped %.4f; down %.4f, %.4f", name, l.LossUp, up, l.LossDown, down)
		}
	}
}

// drops returns the line's drops in the upload and the download.
func drops(t *testing.T) (out [2]int) {
	t.Helper()
	for i, dev := range []string{"net", "home"} {
		b, err := labtest.In(t.Context(), lab.NodeISP, "tc", "-s", "qdisc", "show", "dev", dev).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, b)
		}
		for _, m := range regexp.MustCompile(`dropped (\d+)`).FindAllSubmatch(b, -1) {
			n, err := strconv.Atoi(string(m[1]))
			if err != nil {
				t.Fatal(err)
			}
			out[i] += n
		}
	}
	return out
}
