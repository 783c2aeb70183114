package protocol

import (
	"context"
	"sync"
	"time"

	"unbloat/internal/measure/netio"
	"unbloat/internal/measure/phases"
	"unbloat/internal/measure/probe"
	"unbloat/unit"
)

// StartCalls starts probes that are calls. A call gets the instant it began and
// returns its round trip; an error means a lost probe.
func StartCalls(p Probing, do func(ctx context.Context, begun unit.Instant) (time.Duration, error)) (phases.Prober, error) {
	return phases.StartProbeLoop(p.Clock, newCalls(p.Clock, do), probe.Config{Interval: p.Interval, Size: MinProbeSize, Codec: Echo{Nonce: nonce()}})
}

// calls is a measure.Socket whose datagrams are calls, each in a goroutine of
// its own, so that one that is held up does not hold up the next. What a call
// that succeeds sends back is what was sent.
type calls struct {
	clock *netio.Clock
	do    func(ctx context.Context, begun unit.Instant) (time.Duration, error)
	ctx   context.Context
	stop  context.CancelFunc
	wg    sync.WaitGroup
	slots chan struct{}

	mu   sync.Mutex
	done []called
}

type called struct {
	at unit.Instant
	b  []byte
}

// maxCalls bounds the calls under way: what is due beyond it is lost, as a
// server that does not answer 256 of them is no use.
const maxCalls = 256

func newCalls(clock *netio.Clock, do func(context.Context, unit.Instant) (time.Duration, error)) *calls {
	c := &calls{clock: clock, do: do, slots: make(chan struct{}, maxCalls)}
	c.ctx, c.stop = context.WithCancel(context.Background()) // Close ends it
	return c
}

// Send implements measure.Socket.
func (c *calls) Send(b []byte) error {
	select {
	case c.slots <- struct{}{}:
	default:
		return nil
	}
	begun := c.clock.Now()
	sent := append([]byte(nil), b...)
	c.wg.Go(func() {
		defer func() { <-c.slots }()
		ctx, cancel := context.WithTimeout(c.ctx, phases.Grace)
		defer cancel()
		took, err := c.do(ctx, begun)
		if err != nil {
			return // no answer is a lost probe
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.done = append(c.done, called{begun.Add(took), sent})
	})
	return nil
}

// Drain implements measure.Socket.
func (c *calls) Drain(receive func(at unit.Instant, b []byte)) error {
	c.mu.Lock()
	done := c.done
	c.done = nil
	c.mu.Unlock()
	for _, d := range done {
		receive(d.at, d.b)
	}
	return nil
}

// Steps implements measure.Socket: calls are timed by a clock that never steps.
func (c *calls) Steps() int { return 0 }

// Close ends all calls and waits for them.
func (c *calls) Close() error {
	c.stop()
	c.wg.Wait()
	return nil
}
