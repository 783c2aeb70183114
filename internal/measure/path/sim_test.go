package path

import (
	"encoding/binary"
	"math/rand"
	"net/netip"
	"slices"
	"time"

	"unbloat/unit"
)

// A simHop is one hop of a simulated path. The last one is the destination.
type simHop struct {
	addr   netip.Addr
	oneWay time.Duration // from the previous hop
	queue  time.Duration // under load, on the way to the hop
	own    time.Duration // delay of its own answers only
	limit  time.Duration // it answers at most once per limit; 0: always
	silent bool
	last   unit.Instant
}

// simNet carries probes in the wire format of a raw socket, and answers them.
type simNet struct {
	codec     Codec
	hops      []simHop
	rng       *rand.Rand
	loss      float64 // probability for each answer
	duplicate float64
	jitter    time.Duration // of each answer, which may reorder them
	noise     float64       // probability of a foreign packet with each probe
	loaded    bool
	now       unit.Instant
	arriving  []arriving
	sent      []departed
	bleacher  int               // hop that changes traffic classes as by says; 0: none
	by        func(uint8) uint8 //
}

type arriving struct {
	at unit.Instant
	h  Heard
}

type departed struct {
	at unit.Instant
	Probe
}

func newSimNet(seed int64, hops ...simHop) *simNet {
	target := hops[len(hops)-1].addr
	return &simNet{
		codec: Codec{Target: target, ID: 0x1234, Token: 0xdeadbeef}, hops: hops,
		rng: rand.New(rand.NewSource(seed)), now: 1e18,
	}
}

// send carries a probe and schedules the answer, if any.
func (n *simNet) send(p Probe) {
	n.sent = append(n.sent, departed{n.now, p})
	probe := n.codec.Append(nil, p.Seq)
	var way time.Duration
	at := min(p.TTL, len(n.hops)) - 1
	for _, h := range n.hops[:at+1] {
		way += h.oneWay
		if n.loaded {
			way += h.queue
		}
	}
	h := &n.hops[at]
	back := way
	if n.loaded { // the queue is in one direction only
		for _, h := range n.hops[:at+1] {
			back -= h.queue
		}
	}
	reached := n.now.Add(way)
	limited := h.limit > 0 && h.last != 0 && reached.Sub(h.last) < h.limit
	if h.silent || limited || n.rng.Float64() < n.loss {
		return
	}
	h.last = reached
	b := n.answer(probe, at == len(n.hops)-1)
	if class := p.Class; b[0] == exceeded4 {
		if n.bleacher > 0 && n.bleacher <= at && n.by != nil {
			class = n.by(class)
		}
		b[icmpHeader+1] = class
		b = sealed(b)
	}
	due := reached.Add(back + h.own + time.Duration(n.rng.Int63n(int64(n.jitter)+1)))
	n.arrive(due, Heard{Form: Message, From: h.addr, Data: b})
	if n.rng.Float64() < n.duplicate {
		n.arrive(due.Add(time.Millisecond), Heard{Form: Message, From: h.addr, Data: b})
	}
	for n.rng.Float64() < n.noise {
		n.arrive(due.Add(-time.Microsecond), n.foreign(b))
	}
}

func (n *simNet) arrive(at unit.Instant, h Heard) { n.arriving = append(n.arriving, arriving{at, h}) }

// answer returns a hop's answer to a probe.
func (n *simNet) answer(probe []byte, arrived bool) []byte {
	if arrived {
		return sealed(append([]byte{echoReply4, 0, 0, 0}, probe[4:]...))
	}
	return sealed(append(append([]byte{exceeded4, 0, 0, 0, 0, 0, 0, 0}, quoteHeader(n.codec.Target)...), probe...))
}

// sealed sets the checksum of an ICMP message.
func sealed(b []byte) []byte {
	b[2], b[3] = 0, 0
	binary.BigEndian.PutUint16(b[2:], checksum(b))
	return b
}

// quoteHeader returns an IPv4 header as routers quote it.
func quoteHeader(target netip.Addr) []byte {
	h := make([]byte, ipv4Header)
	h[0], h[8], h[9] = 0x45, 1, protoICMP4
	copy(h[12:], []byte{10, 0, 0, 2})
	to := target.As4()
	copy(h[16:], to[:])
	return h
}

// foreign returns a packet that looks like one of ours but is not: of another
// process, of another run, to another destination, or damaged.
func (n *simNet) foreign(b []byte) Heard {
	b = slices.Clone(b)
	switch n.rng.Intn(4) {
	case 0: // another identifier, at any place
		i := 4
		if b[0] == exceeded4 {
			i = icmpHeader + ipv4Header + 4
		}
		b[i] ^= 0x40
		b = sealed(b)
	case 1: // another token
		i := icmpHeader + 2
		if b[0] == exceeded4 {
			i += icmpHeader + ipv4Header
		}
		b[i] ^= 1
		b = sealed(b)
	case 2:
		b[len(b)/2] ^= 0x10 // the checksum is wrong now
	case 3:
		b = sealed([]byte{echo4, 0, 0, 0, 0x12, 0x34, 0, 1, 0xff, 0xfe, 0xde, 0xad, 0xbe, 0xef})
	}
	return Heard{Form: Message, From: netip.AddrFrom4([4]byte{203, 0, 113, byte(n.rng.Intn(256))}), Data: b}
}

// drive runs the tracer for d of simulated time.
func (n *simNet) drive(t *Tracer, d time.Duration, send bool) {
	end := n.now.Add(d)
	for n.now.Before(end) {
		next := end
		if send {
			for {
				p, due, at := t.Poll(n.now)
				if !due {
					next = min(next, at)
					break
				}
				n.send(p)
			}
		}
		slices.SortStableFunc(n.arriving, func(a, b arriving) int { return int(a.at - b.at) })
		if len(n.arriving) > 0 {
			next = min(next, max(n.arriving[0].at, n.now))
		}
		n.now = next
		for len(n.arriving) > 0 && !n.now.Before(n.arriving[0].at) {
			a := n.arriving[0]
			n.arriving = n.arriving[1:]
			if r, ok := n.codec.Parse(a.h); ok {
				t.Receive(a.at, r)
			}
		}
	}
}

// trace runs discovery, an idle and a loaded phase, as Walk does.
func (n *simNet) trace(cfg Config, idle, loaded time.Duration) *Tracer {
	t := New(cfg, n.now)
	n.drive(t, cfg.withDefaults().Interval, true)
	t.Begin(Idle, n.now)
	n.drive(t, idle, true)
	n.settle(t)
	if loaded > 0 {
		n.loaded = true
		t.Begin(Loaded, n.now)
		n.drive(t, loaded, true)
		n.settle(t)
	}
	t.Close(n.now)
	return t
}

func (n *simNet) settle(t *Tracer) {
	for !t.Settled(n.now) {
		n.drive(t, 20*time.Millisecond, false)
	}
}

func unitInstant(d time.Duration) unit.Instant { return unit.Instant(d) }
