// Package supervise decides when the daemon looks at a WAN, and when it may change it.
// It is pure: it is told the time, what has happened and what came of the last
// action, and it says what to do next. It knows no platform.
package supervise

import (
	"slices"
	"time"
)

// A State is how a WAN is kept.
type State string

// States of a WAN.
const (
	Starting  State = "starting"  // nobody has looked yet
	InPlace   State = "in place"  // what is there is what is wanted
	Waiting   State = "waiting"   // the interface, or something else that is needed, is not there
	Failing   State = "failing"   // it could not be put in place; it is tried again
	Busy      State = "busy"      // another process is changing it, or its change waits for confirmation
	Held      State = "held"      // somebody works on it with the daemon's leave
	Suspended State = "suspended" // off, until somebody turns it on
	Foreign   State = "foreign"   // another shaper was there first, and is left alone
	Contested State = "contested" // another shaper came back again and again; it is left alone
)

// States are all of them.
func States() []State {
	return []State{Starting, InPlace, Waiting, Failing, Busy, Held, Suspended, Foreign, Contested}
}

// Times and counts of a Supervisor.
const (
	quiet      = 30 * time.Millisecond  // without a further change, before it is looked at
	mostQuiet  = 200 * time.Millisecond // after the first change it is looked at anyway
	firstRetry = time.Second            // after a failure; doubles
	mostRetry  = time.Minute
	mostWait   = 10 * time.Second       // between looks for what is missing
	busyRetry  = 250 * time.Millisecond // doubles: a change may wait minutes for its confirmation
	mostBusy   = 4 * time.Second

	// MostTakeovers is how often the daemon takes a WAN back from another shaper
	// within ContestWindow. Once more, and it leaves the WAN alone.
	MostTakeovers = 2
	ContestWindow = 10 * time.Minute

	manyMends  = 10 // within mendWindow: from then on it mends only each slowMend
	mendWindow = time.Minute
	slowMend   = 10 * time.Second

	manyFutile = 5 // changes one after the other that were none of the WAN's; then each is looked at after slowLook
	slowLook   = 2 * time.Second
)

// An Action is what is to be done with a WAN. The zero Action is nothing.
type Action struct {
	Look   bool // compare what is there with what is wanted, and mend the difference
	Replan bool // read the router's capabilities and make the plan again before that
	Take   bool // take over from another's shaper
}

// A Result says what came of an Action.
type Result int

// Results.
const (
	Done     Result = iota // what is there is what is wanted
	Missing                // something is not there that is needed
	Occupied               // another's shaper is there
	Locked                 // another process is changing the WAN, or its change waits for confirmation
	Failed                 // anything else
)

// A Supervisor decides about one WAN. It is not safe for concurrent use.
type Supervisor struct {
	poll time.Duration

	state     State
	owned     bool // what is there was ours before: another's shaper came later
	held      bool
	suspended bool
	replan    bool
	take      bool
	first     time.Time // first change that nobody has looked at; zero: none
	last      time.Time
	retry     time.Time // when to try again; zero: nothing to try
	next      time.Time // when to look though nothing has happened
	looked    time.Time // the last look
	futile    int       // looks because of a change that found nothing to do
	backoff   time.Duration
	mends     []time.Time
	contests  []time.Time
	taking    bool // the last action took over
}

// New returns a Supervisor that looks at its WAN at once, and then every poll. owned
// says that the shaping that is there is ours, from an earlier run.
func New(now time.Time, poll time.Duration, owned, suspended bool) *Supervisor {
	k := &Supervisor{poll: poll, state: Starting, owned: owned, replan: true, retry: now, suspended: suspended}
	if suspended {
		k.state = Suspended
	}
	return k
}

// State returns how the WAN is kept.
func (k *Supervisor) State() State {
	switch {
	case k.held:
		return Held
	case k.suspended:
		return Suspended
	}
	return k.state
}

// Changed says that something of the WAN may have changed: a queue, a table.
func (k *Supervisor) Changed(now time.Time) {
	if k.first.IsZero() {
		k.first = now
	}
	k.last = now
}

// Replaced says that the interface came, went or is another one, so that the plan
// has to be made again.
func (k *Supervisor) Replaced(now time.Time) {
	k.replan = true
	k.Changed(now)
}

// Hold leaves the WAN to somebody else until Release.
func (k *Supervisor) Hold() { k.held = true }

// Release ends Hold. The WAN is looked at at once.
func (k *Supervisor) Release(now time.Time) {
	k.held = false
	k.again(now)
}

// Suspend leaves the WAN alone until Resume.
func (k *Supervisor) Suspend() { k.suspended, k.state = true, Suspended }

// Resume ends Suspend, and begins afresh as Afresh does.
func (k *Supervisor) Resume(now time.Time) {
	k.suspended = false
	k.Afresh(now)
}

// Afresh makes the plan again and looks at once, unless the WAN is suspended or
// held. What was left alone because another's shaper kept coming back is tried
// again.
func (k *Supervisor) Afresh(now time.Time) {
	k.contests, k.mends, k.backoff = nil, nil, 0
	if k.state == Contested || k.state == Foreign || k.state == Suspended && !k.suspended {
		k.state = Starting
	}
	k.replan = true
	k.again(now)
}

// Planned says that the plan is what it is to be, though Afresh or Resume was called:
// somebody has just applied it.
func (k *Supervisor) Planned() { k.replan = false }

// Own says that what is there is ours now: somebody applied it through the daemon.
func (k *Supervisor) Own() { k.owned = true }

func (k *Supervisor) again(now time.Time) { k.retry, k.take = now, false }

// Next returns what to do now. If that is nothing, it returns when to ask again;
// zero: not before something happens.
func (k *Supervisor) Next(now time.Time) (Action, time.Time) {
	if k.held || k.suspended {
		return Action{}, time.Time{}
	}
	due := k.due()
	if due.IsZero() || now.Before(due) {
		return Action{}, due
	}
	a := Action{Look: true, Replan: k.replan, Take: k.take}
	if k.first.IsZero() || now.Sub(k.looked) > mostWait {
		k.futile = 0
	} else {
		k.futile++
	}
	k.looked, k.taking = now, a.Take
	k.first, k.last, k.retry, k.take = time.Time{}, time.Time{}, time.Time{}, false
	return a, time.Time{}
}

// due returns when the next look is due.
func (k *Supervisor) due() time.Time {
	due := k.next
	earlier := func(t time.Time) {
		if !t.IsZero() && (due.IsZero() || t.Before(due)) {
			due = t
		}
	}
	earlier(k.retry)
	if k.state == Contested { // only its own time: whoever fights changes things all the time
		return due
	}
	if !k.first.IsZero() {
		at := k.last.Add(quiet)
		if most := k.first.Add(mostQuiet); most.Before(at) {
			at = most
		}
		if slow := k.looked.Add(slowLook); k.futile >= manyFutile && slow.After(at) {
			at = slow
		}
		if n := len(k.mends); n >= manyMends {
			if slow := k.mends[n-1].Add(slowMend); slow.After(at) {
				at = slow
			}
		}
		earlier(at)
	}
	return due
}

// Report says what came of the last action. mended: something had to be changed.
func (k *Supervisor) Report(now time.Time, r Result, mended bool) {
	k.next = now.Add(k.poll) // from its end: a look may take longer than that
	within := func(times []time.Time, window time.Duration) []time.Time {
		return slices.DeleteFunc(times, func(t time.Time) bool { return now.Sub(t) > window })
	}
	if n := len(k.contests); k.taking && n > 0 && (r == Failed || r == Missing || r == Locked) {
		k.contests = k.contests[:n-1] // it was not taken over, so nobody put it back
	}
	k.taking = false
	k.contests, k.mends = within(k.contests, ContestWindow), within(k.mends, mendWindow)
	if r != Failed && r != Missing && r != Locked || (r == Locked) != (k.state == Busy) {
		k.backoff = 0
	}
	switch r {
	case Done:
		if mended {
			k.futile = 0
		}
		if mended && k.owned {
			k.mends = append(k.mends, now)
		}
		k.state, k.owned, k.replan = InPlace, true, false
	case Missing:
		k.state, k.replan = Waiting, true
		k.later(now, firstRetry, mostWait)
	case Occupied:
		k.occupied(now)
	case Locked:
		k.state = Busy
		k.later(now, busyRetry, mostBusy)
	case Failed:
		k.state, k.replan = Failing, true
		k.later(now, firstRetry, mostRetry)
	}
}

// later tries again after a time that doubles.
func (k *Supervisor) later(now time.Time, least, most time.Duration) {
	k.backoff = min(max(2*k.backoff, least), most)
	k.retry = now.Add(k.backoff)
}

// occupied decides what to do about another's shaper.
func (k *Supervisor) occupied(now time.Time) {
	switch {
	case !k.owned:
		k.state = Foreign
	case k.state == Contested:
	case len(k.contests) >= MostTakeovers:
		k.state = Contested
	default:
		k.contests = append(k.contests, now)
		k.take, k.retry = true, now
	}
}
