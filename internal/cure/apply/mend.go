package apply

import (
	"bytes"
	"context"
	"encoding/json"
	"time"

	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform"
)

// A Mended says what Mend had to do.
type Mended struct {
	Ran         []platform.Step // commands that changed the router; none if it was as it is wanted
	Differences []string        // how it was not as it is wanted, as text for people
}

// mendTime bounds a mending: should this process hang, the watchdog undoes it then.
const mendTime = 2 * time.Minute

// Mend puts the router into the state that the plan asks for, if it is not in it,
// and commits that. If there is nothing to do it runs no command that changes
// anything, starts no watchdog and writes nothing, so it can be called often. If it
// returns an error, the router is as before. The shapers keep the rates that Retune gave
// them.
func (e *Engine) Mend(ctx context.Context, p plan.Plan) (Mended, error) {
	return e.put(ctx, p, e.following(p))
}

// put is Mend for shapers that have the rates of running; nil: those of p.
func (e *Engine) put(ctx context.Context, p plan.Plan, running *plan.Plan) (m Mended, err error) {
	o, whole := Options{Confirm: mendTime, Hold: true, IfAny: true}, p
	if running != nil && e.apart(p) {
		o.running = running
	} else if running != nil {
		whole = *running
	}
	t, err := e.Begin(ctx, whole, o)
	if err != nil {
		return m, err
	}
	defer t.Close()
	m.Ran, m.Differences = t.Ran, t.Differed
	if !t.Unchanged || !e.recorded(t.journal) {
		if err := t.Commit(); err != nil {
			return m, err
		}
	}
	if r := e.Rates; r != nil {
		r.settled, r.running = &p, running
		if r.record, err = e.RecordID(p.WAN); err != nil {
			return m, err
		}
	}
	if o.running == nil {
		return m, nil
	}
	return m, e.retune(ctx, p, *running, t.read) // what was mended has the settled rates
}

// recorded reports whether the record of the journal's WAN says what the journal
// says.
func (e *Engine) recorded(j Journal) bool {
	r, err := e.Record(j.WAN)
	if err != nil || r == nil {
		return false
	}
	was, errWas := json.Marshal(r.Plan)
	is, errIs := json.Marshal(j.Plan)
	return errWas == nil && errIs == nil && bytes.Equal(was, is) && same(r.Origin, j.Origin) && same(r.Wanted, j.Wanted)
}

// same reports whether two states have the same text: the record's is indented.
func same(a, b platform.State) bool {
	var x, y bytes.Buffer
	return json.Compact(&x, a) == nil && json.Compact(&y, b) == nil && bytes.Equal(x.Bytes(), y.Bytes())
}
