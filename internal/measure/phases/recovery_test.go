package phases

import (
	"testing"
	"time"

	"unbloat/internal/measure/probe"
	"unbloat/unit"
)

type probed []probe.Sample

func (p probed) Samples(_, _ unit.Instant) ([]probe.Sample, []probe.Skip) { return p, nil }
func (p probed) Settled(unit.Instant) (bool, error)                       { return true, nil }

// The delay has fallen when the last answer above the idle line's has come, whenever it was sent.
func TestRecovery(t *testing.T) {
	raw := &RawPhase{To: 9e9, End: 10e9}
	at := func(sent, rtt time.Duration, fate probe.Fate) probe.Sample {
		return probe.Sample{Sent: raw.End.Add(sent), Received: raw.End.Add(sent + rtt), Fate: fate}
	}
	samples := probed{
		at(-100*time.Millisecond, 900*time.Millisecond, probe.Answered), at(200*time.Millisecond, 700*time.Millisecond, probe.Answered),
		at(300*time.Millisecond, 20*time.Millisecond, probe.Answered), at(400*time.Millisecond, time.Hour, probe.LostUp),
	}
	s := Settling{ceiling: 25 * time.Millisecond}
	if d := s.recovery(samples, raw, 11e9); d == nil || *d != 900*time.Millisecond {
		t.Errorf("%v", d)
	}
	if d := s.recovery(samples[2:3], raw, 11e9); d == nil || *d != 0 {
		t.Errorf("of an idle line: %v", d)
	}
	if d := (Settling{}).recovery(samples, raw, 11e9); d != nil {
		t.Errorf("nobody knows the idle line, and it took %v", d)
	}
}
