// Package sim is a discrete-event simulator of a home, its line and the
// servers behind it. Queues are those of package aqm; TCP behaves as Linux's.
//
// It is deterministic: the same parameters and the same random numbers give the
// same results, on any machine. It reads no clock and starts no goroutine.
//
// The way of a packet upwards: sender → router (Shape) → modem (Bottleneck) →
// Wire → server. Downwards: server → Wire → provider (Bottleneck) → router →
// receiver. Home and router are one place: the LAN costs no time.
//
// Segments count in whole frames of a full segment each; time costs nothing
// but where a Bottleneck, a Wire or a shaper says so, as in the lab's virtual
// time.
package sim

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"unbloat/unit"
)

// Direction is a way through the line, seen from the home.
type Direction uint8

// Directions.
const (
	Up Direction = iota
	Down
)

func (d Direction) reverse() Direction { return 1 - d }

// String names the direction in one word.
func (d Direction) String() string {
	if d == Up {
		return "up"
	}
	return "down"
}

// Params describe a line.
type Params struct {
	Up, Down Bottleneck
	UpWire   Wire // between the modem and the servers
	DownWire Wire
	Random   *rand.Rand // all chance comes from it
}

// Event sources that are always there; wires follow.
const (
	sourceModemUp = iota
	sourceModemDown
	sourceShaperUp
	sourceShaperDown
	sourceWires
)

// maxWires bounds the number of different distances.
const maxWires = 256

// Network is one home at work.
type Network struct {
	now     unit.Instant
	due     []unit.Instant // by source: when its next event comes
	timers  timers
	packets slab
	modems  [2]modem
	shapers [2]shaper
	wires   [2][]*wire // by direction, and by distance: index 0 is the line's own
	conns   []*Conn
	streams []*Stream
	apps    []*App
	random  *rand.Rand
	events  uint64
	tap     func(unit.Instant, Stamped)
	ack     ack // the one that is being dealt with
}

// New returns a network in which nothing happens yet, at instant 0.
func New(p Params) (*Network, error) {
	if p.Random == nil {
		return nil, errors.New("sim: no source of random numbers")
	}
	n := &Network{random: p.Random, due: []unit.Instant{never, never, never, never}}
	for d, w := range []Wire{p.UpWire, p.DownWire} {
		if w.Delay < 0 || w.Jitter < 0 || w.Loss < 0 || w.Loss > 1 {
			return nil, fmt.Errorf("sim: wire %s: a delay of %v ± %v and a loss of %v are not possible", Direction(d), w.Delay, w.Jitter, w.Loss)
		}
	}
	for d, b := range []Bottleneck{p.Up, p.Down} {
		n.modems[d] = modem{direction: Direction(d), source: sourceModemUp + d}
		n.shapers[d] = shaper{direction: Direction(d), source: sourceShaperUp + d}
		if err := n.SetBottleneck(Direction(d), b); err != nil {
			return nil, err
		}
		n.modems[d].tokens = n.modems[d].full
	}
	n.addWires(p.UpWire, p.DownWire)
	return n, nil
}

// addWires adds a pair of wires, and returns its index.
func (n *Network) addWires(up, down Wire) int {
	for d, w := range []Wire{up, down} {
		n.wires[d] = append(n.wires[d], &wire{Wire: w, direction: Direction(d), source: len(n.due)})
		n.due = append(n.due, never)
	}
	return len(n.wires[Up]) - 1
}

// wiresFor returns the index of the wires of servers that are further away by
// extra, there and back together.
func (n *Network) wiresFor(extra time.Duration) (int, error) {
	up, down := n.wires[Up][0].Wire, n.wires[Down][0].Wire
	up.Delay += extra / 2
	down.Delay += extra - extra/2
	for i := range n.wires[Up] {
		if n.wires[Up][i].Wire == up && n.wires[Down][i].Wire == down {
			return i, nil
		}
	}
	if up.Delay < 0 || down.Delay < 0 {
		return 0, fmt.Errorf("sim: a round trip that is %v longer would be negative", extra)
	}
	if len(n.wires[Up]) >= maxWires {
		return 0, fmt.Errorf("sim: more than %d different round trips", maxWires)
	}
	return n.addWires(up, down), nil
}

// SetBottleneck changes a direction's rate or buffer. What waits stays.
func (n *Network) SetBottleneck(d Direction, b Bottleneck) error {
	if b.Rate != 0 && b.Rate < 512 || b.Rate > 1e12 {
		return fmt.Errorf("sim: bottleneck %s: rate of %d bit/s; 0 and 512 to 1e12 are possible", d, int64(b.Rate))
	}
	if b.Buffer < 0 || b.Burst < 0 {
		return fmt.Errorf("sim: bottleneck %s: a negative buffer or burst", d)
	}
	m := &n.modems[d]
	m.configure(b)
	if m.line.len > 0 {
		n.release(m)
	}
	return nil
}

// Now returns the instant up to which the network has run.
func (n *Network) Now() unit.Instant { return n.now }

// Bottleneck returns the counters of a direction's bottleneck.
func (n *Network) Bottleneck(d Direction) LinkStats { return n.modems[d].stats() }

// RunUntil lets the network run up to and including an instant.
func (n *Network) RunUntil(until unit.Instant) {
	for {
		source, at := -1, until+1
		for i, t := range n.due {
			if t < at {
				source, at = i, t
			}
		}
		if n.timers.next() < at {
			e := n.timers.pop()
			n.now = e.at
			n.events++
			n.timeout(e)
			continue
		}
		if source < 0 {
			break
		}
		n.now = at
		n.events++
		switch {
		case source < sourceShaperUp:
			n.release(&n.modems[source])
		case source < sourceWires:
			n.pump(&n.shapers[source-sourceShaperUp])
		default:
			i := source - sourceWires
			n.arrive(n.wires[i&1][i>>1])
		}
	}
	n.now = max(n.now, until)
}

// timeout deals with an entry of the timer heap.
func (n *Network) timeout(e timer) {
	switch e.task {
	case taskTick:
		n.streams[e.owner].tick(n, e)
		return
	case taskApp:
		n.apps[e.owner].next(n)
		return
	}
	c := n.conns[e.owner]
	switch e.task {
	case taskStart:
		c.start(n)
		return
	case taskStop:
		c.Stop()
		return
	}
	if !n.goesOff(c.alarmOf(e.task), e) {
		return
	}
	switch e.task {
	case taskRetransmit:
		c.retransmitTimeout(n)
	case taskDelayedAck:
		c.acknowledge(n)
	case taskPace:
		c.output(n)
	}
}

// keys are what queues tell packets apart by, and the wires that they take.
type keys struct {
	flow, source, destination uint32
	wires                     uint8
}

// keysOf returns the keys of a packet, as seen upwards.
func (n *Network) keysOf(p *packet) *keys {
	if p.kind == kindStream {
		return &n.streams[p.owner].keys
	}
	return &n.conns[p.owner].keys
}

// send lets a packet leave the home or a server.
func (n *Network) send(d Direction, id uint32) {
	if d == Up {
		n.shape(&n.shapers[Up], id)
		return
	}
	n.carry(n.wires[Down][n.keysOf(&n.packets.all[id]).wires], id)
}

// deliver handles a packet at the end of its way, at home or at a server.
func (n *Network) deliver(id uint32) {
	p := &n.packets.all[id]
	switch p.kind {
	case kindData:
		q := *p // the slab may move while the receiver answers
		n.packets.put(id)
		n.conns[q.owner].receive(n, &q)
	case kindAck:
		q := *p
		n.packets.put(id)
		n.conns[q.owner].acked(n, &q)
	default:
		n.streams[p.owner].arrived(n, id)
	}
}

// lose notes that a packet is lost.
func (n *Network) lose(id uint32) {
	p := &n.packets.all[id]
	switch p.kind {
	case kindData:
		n.conns[p.owner].counts.Lost++
	case kindStream:
		n.streams[p.owner].lost(p)
	}
	n.packets.put(id)
}

// hash returns a key that looks like the hash of an address.
func (n *Network) hash() uint32 { return uint32(n.random.Uint64()) }

// BottleneckRate returns the rate of a direction's bottleneck now.
func (n *Network) BottleneckRate(d Direction) unit.Rate { return n.modems[d].Rate }
