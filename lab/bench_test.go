package lab_test

import (
	"testing"
	"time"

	"unbloat/lab"
	"unbloat/lab/scenario"
	"unbloat/testkit/await"
	"unbloat/testkit/labtest"
	"unbloat/unit"
)

// minuteOfFlows is a home with 4 + 4 flows at 30/5 Mbit/s for 60 virtual seconds.
func minuteOfFlows(tb testing.TB) (lab.Kernel, lab.Guest) {
	tb.Helper()
	kernel, err := lab.FindKernel(lab.Virtual)
	if err != nil {
		tb.Skipf("SKIPPED: %v", err)
	}
	s := &scenario.Scenario{
		Name: "speed",
		Line: scenario.Line{
			Down: 30 * unit.MbitPerSecond, Up: 5 * unit.MbitPerSecond, RTT: 20 * time.Millisecond,
			BufferDown: 2500 * unit.KB, BufferUp: 600 * unit.KB,
		},
		Test: scenario.Test{Seconds: time.Minute, Idle: 2 * time.Second},
		Loads: []scenario.Load{
			{Kind: scenario.Download, Flows: 4, Host: 1}, {Kind: scenario.Upload, Flows: 4, Host: 1},
		},
		Cases: []scenario.Case{{Name: "one", Router: scenario.Router{Mode: scenario.ModeNone}}},
	}
	return kernel, lab.Guest{Engine: kernel.Engine, Scenario: s, Case: "one", Programs: labtest.Programs(tb), Server: true}
}

// A minute of a home in the lab costs twelve seconds at most, its guest's boot with it.
func TestMinuteAlone(t *testing.T) {
	kernel, g := minuteOfFlows(t)
	await.Costs(t, 12*time.Second, func() {
		if r, _, err := lab.Boot(t.Context(), kernel, g, nil); err != nil {
			t.Error(err)
		} else if r.VirtualSeconds < 60 {
			t.Errorf("%.1f virtual seconds, less than a minute", r.VirtualSeconds)
		}
	})
}

// BenchmarkLab measures the lab's speed on one CPU, and of as many such homes in parallel as
// there are CPUs.
func BenchmarkLab(b *testing.B) {
	kernel, g := minuteOfFlows(b)
	boot := func(b *testing.B) float64 {
		r, wall, err := lab.Boot(b.Context(), kernel, g, nil)
		if err != nil {
			b.Error(err)
			return 0
		}
		return wall.Seconds() / r.VirtualSeconds * 60
	}
	b.Run("one", func(b *testing.B) {
		for range b.N {
			b.ReportMetric(boot(b), "wall-s/60s")
		}
	})
	b.Run("side-by-side", func(b *testing.B) {
		b.SetParallelism(1)
		b.RunParallel(func(p *testing.PB) {
			for p.Next() {
				b.ReportMetric(boot(b), "wall-s/60s")
			}
		})
	})
}
