package apply

import "fmt"

// Phase is the state of a transaction, as its journal stores it.
type Phase string

// States of a transaction. Applying and Held belong to a living process: once it
// is gone the change is undone at once. Armed waits for `confirm` until the
// deadline. Closing has told a watchdog elsewhere to end, and not yet heard
// whether that was in time. A journal that is gone is a transaction that is over.
const (
	Applying  Phase = "applying"
	Held      Phase = "held"
	Armed     Phase = "armed"
	Closing   Phase = "closing"
	Undoing   Phase = "undoing"
	Committed Phase = "committed"
)

// following lists the states that a transaction may go to from each.
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

// enter changes the state. A way that following does not list is a mistake of
// this program, which must not reach the router.
func (j *Journal) enter(p Phase) error {
	for _, next := range following()[j.Phase] {
		if next == p {
			j.Phase = p
			return nil
		}
	}
	return fmt.Errorf("change %s: a transaction that is %s can't become %s", j.WAN, j.Phase, p)
}

// A finding is what whoever comes upon a journal sees around it.
type finding struct {
	Owner    bool // the process that made the transaction is alive
	Watchdog bool // something undoes it at the deadline
	SameBoot bool // as when the journal was written
	Late     bool // the deadline has passed
}

// An action is what whoever comes upon a journal has to do about it.
type action string

// Actions.
const (
	leave    action = "leave"  // its owner is at work
	await    action = "await"  // it waits for confirmation
	finish   action = "finish" // it is committed, but for the rest of the bookkeeping
	askAgain action = "ask"    // whether the watchdog elsewhere ended in time
	takeBack action = "undo"
)

// decide says what is to be done about a transaction. Everybody who comes upon
// one goes by it: the next command, confirm, and the watchdog.
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

// found looks around a journal.
func (e *Engine) found(j *Journal, owner, watchdog bool) finding {
	return finding{Owner: owner, Watchdog: watchdog, SameBoot: j.Boot == bootID(), Late: j.late(e.uptime())}
}
