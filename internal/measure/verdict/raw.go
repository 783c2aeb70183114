package verdict

import (
	"math"
	"time"

	"unbloat/internal/measure/probe"
	"unbloat/reason"
	"unbloat/unit"
)

// A Raw is what was measured in one phase, before anything is counted. All
// instants are of the client's clock.
type Raw struct {
	Name       string       // one of the phase names
	Start, End unit.Instant // edges included
	From, To   unit.Instant // what counts

	Interval time.Duration  // of the probes
	Samples  []probe.Sample // sent in [Start, End), fates resolved
	Skips    []probe.Skip

	Greedy bool     // the flows send all they can, so the line ought to be full
	Down   []Series // per flow, at the receiver
	Up     []Series
	// DownWhole is Down with what carries the payload within TCP, such as records
	// of TLS; nil where that is nothing, or not known.
	DownWhole []Series
	// How the sending sockets fared, per group of flows.
	DownSenders, UpSenders [][]probe.SenderSample

	// Recovery is how long after the load's end the round trip was last above the idle line's;
	// nil: there was no load, or nobody looked.
	Recovery *time.Duration

	CPU, ServerCPU float64  // busiest share, 0–1
	CPUUnknown     string   // why CPU is not known; "" if it is
	ClockSteps     int      // how often the machine's clock was set
	Broken         []string // flows that ended before their time, and why

	OnLoad    []probe.Sample   // round trips on the loaded connections themselves
	Fresh     Handshakes       // what fresh connections took during the load
	Secondary []SecondaryProbe // what further probes saw

	Wire        Counted         // what passed the interface
	PathChanges int             // how often the answers' hop count changed for good
	Notes       []reason.Reason // on the conditions

	RadioName string        // of the wireless interface towards the server; "": none is known
	Radio     []RadioSample // of the counted part
}

// Handshakes are what the parts of a request on a fresh connection took.
type Handshakes struct{ TCP, TLS, HTTP []time.Duration }

// A SecondaryProbe is what further probes saw, which are not graded.
type SecondaryProbe struct {
	Name    string // such as "icmp 192.0.2.1"
	Samples []probe.Sample
}

// A Series is the bytes that one flow brought, in bins.
type Series struct {
	Start unit.Instant
	Bin   time.Duration
	Bytes []int64
}

// Between returns the bytes that arrived in [from, to); a bin that is cut
// counts in proportion.
func (s Series) Between(from, to unit.Instant) float64 {
	if s.Bin <= 0 || !from.Before(to) {
		return 0
	}
	var sum float64
	first := max(int64(from.Sub(s.Start)/s.Bin)-1, 0)
	for i := first; i < int64(len(s.Bytes)); i++ {
		lo := s.Start.Add(time.Duration(i) * s.Bin)
		hi := lo.Add(s.Bin)
		if !lo.Before(to) {
			break
		}
		if part := min(hi, to).Sub(max(lo, from)); part > 0 {
			sum += float64(s.Bytes[i]) * float64(part) / float64(s.Bin)
		}
	}
	return sum
}

// Goodput returns the rate of all flows together in [from, to), in bit/s as
// the JSON of a Phase has it.
func Goodput(flows []Series, from, to unit.Instant) float64 {
	if !from.Before(to) {
		return 0
	}
	var sum float64
	for _, f := range flows {
		sum += f.Between(from, to)
	}
	return math.Round(sum * 8 / to.Sub(from).Seconds())
}

// A Baseline is the idle phase that the others are compared with.
type Baseline struct {
	RTT      time.Duration // medians
	Up, Down time.Duration // apparent, with the clocks' offset

	others map[string]time.Duration // round trips of secondary probes
}

// secondary returns the baseline of a secondary probe.
func (b Baseline) secondary(name string) Baseline { return Baseline{RTT: b.others[name]} }

// NewBaseline returns the medians of an idle phase's counted part.
func NewBaseline(idle Raw) Baseline {
	v := valuesOf(counted(idle.Samples, idle.From, idle.To))
	b := Baseline{median(v.rtt), median(v.up), median(v.down), map[string]time.Duration{}}
	for _, o := range idle.Secondary {
		b.others[o.Name] = median(valuesOf(counted(o.Samples, idle.From, idle.To)).rtt)
	}
	return b
}

// counted returns the samples sent in [from, to).
func counted(samples []probe.Sample, from, to unit.Instant) []probe.Sample {
	lo, hi := 0, len(samples)
	for lo < hi && samples[lo].Sent.Before(from) {
		lo++
	}
	for hi > lo && !samples[hi-1].Sent.Before(to) {
		hi--
	}
	return samples[lo:hi]
}

type values struct{ rtt, up, down []time.Duration }

func valuesOf(samples []probe.Sample) values {
	var v values
	for i := range samples {
		s := &samples[i]
		if s.Fate == probe.Answered {
			v.rtt = append(v.rtt, s.RTT())
			if !s.OneWay() {
				continue
			}
			v.up = append(v.up, s.Up())
			v.down = append(v.down, s.Down())
		}
	}
	return v
}
