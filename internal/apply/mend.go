package apply

import (
	"bytes"
	"context"
	"encoding/json"
	"time"

	"unbloat/internal/plan"
	"unbloat/internal/platform"
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
// returns an error, the router is as before.
func (e *Engine) Mend(ctx context.Context, p plan.Plan) (Mended, error) { return e.mend(ctx, p, nil) }

func (e *Engine) mend(ctx context.Context, p plan.Plan, running *plan.Plan) (m Mended, err error) {
	t, err := e.Begin(ctx, p, Options{Confirm: mendTime, Hold: true, IfAny: true, running: running})
	if err != nil {
		return m, err
	}
	defer t.Close()
	m.Ran, m.Differences = t.Ran, t.Differed
	if t.Unchanged && e.recorded(t.journal) {
		return m, nil
	}
	return m, t.Commit()
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
