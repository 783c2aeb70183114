package follow

import (
	"time"

	"unbloat/reason"
	"unbloat/unit"
)

// A Cause says why a rate is what it is.
type Cause uint8

// Causes.
const (
	Started    Cause = iota // at the usual rate
	Holding                 // nothing asks for a change
	Queue                   // the line queues: cut to what it carries
	Draining                // below what it carries, until the queue is gone
	Drained                 // the queue is gone: to just below what the line carries
	Room                    // the shaper is full and the line does not queue: more
	NearFailed              // the same, slowly: a little more was too much lately
	NoHelp                  // a cut did not shorten the delay: it is taken back
	OtherWay                // a cut did not shorten the delay, which is the other direction's: it is taken back
	Outage                  // nothing arrives: the modem is not to be filled meanwhile
	Returned                // something arrives again
	Idle                    // without load towards the usual rate
	Blind                   // nobody answers: the rate holds
	Gliding                 // nobody has answered for long: slowly to what nearly always fits
	Set                     // by somebody else
	Trying                  // a little more than it has been seen to carry
	Loss                    // the line loses more than with less load: cut to what comes through
	OwnLoss                 // a cut did not lessen the loss: it is taken back
	causes
)

// codes are the causes' codes in package reason.
func codes() [causes]reason.Code {
	return [causes]reason.Code{
		Started: reason.FollowStarted, Holding: reason.FollowHolding, Queue: reason.FollowQueue,
		Draining: reason.FollowDraining, Drained: reason.FollowDrained, Room: reason.FollowRoom,
		NearFailed: reason.FollowNearFailed, NoHelp: reason.FollowNoHelp, OtherWay: reason.FollowOtherWay, Outage: reason.FollowOutage,
		Returned: reason.FollowReturned, Idle: reason.FollowIdle, Blind: reason.FollowBlind,
		Gliding: reason.FollowGliding, Set: reason.FollowSet, Trying: reason.FollowTrying, Loss: reason.FollowLoss, OwnLoss: reason.FollowOwnLoss,
	}
}

// Code returns the cause's code in package reason, for logs and metrics.
func (c Cause) Code() reason.Code {
	if c >= causes {
		return ""
	}
	return codes()[c]
}

// A Why is a cause with its figures.
type Why struct {
	Cause     Cause
	Direction Direction
	From, To  unit.Rate     // the shaper's rate before and after
	Capacity  unit.Rate     // what the line is taken to carry; 0: not known
	Delay     time.Duration // added by the line's queue
}

// Reason returns the same as data that can be said in words.
func (w Why) Reason() reason.Reason {
	return reason.Of(w.Cause.Code(), "direction", w.Direction.String(), "from_bps", float64(w.From), "to_bps", float64(w.To),
		"capacity_bps", float64(w.Capacity), "delay_ms", unit.Ms(w.Delay))
}

// MarshalJSON writes the reason.
func (w Why) MarshalJSON() ([]byte, error) { return w.Reason().MarshalJSON() }

// UnmarshalJSON reads what MarshalJSON wrote. A cause that is not known here has no code.
func (w *Why) UnmarshalJSON(b []byte) error {
	var r reason.Reason
	if err := r.UnmarshalJSON(b); err != nil {
		return err
	}
	*w = Why{Cause: causes}
	for c, code := range codes() {
		if code == r.Code {
			w.Cause = Cause(c)
		}
	}
	for _, a := range r.Args {
		if a.Name == "direction" && a.Value == Up.String() {
			w.Direction = Up
		}
		v, _ := a.Value.(float64)
		switch a.Name {
		case "from_bps":
			w.From = unit.Rate(v)
		case "to_bps":
			w.To = unit.Rate(v)
		case "capacity_bps":
			w.Capacity = unit.Rate(v)
		case "delay_ms":
			w.Delay = unit.FromMs(v)
		}
	}
	return nil
}
