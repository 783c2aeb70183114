package verdict

import (
	"unbloat/internal/measure/probe"
	"unbloat/reason"
)

// A Counted is what passed the interface towards the server in the counted
// part of a phase, whoever sent it.
type Counted struct {
	Known    bool
	Down, Up float64 // bit/s
	// How much of it the load's own connections moved, at most, by the kernel's count
	// of their segments on this machine; not known of others' loads.
	OwnKnown       bool
	OwnDown, OwnUp float64 // bit/s
}

// MaxOthers is the share of the load that others may have used.
const MaxOthers = 0.05

// What our own load costs on the wire, at most: a full packet of IPv6 with
// options over its payload, an acknowledgement for every packet the other way,
// and the probes. What is beyond it is somebody else's.
const (
	ownOverhead = 1.07
	ownAcks     = 0.06
	ownProbes   = 250e3 // bit/s, a stream of probes, one beside it and the control connection
)

// others estimates what others used, in bit/s. The kernel's count of the load's
// segments is what the interface's is compared with. Goodput is not, if it can
// be helped: when the queue of the other direction keeps acknowledgements for
// seconds, holes are open at the end of the load, and what came behind them is
// on the wire but in no goodput.
func others(raw Raw, p *Phase) (down, up float64) {
	if !raw.Wire.Known {
		return 0, 0
	}
	if raw.Wire.OwnKnown {
		// What a shaper on this machine drops of the download reaches no socket.
		down = raw.Wire.Down - raw.Wire.OwnDown - ownProbes - resent(raw.DownSenders, raw, p)
		up = raw.Wire.Up - raw.Wire.OwnUp - ownProbes
		return max(down, 0), max(up, 0)
	}
	// What a shaper on this machine drops of the download has passed the interface.
	down = raw.Wire.Down - p.GoodputDownBps*ownOverhead - p.GoodputUpBps*ownAcks - ownProbes - resent(raw.DownSenders, raw, p)
	up = raw.Wire.Up - p.GoodputUpBps*ownOverhead - p.GoodputDownBps*ownAcks - ownProbes - resent(raw.UpSenders, raw, p) - queued(p)
	return max(down, 0), max(up, 0)
}

// queued returns the rate at which the queue beyond the interface may have
// grown: what has left upward and not arrived is ours all the same. Where the
// ways are not told apart, all of the increase may be upward.
func queued(p *Phase) float64 {
	if p.Seconds <= 0 {
		return 0
	}
	ms := p.Latency.UpMs.Max
	if p.Latency.OneWayUnknown {
		ms = p.Latency.IncreaseMs.Max
	}
	return ms / 1e3 * p.GoodputUpBps * ownOverhead / p.Seconds
}

// resent returns the rate of what a group of senders sent again.
func resent(senders [][]probe.SenderSample, raw Raw, p *Phase) float64 {
	if p.Seconds <= 0 {
		return 0
	}
	return float64(retransmits(senders, raw)) * frame * 8 / p.Seconds
}

// tooManyOthers says why others' traffic makes a phase invalid, or nil.
func tooManyOthers(p *Phase) *reason.Reason {
	for _, d := range []struct {
		name         string
		others, load float64
	}{{"download", p.OthersDownBps, p.GoodputDownBps}, {"upload", p.OthersUpBps, p.GoodputUpBps}} {
		if d.load > 0 && d.others > MaxOthers*d.load {
			r := reason.Of(reason.OthersTraffic, "direction", d.name, "others", d.others/d.load, "most", MaxOthers, "others_bps", d.others)
			return &r
		}
	}
	return nil
}
