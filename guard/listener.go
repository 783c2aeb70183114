// This file and contain.go stand between a program and whoever reaches it. They give connections their
// places, so that none has more than its share and nobody waits behind those who keep the
// program waiting; and a panic that one of them brings about ends no more than what it
// asked for.

package guard

import (
	"errors"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// Limits are the places of a Listener.
type Limits struct {
	Most    int // connections at once
	Crowded int // from so many on, a new one takes the place of one that keeps the program waiting
	Share   int // of one group of addresses at once (see Group)
}

// Bounds of one connection.
const (
	// patience is how long a peer may leave what it was sent, while others want its place.
	patience = 2 * time.Second
	// sendBuffer is how much of what a peer does not take the kernel may hold. By itself it
	// would hold megabytes for each.
	sendBuffer = 64 << 10
	// piece is how much is written at once, so that it is seen whether a peer takes it.
	piece = 16 << 10
)

// pause is how long others may have to wait for what concerns nobody of them.
const pause = 100 * time.Millisecond

// A Listener gives each connection its place, and takes it away from those who keep the
// program waiting while others want it:
//
//   - whoever is waited for. A Read with a deadline waits for its peer; one without only
//     watches whether it goes, and does not count. So a server has a deadline while it reads
//     a request, and none while it answers.
//   - whoever has not taken what was sent to it for two seconds. Once all places are taken,
//     those who have more places than a new one has need not even be given these.
//
// They leave in the order of how many places their peers have, then of how long they have
// kept the program waiting; nobody makes room for a peer that has more places than he.
// Connections that the program works for stay. So whoever comes from few addresses cannot
// keep out those who come from others, however he behaves.
type Listener struct {
	net.Listener
	Limits Limits
	// Admit says whether a connection from one address to another is taken at all; nil:
	// each is.
	Admit func(from, at netip.Addr) bool
	// Refusal is what a connection is told for which there is no place, before it is closed.
	Refusal []byte

	mu        sync.Mutex
	open      map[*conn]struct{}
	groups    map[netip.Prefix]int
	addresses map[netip.Addr]int
}

// RemoteAddress is the address of a TCP peer, without a zone; of other peers it is the zero one.
func RemoteAddress(a net.Addr) netip.Addr {
	t, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	return t.AddrPort().Addr().Unmap().WithZone("")
}

// Group is what is counted as one peer, since whoever has one address of it may have all:
// an IPv4 address, or an IPv6 /64.
func Group(a netip.Addr) netip.Prefix {
	bits := a.BitLen()
	if a.Is6() {
		bits = 64
	}
	p, _ := a.Prefix(bits)
	return p
}

// Accept implements net.Listener. It returns no errors that pass, such as that too many
// files are open.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		nc, err := l.Listener.Accept()
		var passes interface{ Temporary() bool }
		switch {
		case errors.As(err, &passes) && passes.Temporary():
			time.Sleep(pause)
			continue
		case err != nil:
			return nil, err
		}
		// Until the program reads from it, it is waited for: on a busy machine that takes a while.
		c := &conn{Conn: nc, l: l, from: RemoteAddress(nc.RemoteAddr()), reading: time.Now(), deadline: true}
		if l.Admit == nil || l.Admit(c.from, RemoteAddress(nc.LocalAddr())) {
			if t, ok := nc.(*net.TCPConn); ok {
				_ = t.SetWriteBuffer(sendBuffer)
			}
			if l.enter(c) {
				return c, nil
			}
			if len(l.Refusal) > 0 {
				_ = nc.SetWriteDeadline(time.Now().Add(pause)) // nothing was sent to it yet, so it has room for that
				_, _ = nc.Write(l.Refusal)
			}
		}
		nc.Close()
	}
}

// enter finds a place for a connection.
func (l *Listener) enter(c *conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open == nil {
		l.open, l.groups, l.addresses = map[*conn]struct{}{}, map[netip.Prefix]int{}, map[netip.Addr]int{}
	}
	l.open[c] = struct{}{}
	l.groups[Group(c.from)]++
	l.addresses[c.from]++
	alone, full := l.groups[Group(c.from)] > l.Limits.Share, len(l.open) > l.Limits.Most
	if !alone && !full && len(l.open) <= l.Limits.Crowded {
		return true
	}
	var out *conn
	var most []int
	var longest time.Time
	now, own := time.Now(), l.places(c)
	for o := range l.open {
		if o == c || alone && Group(o.from) != Group(c.from) {
			continue
		}
		places, since, takesNothing := l.places(o), time.Time{}, false
		if since, takesNothing = o.waits(); since.IsZero() {
			continue
		}
		fewer := slices.Compare(own, places)
		if fewer > 0 || takesNothing && now.Sub(since) < patience && !((alone || full) && fewer < 0) {
			continue
		}
		if more := slices.Compare(places, most); out == nil || more > 0 || more == 0 && since.Before(longest) {
			out, most, longest = o, places, since
		}
	}
	switch {
	case out != nil:
		l.remove(out)
		out.Conn.Close()
	case alone || full:
		l.remove(c)
		return false
	}
	return true
}

// places is how many places the peer of a connection has: its group, then its address.
// The caller holds l.mu.
func (l *Listener) places(c *conn) []int { return []int{l.groups[Group(c.from)], l.addresses[c.from]} }

// remove forgets a connection. The caller holds l.mu.
func (l *Listener) remove(c *conn) {
	if _, there := l.open[c]; !there {
		return
	}
	delete(l.open, c)
	if l.groups[Group(c.from)]--; l.groups[Group(c.from)] == 0 {
		delete(l.groups, Group(c.from))
	}
	if l.addresses[c.from]--; l.addresses[c.from] == 0 {
		delete(l.addresses, c.from)
	}
}

// A conn is a connection that has a place.
type conn struct {
	net.Conn
	l    *Listener
	from netip.Addr

	mu       sync.Mutex
	reading  time.Time // since when a Read waits; zero: none does
	writing  time.Time // since when nothing that is written was taken; zero: nothing is written
	deadline bool      // of reading
}

// waits says since when the program waits for the peer, and whether that is because it
// does not take what is written. It is the zero time if the program works for it.
func (c *conn) waits() (since time.Time, takesNothing bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case !c.writing.IsZero():
		return c.writing, true
	case c.deadline:
		return c.reading, false
	}
	return time.Time{}, false
}

func (c *conn) note(what *time.Time, t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	*what = t
}

// Read implements net.Conn.
func (c *conn) Read(b []byte) (int, error) {
	c.note(&c.reading, time.Now())
	defer c.note(&c.reading, time.Time{})
	return c.Conn.Read(b)
}

// Write implements net.Conn.
func (c *conn) Write(b []byte) (n int, err error) {
	defer c.note(&c.writing, time.Time{})
	for first := true; err == nil && (first || n < len(b)); first = false {
		c.note(&c.writing, time.Now())
		var more int
		more, err = c.Conn.Write(b[n:min(len(b), n+piece)])
		n += more
	}
	return n, err
}

// SetDeadline implements net.Conn.
func (c *conn) SetDeadline(t time.Time) error {
	c.deadlined(t)
	return c.Conn.SetDeadline(t)
}

// SetReadDeadline implements net.Conn.
func (c *conn) SetReadDeadline(t time.Time) error {
	c.deadlined(t)
	return c.Conn.SetReadDeadline(t)
}

func (c *conn) deadlined(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deadline = !t.IsZero()
}

// CloseWrite ends what is sent, where the connection can.
func (c *conn) CloseWrite() error {
	h, ok := c.Conn.(interface{ CloseWrite() error })
	if !ok {
		return errors.ErrUnsupported
	}
	return h.CloseWrite()
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.l.mu.Lock()
	c.l.remove(c)
	c.l.mu.Unlock()
	return c.Conn.Close()
}
