package lab_test

import (
	"testing"
	"time"

	"unbloat/lab"
	"unbloat/lab/scenario"
	"unbloat/testkit/labtest"
	"unbloat/unit"
)

// followPrice is a steady line with load that hardly depends on who sets the rates, or
// without load.
func followPrice(busy bool, lasts time.Duration) *scenario.Scenario {
	mbit := unit.MbitPerSecond
	bounds := &scenario.Daemon{Down: 47_500_000, Up: 9_500_000, Follow: true, LeastDown: 5 * mbit, MostDown: 48 * mbit, LeastUp: mbit, MostUp: 9_600_000}
	s := &scenario.Scenario{
		Name: "price",
		Line: scenario.Line{Down: 50 * mbit, Up: 10 * mbit, RTT: 30 * time.Millisecond, BufferDown: 4 * unit.MB, BufferUp: 1250 * unit.KB},
		Test: scenario.Test{Seconds: lasts, Idle: 5 * time.Second, Whole: true},
		Loads: []scenario.Load{
			{Kind: scenario.Download, Flows: 2, Host: 1}, {Kind: scenario.Upload, Flows: 2, Host: 2},
		},
		Cases: []scenario.Case{
			// The oracle's line never varies: CAKE with the fixed rates. The lab looks at its
			// shapers as at those of the other two, which costs as much there.
			{Name: "fixed", Router: scenario.Router{Mode: scenario.ModeOracle, Oracle: 0.95}},
			{Name: "follows", Router: scenario.Router{Mode: scenario.ModeDaemon, Daemon: bounds}},
			{Name: "cake-autorate", Router: scenario.Router{Mode: scenario.ModeAutorate, Daemon: bounds}},
		},
	}
	// The lab's own probes cost more than what is measured, and not the same each time.
	s.Probe.Interval = 10 * time.Second
	if !busy {
		s.Loads = []scenario.Load{{Kind: scenario.Game, Flows: 1, Host: 1, PPS: 1, Bytes: 100}}
	}
	return s
}

// priceOf runs one case and returns its result.
func priceOf(b *testing.B, s *scenario.Scenario, name string) lab.CaseResult {
	b.Helper()
	r, err := lab.Run(b.Context(), s, lab.Options{Engine: lab.Virtual, Cases: []string{name}, Programs: labtest.Programs(b)})
	if err != nil {
		b.Fatal(err)
	}
	return r.Cases[0]
}

// BenchmarkFollowing measures what it costs to follow a line: seconds of one core for
// each second of the line's time, over what the same traffic takes with fixed rates,
// and once to begin with; and bytes of probes a day, without load and with four hours
// of it. The promises: at most half of cake-autorate's processor time, 2.2 MB and 15 MB.
func BenchmarkFollowing(b *testing.B) {
	labtest.NeedKernel(b)
	b.Run("processor", func(b *testing.B) {
		const long, short = 90 * time.Second, 30 * time.Second
		_, missing := lab.FindAutorate()
		names := []string{"follows", "cake-autorate"}
		if missing != nil {
			names = names[:1]
		}
		// over is what each takes beyond fixed rates, in seconds of a core.
		over := func(lasts time.Duration) (out [2]float64) {
			s := followPrice(true, lasts)
			fixed := priceOf(b, s, "fixed")
			carried := func(c lab.CaseResult) float64 { return c.LineDownBps + c.LineUpBps }
			for i, name := range names {
				c := priceOf(b, s, name)
				out[i] = c.ProcessorSeconds - fixed.ProcessorSeconds*carried(c)/carried(fixed)
			}
			return out
		}
		for range b.N {
			// A machine has faster and slower minutes: the runs take turns.
			const turns = 3
			var price, begin [2]float64
			for range turns {
				l, s := over(long), over(short)
				for i := range names {
					each := (l[i] - s[i]) / (long - short).Seconds()
					price[i] += each / turns
					begin[i] += (s[i] - each*short.Seconds()) / turns
				}
			}
			b.ReportMetric(price[0], "core-s/s-unbloat")
			b.ReportMetric(begin[0], "core-s-start-unbloat")
			if missing != nil {
				b.Logf("SKIPPED: %v", missing)
				continue
			}
			b.ReportMetric(price[1], "core-s/s-cake-autorate")
			b.ReportMetric(begin[1], "core-s-start-cake-autorate")
			b.ReportMetric(price[0]/price[1], "unbloat/cake-autorate")
			if price[0] > price[1]/2 {
				b.Errorf("%.3f s of a core each second; cake-autorate takes %.3f", price[0], price[1])
			}
		}
	})
	b.Run("probes", func(b *testing.B) {
		const day, loaded = 24 * time.Hour, 4 * time.Hour
		for range b.N {
			// The difference of two runs has no beginning in it.
			each := func(busy bool, long, short time.Duration) float64 {
				more := priceOf(b, followPrice(busy, long), "follows").ProbeBytes - priceOf(b, followPrice(busy, short), "follows").ProbeBytes
				return float64(more) / (long - short).Seconds()
			}
			idle, busy := each(false, 11*time.Minute, time.Minute), each(true, 90*time.Second, 30*time.Second)
			quiet := idle * day.Seconds()
			usual := idle*(day-loaded).Seconds() + busy*loaded.Seconds()
			b.ReportMetric(quiet/1e6, "MB/day-idle")
			b.ReportMetric(usual/1e6, "MB/day-4h-load")
			if quiet > 2.2e6 || usual > 15e6 {
				b.Errorf("%.2f MB of probes a day without load, %.2f MB with four hours of it", quiet/1e6, usual/1e6)
			}
		}
	})
}
