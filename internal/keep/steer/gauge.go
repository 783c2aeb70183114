// Sockets measure one WAN for the controller that follows it: it drives
// the sources of package delay with sockets, and reads the counters of the
// interface and of its queues. It decides nothing; whoever uses it asks
// reflectors when it likes, and reads what has come every 50 to 200 ms. Nothing
// wakes in between.

package steer

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"unbloat/internal/keep/delay"
	"unbloat/internal/measure/netio"
	"unbloat/unit"
)

// A Stream is what a server has agreed to answer until Close.
type Stream struct {
	To    netip.AddrPort
	Token uint64
	Close func() error
}

// Sockets measure one WAN. Its methods are for one goroutine.
type Sockets struct {
	config  Config
	prober  *delay.Prober
	watcher *delay.Watch
	icmp    netio.ReflectorSocket
	capture *netio.Capture
	links   *netio.LinkCounter
	native  *native
	names   []string
	counts  []netio.LinkCounts
	index   int // of the interface that capture watches
	steps   int
	missing []error
	retry   unit.Instant // when to try again to watch the interface
	dropped uint64       // segments, at the time of counted
	counted unit.Instant
}

// Counts are what the WAN's counters read.
type Counts struct {
	At      unit.Instant
	Link    netio.LinkCounts // its Queue shapes the upload
	Inbound netio.LinkCounts // of the interface that shapes the download; zero: there is none
	Loss    [2]delay.Loss    // of TCP's data, by follow.Direction
}

// retryEvery is how often an interface that could not be watched is tried again.
const retryEvery = 5 * time.Second

// OpenGauge opens the sources of a line: of the reflectors all Echo ones may be asked; at
// most one is Native, and only with c.Echo; its server hears of us when it is first
// asked. A source that this system does not have or
// does not allow is left out, and Missing says which; without reflectors and
// without TCP timestamps there is nothing to measure with, and Open fails.
func OpenGauge(c Config) (*Sockets, error) {
	var random [8]byte
	_, _ = rand.Read(random[:]) // never fails, it would rather end the program
	g := &Sockets{
		config: c, names: []string{c.Device, c.Inbound}, counts: make([]netio.LinkCounts, 2),
		prober:  delay.NewProber(c.Targets, binary.BigEndian.Uint16(random[:]), binary.BigEndian.Uint32(random[2:])),
		watcher: delay.NewWatch(delay.TrackerConfig{Seed: uint32(random[6])<<8 | uint32(random[7])}),
	}
	var err error
	if g.icmp, err = netio.OpenReflectors(c.Clock, c.Device); err != nil {
		g.missing = append(g.missing, err)
	}
	if err = g.watch(); err != nil {
		g.missing = append(g.missing, err)
	}
	if g.links, err = netio.OpenLinkCounter(); err != nil {
		g.missing = append(g.missing, err)
	}
	if g.icmp == nil && g.capture == nil {
		return nil, errors.Join(fmt.Errorf("measure the delay on %s: %w", c.Device, errors.Join(g.missing...)), g.Close())
	}
	return g, nil
}

// Missing says which sources this system does not have, each with what to do
// about it.
func (g *Sockets) Missing() []error { return g.missing }

// watch opens the capture of the interface that is there now.
func (g *Sockets) watch() error {
	c, err := netio.OpenCapture(g.config.Clock, g.config.Device)
	if err != nil {
		return err
	}
	if err := filter(c, g.watcher.Masks()); err != nil {
		return errors.Join(err, c.Close())
	}
	g.capture = c
	return nil
}

func filter(c *netio.Capture, m delay.Masks) error { return c.Filter(m.Stamp, m.Down, m.Up) }

// Ask asks a target. What cannot be sent now is lost, as on the line.
func (g *Sockets) Ask(now unit.Instant, i int) error {
	if g.native == nil && g.config.Echo != nil && g.config.Targets[i].Kind == delay.Native {
		g.native = startNative(g.config, i)
	}
	p, ok := g.prober.Ask(now, i)
	switch {
	case !ok:
		return nil
	case p.Native:
		return g.native.send(p.Data)
	case g.icmp == nil:
		return nil
	}
	return g.icmp.Send(p.To, p.Hops, p.Data)
}

// Read hands over the samples that have come since. Its errors are those of a
// WAN that is away; it can go on being called.
func (g *Sockets) Read(now unit.Instant, receive func(delay.Sample)) error {
	var why []error
	if g.icmp != nil && g.prober.Waiting() > 0 {
		why = append(why, g.icmp.Drain(func(at unit.Instant, from netip.Addr, b []byte) {
			if s, ok := g.prober.ICMP(at, from, b); ok {
				receive(s)
			}
		}))
	}
	if g.native != nil {
		why = append(why, g.native.drain(g.prober, receive))
	}
	g.prober.Expire(now)
	why = append(why, g.readSegments(now, receive))
	return errors.Join(why...)
}

func (g *Sockets) readSegments(now unit.Instant, receive func(delay.Sample)) error {
	if g.capture == nil {
		if now.Before(g.retry) {
			return nil
		}
		g.retry = now.Add(retryEvery)
		if err := g.watch(); err != nil {
			return nil // Missing has told it, or the interface is away
		}
		g.watcher.Reset()
	}
	missed, err := g.capture.Drain(func(p netio.Packet) {
		if s, ok := delay.ParsePacket(p.Type, p.Data); ok {
			g.watcher.Observe(p.At, p.Out, &s)
		}
	})
	if missed {
		g.watcher.Missed()
	}
	const countEvery = time.Second // it is a system call
	if now.Sub(g.counted) >= countEvery {
		g.counted, g.dropped = now, g.capture.Dropped()
	}
	if steps := g.capture.Steps(); steps != g.steps {
		g.steps = steps
		g.Reset()
	}
	if g.watcher.Collect(now, receive) {
		err = errors.Join(err, filter(g.capture, g.watcher.Masks()))
	}
	return err
}

// Count reads the counters. An interface that has gone and come again is watched
// anew. Errors wrap netio.ErrNotSupported where this system has none.
func (g *Sockets) Count(now unit.Instant) (Counts, error) {
	if g.links == nil {
		return Counts{}, fmt.Errorf("read the counters of %s: %w", g.config.Device, netio.ErrNotSupported)
	}
	if err := g.links.Read(g.names, g.counts); err != nil {
		return Counts{}, err
	}
	c := Counts{At: now, Link: g.counts[0], Inbound: g.counts[1], Loss: [2]delay.Loss{g.watcher.Loss(false), g.watcher.Loss(true)}}
	if c.Link.Index != g.index && c.Link.Index != 0 {
		if g.index != 0 && g.capture != nil {
			_ = g.capture.Close()
			g.capture, g.retry = nil, 0
			g.Reset()
		}
		g.index = c.Link.Index
	}
	return c, nil
}

// Reset forgets what is under way: after the WAN's address or route has changed.
func (g *Sockets) Reset() {
	g.prober.Reset()
	g.watcher.Reset()
}

// A GaugeStats counts what the sources did since OpenGauge.
type GaugeStats struct {
	Probes     uint64 // sent
	ProbeBytes uint64 // of Ethernet frames, questions and answers
	Tracker    delay.TrackerStats
	Dropped    uint64 // segments that did not fit into the ring
}

// Stats returns the counters.
func (g *Sockets) Stats() GaugeStats {
	s := GaugeStats{Tracker: g.watcher.Stats(), Dropped: g.dropped}
	s.Probes, s.ProbeBytes = g.prober.Sent()
	return s
}

// Close closes all sources.
func (g *Sockets) Close() error {
	var why []error
	if g.native != nil {
		why = append(why, g.native.close())
	}
	if g.icmp != nil {
		why = append(why, g.icmp.Close())
	}
	if g.capture != nil {
		why = append(why, g.capture.Close())
	}
	if g.links != nil {
		why = append(why, g.links.Close())
	}
	return errors.Join(why...)
}
