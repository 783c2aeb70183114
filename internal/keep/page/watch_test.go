package page_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"unbloat/internal/keep/daemon"
	"unbloat/internal/keep/flows"
	"unbloat/internal/keep/page"
)

// The home's connections are read while nobody waits for them: a panic there is told, and
// they are read again.
func TestPanicWhileConnectionsAreRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reads, panics := 0, 0
		s := page.NewSource(page.SourceOptions{Daemon: new(daemon.Daemon).Page(),
			Each:     func(context.Context, func(flows.Flow)) error { reads++; panic("a connection") },
			Panicked: func(any, []byte) { panics++ }})
		for range 3 {
			s.State(t.Context())
			time.Sleep(2 * time.Second)
			synctest.Wait()
		}
		if reads != 3 || panics != 3 {
			t.Errorf("%d reads, %d panics", reads, panics)
		}
	})
}
