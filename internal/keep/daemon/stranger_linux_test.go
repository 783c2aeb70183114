package daemon

import (
	"errors"
	"path/filepath"
	"testing"

	"unbloat/guard"
	"unbloat/testkit/await"
)

// TestStrangersSocket: what listens where another user could make a socket is not taken for
// the daemon.
func TestStrangersSocket(t *testing.T) {
	tmp := await.NobodysTmp(t)
	await.NobodyDoes(t, tmp, `mkdir theirs; : >theirs/unbloatd.sock`)
	var strange *guard.UntrustedError
	if c, err := Dial(t.Context(), Socket(filepath.Join(tmp, "theirs"))); !errors.As(err, &strange) {
		t.Errorf("%v is asked (%v)", c, err)
	}
	if _, err := Dial(t.Context(), Socket(filepath.Join(tmp, "nothing"))); !errors.Is(err, ErrNoDaemon) {
		t.Errorf("where nothing is: %v", err)
	}
}
