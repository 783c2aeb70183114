package iptables

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A Packet is what rules see of one.
type Packet struct {
	In, Out             string // devices; "": none
	Protocol            uint8
	Source, Destination netip.AddrPort
	Length              int   // of the IP packet
	Flags               uint8 // of TCP
	DSCP                uint8
}

// A Connection is what connection tracking knows of a packet's flow, this packet
// included. The rules write its mark.
type Connection struct {
	Packets, Bytes uint64 // both ways
	Replied        bool   // a packet has gone in the other direction
	Mark           uint32
}

// An Outcome is what becomes of a packet.
type Outcome struct {
	Class string // by CLASSIFY, as in "b10a:18"; "": none
	Drop  bool   // a meter had no room for another key
}

// A walk is one packet's.
type walk struct {
	table *Table
	p     *Packet
	c     *Connection
	tick  int64
	out   Outcome
}

// ticks are those of a second (HZ).
const ticks = 1000

// Walk walks a packet through a chain of the table, as in "POSTROUTING". Now is the time
// since any instant, which stays the same one.
func (t *Table) Walk(now time.Duration, chain string, p *Packet, c *Connection) Outcome {
	w := walk{table: t, p: p, c: c, tick: int64(now / (time.Second / ticks))}
	w.chain(chain, 0)
	return w.out
}

// mostDepth is more than any set of rules of a plan has.
const mostDepth = 32

// chain walks one chain, and reports whether the packet is done with.
func (w *walk) chain(name string, depth int) (done bool) {
	if depth > mostDepth {
		panic("iptables: a chain leads to itself")
	}
next:
	for _, r := range w.table.chains[name] {
		for _, m := range r.matches {
			fits := m(w)
			if w.out.Drop {
				return true
			}
			if !fits {
				continue next
			}
		}
		switch a := r.act; {
		case a.ends:
			return true
		case a.returns:
			return false
		case a.class != "":
			w.out.Class = a.class
		case a.setMark != nil:
			w.c.Mark = a.setMark(w.c.Mark)
		case a.to != "" && a.comeBack:
			if w.chain(a.to, depth+1) {
				return true
			}
		case a.to != "": // goto: where that chain ends, so does this one
			return w.chain(a.to, depth+1)
		}
	}
	return false
}

func (w *walk) port(to bool) uint16 {
	if to {
		return w.p.Destination.Port()
	}
	return w.p.Source.Port()
}

// A list is one of xt_recent.
type list struct {
	entries []seen // the one that was put in longest ago first
}

type seen struct {
	address netip.Addr
	at      int64
}

// mostListed is how many addresses a list holds (ip_list_tot).
const mostListed = 100

func (l *list) put(a netip.Addr, tick int64) {
	i := slices.IndexFunc(l.entries, func(s seen) bool { return s.address == a })
	switch {
	case i >= 0:
		l.entries = slices.Delete(l.entries, i, i+1)
	case len(l.entries) >= mostListed:
		l.entries = l.entries[1:]
	}
	l.entries = append(l.entries, seen{a, tick})
}

func (l *list) holds(a netip.Addr, tick, within int64) bool {
	i := slices.IndexFunc(l.entries, func(s seen) bool { return s.address == a })
	return i >= 0 && (within == 0 || l.entries[i].at >= tick-within)
}

// meters are those of one name (xt_hashlimit, revision 1).
type meters struct {
	bytes      bool
	avg, burst uint32 // as the program hands them to the kernel
	mode       []string
	size, most int64
	expire     int64 // ms
	keys       map[meterKey]*credit
	collected  int64
}

type meterKey struct {
	source, destination         netip.Addr
	sourcePort, destinationPort uint16
}

type credit struct {
	value, full, cost uint32
	prev, expires     int64
}

// Numbers of the kernel's module.
const (
	rateScale  = 10_000
	perTick    = 32      // of packets
	perTickOf  = 1 << 22 // of bytes
	fullBytes  = perTickOf * ticks
	chunkShift = 4
)

// rate reads RATE and BURST.
func (m *meters) rate(text, burst string) error {
	bad := fmt.Errorf("iptables v1.4.21: hashlimit: bad value for option \"--hashlimit-upto\", or out of range: %q", text)
	if number, per, ok := strings.Cut(text, "b/"); ok {
		factor := uint64(1)
		for unit, f := range map[string]uint64{"k": 1 << 10, "m": 1 << 20} {
			if cut, is := strings.CutSuffix(number, unit); is {
				number, factor = cut, f
			}
		}
		n, err := strconv.ParseUint(number, 10, 32)
		if err != nil || n*factor == 0 || n*factor > 1<<32-1 || !strings.HasPrefix("second", per) {
			return bad
		}
		m.bytes = true
		m.avg = uint32((1<<32 - 1) / (n*factor>>chunkShift + 1))
		if burst != "" {
			return fmt.Errorf("the stand-in knows no burst of a meter of bytes")
		}
		return nil
	}
	number, per, _ := strings.Cut(text, "/")
	n, err := strconv.ParseUint(number, 10, 32)
	span := uint64(0)
	for name, s := range map[string]uint64{"second": 1, "minute": 60, "hour": 3600, "day": 86400} {
		if per != "" && strings.HasPrefix(name, per) {
			span = s
		}
	}
	if err != nil || n == 0 || span == 0 {
		return bad
	}
	if n/span > rateScale {
		return fmt.Errorf("iptables v1.4.21: Rate too fast \"%s\"", text)
	}
	m.avg, m.burst = uint32(rateScale*span/n), 5
	if burst != "" {
		b, err := strconv.ParseUint(burst, 10, 32)
		if err != nil || b == 0 || b > 10_000 {
			return fmt.Errorf("iptables v1.4.21: hashlimit: bad value for option \"--hashlimit-burst\", or out of range (1-10000)")
		}
		m.burst = uint32(b)
	}
	return nil
}

// credits turns what the program gives into the kernel's unit.
func credits(user uint32) uint32 {
	if user > (1<<32-1)/(ticks*perTick) {
		return user / rateScale * (ticks * perTick)
	}
	return user * (ticks * perTick) / rateScale
}

// within charges the meter of a packet's key, and reports whether it had enough.
func (m *meters) within(w *walk) bool {
	m.collect(w.tick)
	var key meterKey
	for _, word := range m.mode {
		switch word {
		case "srcip":
			key.source = w.p.Source.Addr()
		case "dstip":
			key.destination = w.p.Destination.Addr()
		case "srcport":
			key.sourcePort = w.ported(false)
		case "dstport":
			key.destinationPort = w.ported(true)
		}
	}
	c := m.keys[key]
	if c == nil {
		if int64(len(m.keys)) >= m.most {
			w.out.Drop = true
			return false
		}
		c = m.fresh(w.tick)
		m.keys[key] = c
	} else {
		m.refill(c, w.tick)
	}
	c.expires = w.tick + m.expire
	cost := c.cost
	if m.bytes {
		all := (uint64(w.p.Length)>>chunkShift + 1) * uint64(c.cost)
		cost = uint32(min(all, fullBytes))
	}
	if c.value < cost {
		return false
	}
	c.value -= cost
	return true
}

// ported is a port of protocols that have some.
func (w *walk) ported(to bool) uint16 {
	switch w.p.Protocol {
	case 6, 17, 132:
		return w.port(to)
	}
	return 0
}

// fresh is a new key's.
func (m *meters) fresh(tick int64) *credit {
	if m.bytes {
		const full uint64 = fullBytes
		return &credit{value: uint32(full), full: uint32(full), cost: uint32(uint64(m.avg) * full >> 32), prev: tick}
	}
	full := credits(m.avg * m.burst)
	return &credit{value: full, full: full, cost: credits(m.avg), prev: tick}
}

// refill adds what came since the last packet. Of bytes the sum has 32 bits.
func (m *meters) refill(c *credit, tick int64) {
	gone := tick - c.prev
	if gone == 0 {
		return
	}
	c.prev = tick
	if !m.bytes {
		c.value = uint32(min(uint64(c.value)+uint64(gone)*perTick, uint64(c.full)))
		return
	}
	before := c.value
	c.value += uint32(uint64(gone) * perTickOf)
	if before >= c.value || c.value > c.full {
		c.value = c.full
	}
}

// collect removes expired keys, once a second.
func (m *meters) collect(tick int64) {
	second := tick / ticks
	if second == m.collected {
		return
	}
	m.collected = second
	for k, c := range m.keys {
		if second*ticks >= c.expires {
			delete(m.keys, k)
		}
	}
}
