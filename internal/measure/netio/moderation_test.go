package netio

import (
	"errors"
	"net"
	"testing"
	"time"

	"unbloat/unit"
)

// Datagrams are only collected while many arrive.
func TestModeration(t *testing.T) {
	for _, c := range []struct {
		name  string
		every time.Duration
		n     int
		rests bool
	}{
		{"one session", 10 * time.Millisecond, 1, false},
		{"a hundred sessions", 100 * time.Microsecond, 1, false},
		{"a bunch now and then", 20 * time.Millisecond, 64, false},
		{"a thousand sessions", 100 * time.Microsecond, 10, true},
		{"and collected", time.Millisecond, 100, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, now, rested := moderation{}, unit.Instant(1e18), 0
			const rounds = 1000
			for range rounds {
				now = now.Add(c.every)
				if m.rest(now, c.n) > 0 {
					rested++
				}
			}
			if c.rests && rested < rounds*9/10 || !c.rests && rested > 0 {
				t.Errorf("rested %d times of %d", rested, rounds)
			}
			for range 3 { // the flood is over
				now = now.Add(moderateWindow)
				if rested = 0; m.rest(now, 0) > 0 {
					rested++
				}
			}
			if rested > 0 {
				t.Error("still rests for nobody")
			}
		})
	}
}

// In a flood each datagram is answered once, to its sender, with the time of
// its arrival and not of its reading. Afterwards everything is as before.
func TestFlood(t *testing.T) {
	c := NewClock()
	s, err := ListenPackets(c, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	rounds, collected := 0, 0
	done := make(chan error)
	go func() {
		done <- s.Serve(func(_ *Peer, at unit.Instant, b []byte) []byte {
			rounds++
			if c.Now().Sub(at) > moderateRest/2 {
				collected++
			}
			return b
		})
	}()
	var socks []*net.UDPConn
	for range 20 {
		u, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(s.Addr()))
		if err != nil {
			t.Fatal(err)
		}
		defer u.Close()
		socks = append(socks, u)
	}
	const each, total = 500, 20 * 500
	got := make([]map[[2]byte]int, len(socks))
	read := func(i int, wait time.Duration) bool {
		b := make([]byte, 100)
		_ = socks[i].SetReadDeadline(time.Now().Add(wait))
		n, err := socks[i].Read(b)
		if err != nil {
			return false
		}
		if n != 4 || b[0] != byte(i) {
			t.Fatalf("socket %d got % x", i, b[:n])
		}
		got[i][[2]byte(b[1:3])]++
		return true
	}
	for i := range socks {
		got[i] = map[[2]byte]int{}
	}
	for k := range each {
		for i, u := range socks {
			if _, err := u.Write([]byte{byte(i), byte(k), byte(k >> 8), 0}); err != nil {
				t.Fatal(err)
			}
		}
		if k%20 == 19 { // before any buffer is full
			for i := range socks {
				for len(got[i]) <= k && read(i, 20*time.Second) {
				}
			}
		}
	}
	for i, g := range got {
		if len(g) != each {
			t.Errorf("socket %d: %d of %d answered", i, len(g), each)
		}
		for k, n := range g {
			if n != 1 {
				t.Errorf("socket %d: %v answered %d times", i, k, n)
			}
		}
	}
	time.Sleep(3 * moderateWindow) // the flood is over
	if _, err := socks[0].Write([]byte{0, 255, 255, 0}); err != nil || !read(0, 20*time.Second) {
		t.Error("nothing is answered any more")
	}
	if err := errors.Join(s.Close(), <-done); err != nil {
		t.Error(err)
	}
	if rounds != total+1 {
		t.Errorf("%d datagrams were handled of %d", rounds, total+1)
	}
	t.Logf("%d of %d were collected", collected, total)
}
