package phases

import (
	"unbloat/internal/measure/verdict"
	"unbloat/unit"
)

// A ByteCounter is a Load that knows what its connections have moved over this
// machine's interface so far, in bytes, at most.
type ByteCounter interface {
	Passed() (in, out int64, ok bool)
}

// ownBytes is what a load's connections had moved at an instant.
type ownBytes struct {
	at      unit.Instant
	in, out int64
	ok      bool
}

func (r *phaseRun) passed() ownBytes {
	o := ownBytes{at: r.runner.clock.Now()}
	if p, can := r.load.(ByteCounter); can {
		o.in, o.out, o.ok = p.Passed()
	}
	return o
}

// since files what the load moved from one instant to a later one.
func (o ownBytes) since(now ownBytes, w *verdict.Counted) {
	seconds := now.at.Sub(o.at).Seconds()
	if !o.ok || !now.ok || seconds <= 0 {
		return
	}
	w.OwnKnown, w.OwnDown, w.OwnUp = true, 8*float64(now.in-o.in)/seconds, 8*float64(now.out-o.out)/seconds
}
