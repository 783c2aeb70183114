package path

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"pgregory.net/rapid"

	"unbloat/unit"
)

var (
	target4 = netip.MustParseAddr("198.51.100.7")
	target6 = netip.MustParseAddr("2001:db8::7")
	router4 = netip.MustParseAddr("192.0.2.1")
	router6 = netip.MustParseAddr("2001:db8:1::1")
)

// quote returns an ICMP error about a probe as a router sends it, with room
// bytes of the probe's transport part.
func quote(c *Codec, kind, code byte, probe []byte, room int) []byte {
	probe = probe[:min(room, len(probe))]
	b := []byte{kind, code, 0, 0, 0, 0, 0, 0}
	if c.Target.Is4() {
		return sealed(append(append(b, quoteHeader(c.Target)...), probe...))
	}
	h := make([]byte, ipv6Header)
	h[0], h[6] = 0x60, protoICMP6
	to := c.Target.As16()
	copy(h[24:], to[:])
	return append(append(b, h...), probe...)
}

// A probe is recognised in every answer to it, however little of it routers
// quote, and with every kind of socket.
func TestCodecRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := Codec{
			UDP: rapid.Bool().Draw(t, "udp"), Target: target4, ID: rapid.Uint16().Draw(t, "id"),
			Token: rapid.Uint32().Draw(t, "token"), Size: unit.Size(rapid.IntRange(0, 2000).Draw(t, "size")),
		}
		router, kinds := router4, [2]byte{exceeded4, unreachable4}
		header := ipv4Header
		if rapid.Bool().Draw(t, "six") {
			c.Target, router, kinds, header = target6, router6, [2]byte{exceeded6, unreachable6}, ipv6Header
		}
		seq := uint16(rapid.IntRange(0, SeqSpace-1).Draw(t, "seq"))
		probe := c.Append(nil, seq)
		transport := len(probe)
		if c.UDP {
			transport += icmpHeader
		}
		if size := int(min(max(c.Size, MinSize), MaxSize)); header+transport != size {
			t.Fatalf("a packet of %d bytes, want %d", header+transport, size)
		}
		check := func(h Heard, kind Kind) {
			t.Helper()
			r, ok := c.Parse(h)
			if !ok || r.Seq != seq || r.Kind != kind || r.From != h.From {
				t.Fatalf("%+v: %+v %v, want %d of %d", h, r, ok, kind, seq)
			}
		}
		room := rapid.IntRange(icmpHeader, len(probe)).Draw(t, "room")
		if c.UDP {
			cut := probe[:min(room-icmpHeader, len(probe))]
			check(Heard{Form: Error, Type: kinds[0], From: router, Port: c.Port(seq), Data: cut}, Exceeded)
			check(Heard{Form: Error, Type: kinds[1], Code: 3, From: c.Target, Port: c.Port(seq), Data: cut}, Arrived)
			check(Heard{Form: Error, Type: kinds[1], Code: 1, From: router, Port: c.Port(seq), Data: cut}, Refused)
			check(Heard{Form: Datagram, From: c.Target, Port: c.Port(seq)}, Arrived)
			return
		}
		check(Heard{Form: Error, Type: kinds[0], From: router, Data: probe[:room]}, Exceeded)
		check(Heard{Form: Message, From: router, Data: quote(&c, kinds[0], 0, probe, room)}, Exceeded)
		check(Heard{Form: Message, From: router, Data: quote(&c, kinds[1], 1, probe, room)}, Refused)
		reply := append([]byte{c.kinds().reply, 0, 0, 0}, probe[4:]...)
		check(Heard{Form: Message, From: c.Target, Data: sealed(reply)}, Arrived)
	})
}

// Routers that balance load by the first words of the ICMP message see the same
// words in all probes, except for the sequence number: the checksum is
// constant.
func TestCodecConstantChecksum(t *testing.T) {
	c := Codec{Target: target4, ID: 0xabcd, Token: 0x01020304}
	want := binary.BigEndian.Uint16(c.Append(nil, 0)[2:])
	for seq := range uint16(SeqSpace) {
		b := c.Append(nil, seq)
		if got := binary.BigEndian.Uint16(b[2:]); got != want || checksum(b) != 0 {
			t.Fatalf("probe %d: checksum %#x, want %#x", seq, got, want)
		}
	}
}

// Packets that are not about our probes are refused.
func TestCodecForeign(t *testing.T) {
	c := Codec{Target: target4, ID: 1, Token: 2}
	other, elsewhere := c, c
	other.ID, elsewhere.Target = 9, netip.MustParseAddr("198.51.100.8")
	probe := c.Append(nil, 5)
	broken := quote(&c, exceeded4, 0, probe, 100)
	broken[len(broken)-1] ^= 1
	fragment := quote(&c, exceeded4, 0, probe, 100)
	fragment[icmpHeader+7] = 4
	for name, h := range map[string]Heard{
		"nothing":                {},
		"empty":                  {Form: Message, From: router4},
		"our own probe":          {Form: Message, From: router4, Data: probe},
		"another process":        {Form: Message, From: router4, Data: quote(&other, exceeded4, 0, other.Append(nil, 5), 100)},
		"another destination":    {Form: Message, From: router4, Data: quote(&elsewhere, exceeded4, 0, probe, 100)},
		"damaged":                {Form: Message, From: router4, Data: broken},
		"a later fragment":       {Form: Message, From: router4, Data: sealed(fragment)},
		"reassembly ran out":     {Form: Message, From: router4, Data: quote(&c, exceeded4, 1, probe, 100)},
		"too big":                {Form: Message, From: router4, Data: quote(&c, unreachable4, 4, probe, 100)},
		"a redirect":             {Form: Error, Type: 5, From: router4, Data: probe},
		"too short a quote":      {Form: Error, Type: exceeded4, From: router4, Data: probe[:7]},
		"a reply without a mark": {Form: Message, From: target4, Data: sealed([]byte{0, 0, 0, 0, 0, 1, 0, 5})},
		"UDP in an ICMP run":     {Form: Datagram, From: target4, Port: BasePort},
	} {
		if r, ok := c.Parse(h); ok {
			t.Errorf("%s: taken for %+v", name, r)
		}
	}
	u := Codec{UDP: true, Target: target4, Token: 2}
	for name, h := range map[string]Heard{
		"a low port":    {Form: Error, Type: exceeded4, From: router4, Port: BasePort - 1},
		"a high port":   {Form: Error, Type: exceeded4, From: router4, Port: BasePort + SeqSpace},
		"another token": {Form: Error, Type: exceeded4, From: router4, Port: BasePort + 5, Data: []byte{0xff, 0xfa, 9, 9}},
		"a stranger":    {Form: Datagram, From: router4, Port: BasePort},
	} {
		if r, ok := u.Parse(h); ok {
			t.Errorf("%s: taken for %+v", name, r)
		}
	}
}

// Whatever the network sends: no panic, and never a number out of bounds.
func FuzzCodec(f *testing.F) {
	four, six := Codec{Target: target4, ID: 1, Token: 2}, Codec{Target: target6, ID: 1, Token: 2}
	p4, p6 := four.Append(nil, 3), six.Append(nil, 3)
	f.Add(uint8(Message), uint8(0), uint8(0), uint16(0), quote(&four, exceeded4, 0, p4, 8))
	f.Add(uint8(Message), uint8(0), uint8(0), uint16(0), quote(&six, exceeded6, 0, p6, 100))
	f.Add(uint8(Message), uint8(0), uint8(0), uint16(0), sealed(append([]byte{0, 0, 0, 0}, p4[4:]...)))
	f.Add(uint8(Error), uint8(exceeded4), uint8(0), uint16(0), p4)
	f.Add(uint8(Error), uint8(unreachable6), uint8(4), uint16(BasePort+3), []byte{0xff, 0xfc})
	f.Add(uint8(Datagram), uint8(0), uint8(0), uint16(BasePort+3), []byte("hello"))
	f.Fuzz(func(t *testing.T, form, kind, code uint8, port uint16, data []byte) {
		for _, target := range []netip.Addr{target4, target6} {
			for _, udp := range []bool{false, true} {
				for _, from := range []netip.Addr{router4, target} {
					c := Codec{UDP: udp, Target: target, ID: 1, Token: 2}
					r, ok := c.Parse(Heard{Form: Form(form), Type: kind, Code: code, Port: port, From: from, Data: data})
					if ok && (r.Seq >= SeqSpace || r.Kind < Exceeded || r.Kind > Refused) {
						t.Errorf("%+v", r)
					}
				}
			}
		}
	})
}
