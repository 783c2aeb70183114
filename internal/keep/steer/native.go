package steer

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"time"

	"unbloat/internal/keep/delay"
	"unbloat/internal/measure/netio"
	"unbloat/unit"
)

// A native keeps a stream of probes open at an unbloat serve. A server ends its
// sessions now and then, and a line loses them: a goroutine opens the next.
type native struct {
	config Config
	target int
	stop   context.CancelFunc
	done   sync.WaitGroup

	mu     sync.Mutex
	fresh  *stream   // opened, and not taken up yet
	silent chan bool // holds one: the stream that is in use does not answer

	// Of the Gauge's goroutine.
	now      *stream
	asked    int // probes since the last answer
	reported bool
}

// A stream is what the server has agreed to.
type stream struct {
	socket *netio.Datagram
	token  uint64
}

const (
	// nativeSilence is how many probes in a row go unanswered before the session is
	// taken to have ended.
	nativeSilence = 20
	redialLeast   = 30 * time.Second
	redialMost    = 10 * time.Minute
	dialTime      = 20 * time.Second
)

func startNative(c Config, target int) *native {
	ctx, stop := context.WithCancel(context.Background()) // close ends it
	n := &native{config: c, target: target, stop: stop, silent: make(chan bool, 1)}
	n.done.Go(func() { n.keep(ctx) })
	return n
}

// keep opens one session after the other.
func (n *native) keep(ctx context.Context) {
	for pause := redialLeast; ctx.Err() == nil; {
		server, err := n.dial(ctx)
		if err == nil {
			pause = redialLeast
			select {
			case <-ctx.Done():
			case <-n.silent:
			}
			_ = server.Close()
			continue
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
		pause = min(2*pause, redialMost)
	}
}

func (n *native) dial(ctx context.Context) (Stream, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	server, err := n.config.Echo(ctx)
	if err != nil {
		return server, err
	}
	socket, err := netio.DialDatagram(n.config.Clock, netip.AddrPortFrom(server.To.Addr().Unmap(), server.To.Port()), 0)
	if err != nil {
		return server, errors.Join(err, server.Close())
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.fresh != nil {
		_ = n.fresh.socket.Close()
	}
	n.fresh = &stream{socket, server.Token}
	return server, nil
}

// send sends a probe on the stream that is in use.
func (n *native) send(b []byte) error {
	if n == nil || n.now == nil {
		return nil
	}
	if n.asked++; n.asked > nativeSilence && !n.reported {
		n.reported = true
		select {
		case n.silent <- true:
		default:
		}
	}
	return n.now.socket.Send(b)
}

// drain takes up a new stream, and hands over what has come.
func (n *native) drain(p *delay.Prober, receive func(delay.Sample)) error {
	n.mu.Lock()
	fresh := n.fresh
	n.fresh = nil
	n.mu.Unlock()
	if fresh != nil {
		if n.now != nil {
			_ = n.now.socket.Close()
		}
		n.now, n.asked, n.reported = fresh, 0, false
		p.Open(n.target, fresh.token)
	}
	if n.now == nil {
		return nil
	}
	return n.now.socket.Drain(func(at unit.Instant, b []byte) {
		if s, ok := p.Native(at, n.target, b); ok {
			n.asked = 0
			receive(s)
		}
	})
}

// close ends the session and waits for the goroutine.
func (n *native) close() error {
	n.stop()
	n.done.Wait()
	for _, s := range []*stream{n.now, n.fresh} {
		if s != nil {
			_ = s.socket.Close()
		}
	}
	return nil
}
