package phases

import (
	"context"
	"fmt"
	"sync"
	"time"

	"unbloat/internal/measure/netio"
	"unbloat/internal/measure/probe"
	"unbloat/unit"
)

// A Socket carries the datagrams of one stream of probes. *netio.Datagram is one.
type Socket interface {
	Send([]byte) error
	Drain(receive func(at unit.Instant, b []byte)) error
	Steps() int
	Close() error
}

// A ProbeLoop keeps the schedule of one probe.Session on one Socket: it sends when
// probes are due, and takes in what has come each time it wakes. It is a Prober.
type ProbeLoop struct {
	clock    *netio.Clock
	interval time.Duration
	oneWay   bool
	socket   Socket
	sleep    *netio.Sleeper
	done     chan struct{}

	mu      sync.Mutex
	session *probe.Session
	ending  bool // nothing more is sent
	end     unit.Instant
	gone    bool
	err     error
}

// StartProbeLoop starts a session's probes on the socket, which it owns from then
// on. Zero Start takes one interval from now.
func StartProbeLoop(clock *netio.Clock, socket Socket, cfg probe.Config) (*ProbeLoop, error) {
	sleep, err := netio.NewSleeper(clock)
	if err != nil {
		socket.Close()
		return nil, fmt.Errorf("start probes: %w", err)
	}
	if cfg.Start == 0 {
		cfg.Start = clock.Now().Add(cfg.Interval)
	}
	d := &ProbeLoop{
		clock: clock, interval: cfg.Interval, oneWay: cfg.OneWay, socket: socket, sleep: sleep,
		done: make(chan struct{}), session: probe.NewSession(cfg),
	}
	go d.run() // Close and await wait for it
	return d, nil
}

func (d *ProbeLoop) run() {
	defer close(d.done)
	defer d.socket.Close()
	defer d.sleep.Close()
	release := netio.Urgent()
	defer release()
	receive := func(at unit.Instant, b []byte) { _ = d.session.Receive(at, b) } // strangers' datagrams change nothing
	for {
		d.mu.Lock()
		now := d.clock.Now()
		b, next := d.session.Poll(now)
		if b != nil {
			d.err = d.socket.Send(b)
		}
		if err := d.socket.Drain(receive); err != nil {
			d.err = err
		}
		over := d.gone || d.err != nil ||
			d.ending && next == 0 && (d.oneWay || d.session.Settled(d.end, now, Grace))
		d.mu.Unlock()
		if next == 0 {
			next = now.Add(max(d.interval, DefaultInterval))
		}
		if over || !d.sleep.Until(next) {
			return
		}
	}
}

// finish ends the schedule and waits for the answers under way, at most Grace.
func (d *ProbeLoop) finish(ctx context.Context) error {
	d.mu.Lock()
	d.ending, d.end = true, d.clock.Now()
	d.session.Stop(d.end)
	d.mu.Unlock()
	select {
	case <-d.done:
	case <-ctx.Done():
		_ = d.Close()
		return fmt.Errorf("wait for probes under way: %w", context.Cause(ctx))
	}
	return d.err
}

// Samples implements Prober: fates resolved as far as answers tell.
func (d *ProbeLoop) Samples(from, to unit.Instant) ([]probe.Sample, []probe.Skip) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.session.Resolve(probe.NoFinalCount)
	return d.session.Samples(from, to), d.session.Skips(from, to)
}

// Settled implements Prober.
func (d *ProbeLoop) Settled(at unit.Instant) (bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.session.Settled(at, d.clock.Now(), Grace), d.err
}

// Resolve implements Prober: there is no server to ask.
func (d *ProbeLoop) Resolve(context.Context) error { return nil }

// resolve gives the session the server's final count.
func (d *ProbeLoop) resolve(count int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.session.Resolve(count)
}

// Steps implements Prober.
func (d *ProbeLoop) Steps() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.socket.Steps()
}

// PathChanges returns how often the answers began to come by another path,
// where the socket reports it.
func (d *ProbeLoop) PathChanges() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return socketChanges(d.socket)
}

func socketChanges(s Socket) int {
	if w, ok := s.(interface{ PathChanges() int }); ok {
		return w.PathChanges()
	}
	return 0
}

// Close implements Prober: the stream ends at once.
func (d *ProbeLoop) Close() error {
	d.mu.Lock()
	d.gone = true
	d.mu.Unlock()
	d.sleep.Close()
	<-d.done
	return nil
}
