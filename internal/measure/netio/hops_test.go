package netio

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"testing"
	"time"

	"unbloat/testkit/await"
)

// echo returns an ICMP echo request with the given identifier. The checksum
// only matters to raw IPv4 sockets.
func echo(six bool, id uint16) []byte {
	b := []byte{8, 0, 0, 0, 0, 0, 0, 1, 'h', 'o', 'p', 's'}
	if six {
		b[0] = 128
		binary.BigEndian.PutUint16(b[4:], id)
		return b
	}
	binary.BigEndian.PutUint16(b[4:], id)
	var sum uint32
	for i := 0; i < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	binary.BigEndian.PutUint16(b[2:], ^uint16(sum&0xffff+sum>>16))
	return b
}

// heard reads events until one satisfies want, for at most twenty seconds.
func heard(t *testing.T, s HopSocket, want func(HopEvent) bool) {
	t.Helper()
	await.Until(t, 20*time.Second, "what comes back", func() (found bool) {
		if err := s.Drain(func(e HopEvent) { found = found || want(e) }); err != nil {
			t.Fatal(err)
		}
		return found
	})
}

// Every kind of socket that is allowed here receives the answer to a probe to
// this machine itself. The lab tests hops and privileges.
func TestHopsLoopback(t *testing.T) {
	for _, to := range []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("::1")} {
		for _, way := range []HopWay{HopICMP, HopRaw, HopUDP, HopAuto} {
			t.Run(to.String()+"/"+string(way), func(t *testing.T) {
				clock := NewClock()
				s, err := DialHops(clock, to, way)
				if errors.Is(err, ErrNotAllowed) || errors.Is(err, ErrNotSupported) {
					t.Skipf("SKIPPED: %v", err)
				}
				if err != nil {
					t.Fatal(err)
				}
				defer s.Close()
				loopback(t, s, clock, to)
			})
		}
	}
}

// loopback sends a probe and waits for the answer.
func loopback(t *testing.T, s HopSocket, clock *Clock, to netip.Addr) {
	t.Helper()
	const port = 33434
	sent := clock.Now()
	if s.Way() == HopUDP {
		if err := s.Send(1, port, []byte("hops")); err != nil {
			t.Fatal(err)
		}
		heard(t, s, func(e HopEvent) bool { // port unreachable
			return e.Form == HopError && e.From == to && e.Port == port && string(e.Data) == "hops" && !e.At.Before(sent.Add(-stepTolerance))
		})
		return
	}
	if err := s.Send(1, 0, echo(to.Is6(), 0x6869)); err != nil {
		if errors.Is(err, ErrNoRoute) {
			t.Skipf("SKIPPED: %v", err)
		}
		t.Fatal(err)
	}
	reply := byte(0)
	if to.Is6() {
		reply = 129
	}
	heard(t, s, func(e HopEvent) bool {
		return e.Form == HopMessage && e.From == to && len(e.Data) == 12 && e.Data[0] == reply && string(e.Data[8:]) == "hops"
	})
}

// The sockets for systems other than Linux work here too.
func TestPortableHops(t *testing.T) {
	for _, to := range []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("::1")} {
		clock := NewClock()
		s, err := newPortableHops(clock, to, HopRaw)
		if errors.Is(err, ErrNotAllowed) {
			t.Skipf("SKIPPED: %v", err)
		}
		if err != nil {
			t.Fatal(err)
		}
		loopback(t, s, clock, to)
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestDialHopsRefuses(t *testing.T) {
	if s, err := DialHops(NewClock(), netip.MustParseAddr("127.0.0.1"), "carrier pigeon"); err == nil {
		s.Close()
		t.Error("an unknown way was accepted")
	}
	if a, err := SourceFor(netip.MustParseAddr("127.0.0.1")); err != nil || a != netip.MustParseAddr("127.0.0.1") {
		t.Errorf("source %v, %v", a, err)
	}
}

// The messages in the error queue come from the kernel, but the packets that
// they quote come from the network.
func FuzzExtendedError(f *testing.F) {
	four := binary.NativeEndian.AppendUint16([]byte{113, 0, 0, 0, 2, 11, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, linuxAFInet)
	four = append(four, 0, 0, 10, 2, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0)
	six := binary.NativeEndian.AppendUint16([]byte{113, 0, 0, 0, 3, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, linuxAFInet6)
	six = append(append(six, 0, 0, 0, 0, 0, 0), netip.MustParseAddr("2001:db8::1").AsSlice()...)
	f.Add(four)
	f.Add(six)
	f.Add(four[:16])
	f.Add([]byte{0x46, 0, 0, 24, 0, 0, 0, 0, 1, 1, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 1, 1, 1, 1, 8, 0})
	if e, ok := parseExtendedError(four); !ok || e.origin != originICMP || e.kind != 11 || e.offender != netip.MustParseAddr("10.2.0.1") {
		f.Errorf("%+v %v", e, ok)
	}
	if e, ok := parseExtendedError(six); !ok || e.origin != originICMP6 || e.kind != 3 || e.offender != netip.MustParseAddr("2001:db8::1") {
		f.Errorf("%+v %v", e, ok)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		e, ok := parseExtendedError(b)
		if ok != (len(b) >= extendedErrorSize) || !ok && e != (extendedError{}) {
			t.Errorf("%d bytes: %+v %v", len(b), e, ok)
		}
		if body := stripIPv4(b); len(body) > len(b)-20 && body != nil {
			t.Errorf("%d bytes of a header of at least 20 and %d", len(body), len(b))
		}
	})
}
