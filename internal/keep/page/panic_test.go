package page_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"unbloat/internal/keep/daemon"
	"unbloat/internal/keep/page"
)

// A panickyRouter panics at what it is asked.
type panickyRouter struct{ *fakeRouter }

func (panickyRouter) State(context.Context) page.State                    { panic("state") }
func (panickyRouter) Events(context.Context) (page.Events, error)         { panic("events") }
func (panickyRouter) Run(context.Context, page.Run) (page.Running, error) { panic("run") }

// A panic ends the request that has brought it about, and a stream goes on: what makes
// the State each second is in nobody's request.
func TestPanicEndsOneRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		panics := 0
		w := newWorld(t)
		w.start(func(o *page.Options) {
			o.Router = panickyRouter{w.router}
			o.Panicked = func(_ any, stack []byte) {
				if panics++; !strings.Contains(string(stack), "panic_test.go:") {
					t.Errorf("%s", stack)
				}
			}
		})
		b := w.admin()
		if s, code := b.get("/api/events"); s != 500 || code != daemon.CodeFailed {
			t.Errorf("events: %d %s", s, code)
		}
		if s, code := b.post("/api/run", `{"wan":"eth0","kind":"test"}`); s != 500 || code != daemon.CodeFailed {
			t.Errorf("run: %d %s", s, code)
		}
		if s, _ := b.get("/api/stream"); s != 200 || panics != 2 {
			t.Fatalf("stream: %d, after %d panics", s, panics)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		sent := 0
		go b.stream(ctx, func([]byte) error { sent++; return nil })
		time.Sleep(10*time.Second + time.Millisecond)
		if sent < 10 || panics < 10 {
			t.Errorf("%d states, %d panics", sent, panics)
		}
		if s, _ := b.get("/api/schedule"); s != 200 {
			t.Errorf("schedule: %d", s)
		}
	})
}
