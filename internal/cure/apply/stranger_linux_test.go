package apply_test

import (
	"errors"
	"path/filepath"
	"testing"

	"unbloat/guard"
	"unbloat/internal/cure/apply"
	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform"
	"unbloat/testkit/await"
	"unbloat/testkit/linuxfake"
)

// TestStrangersJournal: a journal says what is done as root, so neither it nor the record of
// a change is believed where another user can write, and no change is made from there.
func TestStrangersJournal(t *testing.T) {
	tmp := await.NobodysTmp(t)
	await.NobodyDoes(t, tmp, `mkdir -m 777 theirs; for f in journal committed; do echo '{"schema":"unbloat.journal/1","id":"1","wan":"wan","deadman_at":"ssh://theirs"}' >theirs/wan.$f.json; done`)
	k := linuxfake.New()
	e := &apply.Engine{Runner: k, Dir: filepath.Join(tmp, "theirs")}
	_, pending := e.Pending("wan")
	_, record := e.Record("wan")
	_, id := e.RecordID("wan")
	_, begun := e.Begin(t.Context(), plan.Plan{WAN: "wan"}, apply.Options{})
	_, _, reverted := e.Revert(t.Context(), apply.Journal{WAN: "wan"})
	for what, err := range map[string]error{"the journal": pending, "the record": record, "its id": id, "begin": begun, "revert": reverted} {
		var strange *guard.UntrustedError
		if !errors.As(err, &strange) {
			t.Errorf("%s: %v", what, err)
		}
	}
	var pre *platform.PreconditionError
	if !errors.As(begun, &pre) || len(k.Ran) > 0 {
		t.Errorf("begin: %v, and this was run: %q", begun, k.Ran)
	}
}
