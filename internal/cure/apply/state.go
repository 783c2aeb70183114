package apply

import "fmt"

// Phase is the state of a transaction. Its journal stores it.
type Phase string

// States of a transaction. Applying and Held belong to a running process; if it
// ends, the change is undone at once. Armed waits for `confirm` until the deadline.
// Closing has asked a watchdog on the router to stop, and waits for the answer. A
// closed transaction has no journal.
const (
	Applying  Phase = "applying"
	Held      Phase = "held"
	Armed     Phase = "armed"
	Closing   Phase = "closing"
	Undoing   Phase = "undoing"
	Committed Phase = "committed"
)

// following lists the next states that each state allows.
//
//	Applying ── verified ──> Held, Armed ── retuned ──> Applying
//	Held, Armed ── commit ──> Closing (a watchdog elsewhere) ──> Committed
//	any but Committed ── revert, deadline, owner gone, failure ──> Undoing
func following() map[Phase][]Phase {
	return map[Phase][]Phase{
		Applying:  {Applying, Held, Armed, Closing, Committed, Undoing},
		Held:      {Held, Applying, Closing, Committed, Undoing},
		Armed:     {Armed, Applying, Closing, Committed, Undoing},
		Closing:   {Closing, Committed, Undoing},
		Undoing:   {Undoing},
		Committed: {Committed},
	}
}

// enter changes the state. It fails if following does not allow that: this would be
// a bug of this program, and must not reach the router.
func (j *Journal) enter(p Phase) error {
	for _, next := range following()[j.Phase] {
		if next == p {
			j.Phase = p
			return nil
		}
	}
	return fmt.Errorf("change %s: a transaction that is %s can't become %s", j.WAN, j.Phase, p)
}

// A finding is the situation in which a process finds a journal.
type finding struct {
	Owner    bool // the process that made the transaction still runs
	Watchdog bool // a watchdog runs that undoes it at the deadline
	SameBoot bool // the machine has not rebooted since
	Late     bool // the deadline has passed
}

// An action is what a process does about a journal that it finds.
type action string

// Actions.
const (
	leave    action = "leave"  // its owner is working on it
	await    action = "await"  // it waits for confirmation
	finish   action = "finish" // it is committed, but the record is not written
	askAgain action = "ask"    // whether the watchdog on the router stopped in time
	takeBack action = "undo"
)

// decide returns what to do about a transaction. All who find one use it: the next
// command, confirm, and the watchdog.
func decide(p Phase, f finding) action {
	current := f.SameBoot && !f.Late
	switch p {
	case Committed:
		if f.Owner && current {
			return leave
		}
		return finish
	case Closing:
		return askAgain
	case Armed:
		if f.Watchdog && current {
			return await
		}
	case Applying, Held:
		if f.Owner && current {
			return leave
		}
	}
	return takeBack
}

// found returns the situation of a journal.
func (e *Engine) found(j *Journal, owner, watchdog bool) finding {
	return finding{Owner: owner, Watchdog: watchdog, SameBoot: j.Boot == bootID(), Late: j.late(e.uptime())}
}
