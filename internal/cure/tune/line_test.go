package tune

import (
	"math"
	"testing"
	"time"

	"unbloat/internal/cure/plan"
	"unbloat/internal/measure/phases"
	"unbloat/internal/measure/probe"
	"unbloat/unit"
)

// While a queue grows fewer probes leave it than are sent, and the load uses
// the difference: the rate that the line carries includes only the probes that
// came through.
func TestCarriedCountsProbesThatCameThrough(t *testing.T) {
	const (
		interval = 10 * time.Millisecond
		line     = 1e6
		grows    = 0.2 // seconds of queue per second
	)
	raw := phases.RawPhase{Start: 0, From: unit.Instant(2e9), To: unit.Instant(8e9), End: unit.Instant(8e9), Interval: interval}
	for at := raw.Start; at.Before(raw.End); at = at.Add(interval) {
		queue := time.Duration(grows * float64(at))
		raw.Samples = append(raw.Samples, probe.Sample{Sent: at, Received: at.Add(20*time.Millisecond + queue), Fate: probe.Answered})
	}
	raw.Samples = append(raw.Samples, probe.Sample{Sent: raw.From, Fate: probe.LostUp})
	probes := 74 * 8 / interval.Seconds() / (1 + grows)
	goodput := (line - probes) * payloadIn / 1514
	if got := carried(plan.Line{}, goodput, raw); math.Abs(float64(got)/line-1) > 2e-4 {
		t.Errorf("the line carries %v, by a load of %.0f bit/s and the probes; it is %.0f", got, goodput, line)
	}
}

// For the upload the senders' counts include data behind holes. Without them
// the receiver's goodput is used.
func TestDeliveredOrGoodput(t *testing.T) {
	raw := phases.RawPhase{From: 0, To: unit.Instant(8e9)}
	if got := delivered(8e5, raw); got != 8e5 {
		t.Errorf("without samples %.0f", got)
	}
	var g []probe.SenderSample
	for i := range int64(17) {
		g = append(g, probe.SenderSample{At: unit.Instant(i * 5e8), Known: true, Acked: 30000 * i, Sacked: 20000 * i})
	}
	raw.UpSenders = [][]probe.SenderSample{g}
	if got := delivered(9e5, raw); math.Abs(got-8e5) > 1 {
		t.Errorf("by the senders %.0f", got)
	}
}
