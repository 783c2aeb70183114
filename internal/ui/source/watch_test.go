package source_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"unbloat/internal/flows"
	"unbloat/internal/ui/source"
)

// The home's connections are read while nobody waits for them: a panic there is told, and
// they are read again.
func TestPanicWhileConnectionsAreRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reads, panics := 0, 0
		s := source.New(source.Options{Ask: func(context.Context, string, string, string, any, any) error { return nil },
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
