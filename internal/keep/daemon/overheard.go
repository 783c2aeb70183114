package daemon

import (
	"net/netip"
	"slices"
	"sync"
	"time"

	"unbloat/internal/keep/delay"
	"unbloat/internal/measure/path"
	"unbloat/unit"
)

// overheard are the questions and answers of what measures a WAN's delay, until its vigil
// takes them in. With no vigil they are forgotten.
type overheard struct {
	mu  sync.Mutex
	all []heard
}

// heard is a question, or an answer with its round trip.
type heard struct {
	asked unit.Instant
	to    netip.Addr // with first: the first hop on the way there
	first bool
	rtt   time.Duration // 0: a question
}

func (o *overheard) ask(at unit.Instant, to delay.Target) {
	o.add(heard{asked: at, to: to.Addr, first: to.Kind == delay.FirstHop})
}

func (o *overheard) hear(s delay.Sample) {
	if s.Kind != delay.Passive && s.Kind != delay.Native {
		o.add(heard{asked: s.At.Add(-s.RTT), to: s.Source, first: s.Kind == delay.FirstHop, rtt: s.RTT})
	}
}

func (o *overheard) add(x heard) {
	const most = 100
	o.mu.Lock()
	defer o.mu.Unlock()
	o.all = append(o.all[max(0, len(o.all)-most):], x)
}

func (o *overheard) take() []heard {
	o.mu.Lock()
	defer o.mu.Unlock()
	all := o.all
	o.all = nil
	return all
}

// overhear takes in what others asked, and what came of it.
func (v *vigil) overhear(all []heard) {
	for _, x := range all {
		to := slices.IndexFunc(v.codecs, func(c path.Codec) bool { return c.Target == x.to })
		v.others = v.others || to >= 0 && !x.first || !v.config.Incidents
		if to < 0 && !x.first {
			continue
		}
		second := v.d.clockAt(x.asked).Truncate(time.Second)
		for k := range v.waiting {
			s := &v.waiting[k]
			if !s.At.Equal(second) {
				continue
			}
			a := &s.First
			if !x.first {
				a = &s.Far[to]
			}
			if x.rtt == 0 {
				a.Asked++
			} else if a.Answered < a.Asked {
				a.Hear(x.rtt)
			}
		}
	}
}
