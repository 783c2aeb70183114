package page

import (
	"bytes"
	"context"
	"encoding/json"
	"sync"
	"time"

	"unbloat/guard"
	"unbloat/internal/keep/daemon"
)

// mostViewers are the streams at once, of each role.
const mostViewers = 16

// streamEvery is the time between two States of a stream.
const streamEvery = time.Second

// A hub makes the State once a second for all who look, and encodes it once. While
// nobody looks it does nothing.
type hub struct {
	o Options

	making sync.Mutex // one State at a time

	mu      sync.Mutex
	state   []byte // as JSON, without a line's end
	at      time.Time
	viewers map[*viewer]struct{}
	stop    chan struct{} // closed when the last viewer leaves; nil: nobody looks
}

// A viewer is a stream. Whoever is too slow misses States, and delays nobody.
type viewer struct {
	role Role
	next chan []byte
}

func newHub(o Options) *hub { return &hub{o: o, viewers: map[*viewer]struct{}{}} }

// now returns the State, at most a second old.
func (h *hub) now(ctx context.Context) []byte {
	h.mu.Lock()
	state, age := h.state, time.Since(h.at)
	h.mu.Unlock()
	if state != nil && age < streamEvery {
		return state
	}
	return h.make(ctx)
}

// changed says that the State is another one: the next who asks gets a new one.
func (h *hub) changed() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.state = nil
}

// make makes the State and keeps it.
func (h *hub) make(ctx context.Context) []byte {
	h.making.Lock()
	defer h.making.Unlock()
	h.mu.Lock()
	if h.state != nil && time.Since(h.at) < streamEvery/2 { // somebody else just made it
		defer h.mu.Unlock()
		return h.state
	}
	h.mu.Unlock()
	var b []byte
	guard.Contain(func() { b, _ = json.Marshal(h.o.Router.State(ctx)) }, h.o.Panicked)
	if b == nil { // it has a figure that JSON does not have, or could not be made
		b = []byte(`{"wans":[],"machines":[]}`)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.state, h.at = b, time.Now()
	return b
}

// stream answers with the State, now and each second, until the session ends.
func (h *hub) stream(s *session) Response {
	v := &viewer{role: s.role, next: make(chan []byte, 1)}
	if !h.enter(v) {
		return failure(&daemon.Error{Code: CodeCrowded, Text: "too many look at the page"})
	}
	return Response{Status: 200, Header: [][2]string{{"Content-Type", "text/event-stream"}, {"Cache-Control", "no-store"}},
		Stream: func(ctx context.Context, send func([]byte) error) {
			defer h.leave(v)
			if send(event("state", h.now(ctx))) != nil {
				return
			}
			for {
				select {
				case <-ctx.Done():
					return
				case <-s.ended:
					_ = send(event("session", []byte("{}")))
					return
				case b := <-v.next:
					if send(b) != nil {
						return
					}
				}
			}
		}}
}

// event is one event of a stream. JSON has no line's end in it.
func event(name string, data []byte) []byte {
	return bytes.Join([][]byte{[]byte("event: " + name + "\ndata: "), data, []byte("\n\n")}, nil)
}

func (h *hub) enter(v *viewer) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := 0
	for o := range h.viewers {
		if o.role == v.role {
			n++
		}
	}
	if n >= mostViewers {
		return false
	}
	h.viewers[v] = struct{}{}
	if h.stop == nil {
		h.stop = make(chan struct{})
		go h.run(h.stop)
	}
	return true
}

func (h *hub) leave(v *viewer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.viewers, v)
	if len(h.viewers) == 0 && h.stop != nil {
		close(h.stop)
		h.stop = nil
	}
}

// run makes the State each second until nobody looks.
func (h *hub) run(stop chan struct{}) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	tick := time.NewTicker(streamEvery)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
		}
		b := event("state", h.make(ctx))
		h.mu.Lock()
		for v := range h.viewers {
			select {
			case v.next <- b:
			default: // it has not taken the last one
			}
		}
		h.mu.Unlock()
	}
}
