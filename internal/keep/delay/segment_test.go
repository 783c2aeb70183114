package delay

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"pgregory.net/rapid"
)

// packet writes what a Segment says as an IP packet, options in the order that
// real systems use, and padded.
func packet(s *Segment) []byte {
	tcp := make([]byte, 20, 60)
	binary.BigEndian.PutUint16(tcp, s.SrcPort)
	binary.BigEndian.PutUint16(tcp[2:], s.DstPort)
	binary.BigEndian.PutUint32(tcp[4:], s.Seq)
	binary.BigEndian.PutUint32(tcp[8:], s.Ack)
	tcp[13] = s.Flags
	if s.Flags&FlagSyn != 0 {
		tcp = append(tcp, 2, 4, 5, 180, 4, 2) // MSS, SACK permitted
	} else {
		tcp = append(tcp, 1, 1)
	}
	if s.HasStamp {
		tcp = append(tcp, 8, 10)
		tcp = binary.BigEndian.AppendUint32(tcp, s.TSval)
		tcp = binary.BigEndian.AppendUint32(tcp, s.TSecr)
	}
	for len(tcp)%4 != 0 {
		tcp = append(tcp, 1)
	}
	tcp[12] = byte(len(tcp)/4) << 4
	if s.Src.Is4() {
		b := make([]byte, 20)
		b[0], b[8], b[9] = 0x45, 64, protocolTCP
		binary.BigEndian.PutUint16(b[2:], uint16(len(b)+len(tcp)+int(s.Length)))
		copy(b[12:], s.Src.AsSlice())
		copy(b[16:], s.Dst.AsSlice())
		return append(b, tcp...)
	}
	b := make([]byte, 40)
	b[0], b[6], b[7] = 0x60, protocolTCP, 64
	binary.BigEndian.PutUint16(b[4:], uint16(len(tcp)+int(s.Length)))
	copy(b[8:], s.Src.AsSlice())
	copy(b[24:], s.Dst.AsSlice())
	return append(b, tcp...)
}

func segments(t *rapid.T) Segment {
	address := func(name string, six bool) netip.Addr {
		if six {
			b := [16]byte(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, name))
			b[0] = 0x20
			return netip.AddrFrom16(b)
		}
		return netip.AddrFrom4([4]byte(rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(t, name)))
	}
	six := rapid.Bool().Draw(t, "six")
	s := Segment{
		Src: address("src", six), Dst: address("dst", six),
		SrcPort: rapid.Uint16().Draw(t, "srcport"), DstPort: rapid.Uint16().Draw(t, "dstport"),
		Seq: rapid.Uint32().Draw(t, "seq"), Ack: rapid.Uint32().Draw(t, "ack"),
		Length: rapid.Uint32Range(0, 60000).Draw(t, "length"), Flags: rapid.Byte().Draw(t, "flags"),
		HasStamp: rapid.Bool().Draw(t, "stamps"),
	}
	if s.HasStamp {
		s.TSval, s.TSecr = rapid.Uint32().Draw(t, "tsval"), rapid.Uint32().Draw(t, "tsecr")
	}
	return s
}

// parseIP reads a packet that begins with its IP header.
func parseIP(b []byte) (Segment, bool) {
	if len(b) > 0 && b[0]>>4 == 4 {
		return ParsePacket(TypeIPv4, b)
	}
	return ParsePacket(TypeIPv6, b)
}

// parseEthernet reads a frame.
func parseEthernet(b []byte) (Segment, bool) {
	if len(b) < 14 {
		return Segment{}, false
	}
	return ParsePacket(uint16(b[12])<<8|uint16(b[13]), b[14:])
}

// Law: what is written is read back, below any tags, in PPPoE, and when the packet
// is cut off behind its TCP header.
func TestParseLaw(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := segments(t)
		ip := packet(&want)
		if got, ok := parseIP(ip); !ok || got != want {
			t.Fatalf("raw: %+v %v, want %+v", got, ok, want)
		}
		etherType, ppp := []byte{0x08, 0x00}, []byte{0x00, 0x21}
		if want.Src.Is6() {
			etherType, ppp = []byte{0x86, 0xdd}, []byte{0x00, 0x57}
		}
		addresses := make([]byte, 12)
		for name, link := range map[string][]byte{
			"Ethernet": etherType,
			"VLAN":     append([]byte{0x81, 0, 0, 7}, etherType...),
			"QinQ":     append([]byte{0x88, 0xa8, 0, 7, 0x81, 0, 0, 9}, etherType...),
			"PPPoE":    append([]byte{0x88, 0x64, 0x11, 0, 0, 1, 0, 0}, ppp...),
			"both":     append([]byte{0x81, 0, 0, 7, 0x88, 0x64, 0x11, 0, 0, 1, 0, 0}, ppp...),
		} {
			frame := append(append(append([]byte(nil), addresses...), link...), ip...)
			if got, ok := parseEthernet(frame); !ok || got != want {
				t.Fatalf("%s: %+v %v, want %+v", name, got, ok, want)
			}
			for n := range frame {
				if _, ok := parseEthernet(frame[:n]); ok {
					t.Fatalf("%s: %d of %d bytes are read", name, n, len(frame))
				}
			}
		}
	})
}

func TestParseRefuses(t *testing.T) {
	s := Segment{Src: netip.MustParseAddr("192.0.2.1"), Dst: netip.MustParseAddr("192.0.2.2"), HasStamp: true}
	for name, change := range map[string]func(b []byte){
		"UDP":               func(b []byte) { b[9] = 17 },
		"a later fragment":  func(b []byte) { b[7] = 1 },
		"a first fragment":  func(b []byte) { b[6] = 0x20 },
		"a short header":    func(b []byte) { b[0] = 0x44 },
		"a short TCP":       func(b []byte) { b[32] = 0x40 },
		"shorter than TCP":  func(b []byte) { b[2], b[3] = 0, 30 },
		"another version":   func(b []byte) { b[0] = 0x55 },
		"a header too long": func(b []byte) { b[32] = 0xf0 },
	} {
		b := packet(&s)
		change(b)
		if got, ok := parseIP(b); ok {
			t.Errorf("%s is read as %+v", name, got)
		}
	}
	b := packet(&s)
	b[20+20+2+1] = 0 // the option's length
	if got, ok := parseIP(b); !ok || got.HasStamp {
		t.Errorf("an option of no length: %+v %v", got, ok)
	}
}

// FuzzParse: nothing that arrives makes the parser or the tracker panic.
func FuzzParse(f *testing.F) {
	s := Segment{Src: netip.MustParseAddr("192.0.2.1"), Dst: netip.MustParseAddr("192.0.2.2"), HasStamp: true, Flags: FlagAck, Length: 100}
	f.Add(packet(&s), uint16(TypeIPv4))
	s.Src, s.Dst = netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("2001:db8::2")
	f.Add(packet(&s), uint16(TypeIPv6))
	f.Add([]byte{0x11, 0, 0, 1, 0, 0, 0, 0x21, 0x45}, uint16(TypePPPoE))
	f.Fuzz(func(t *testing.T, b []byte, etherType uint16) {
		tr := NewTracker(TrackerConfig{Flows: 4, Networks: 2})
		for i, parse := range []func([]byte) (Segment, bool){parseIP, parseEthernet, func(b []byte) (Segment, bool) { return ParsePacket(etherType, b) }} {
			s, ok := parse(b)
			if !ok {
				continue
			}
			if s.Length > 65535 {
				t.Fatalf("a payload of %d", s.Length)
			}
			tr.Observe(1, true, &s)
			s.Src, s.Dst, s.SrcPort, s.DstPort, s.TSecr, s.Ack = s.Dst, s.Src, s.DstPort, s.SrcPort, s.TSval, s.Seq+s.Length
			tr.Observe(2+1, i%2 == 0, &s)
		}
		tr.Collect(4, func(s Sample) {
			if s.RTT <= 0 {
				t.Fatalf("%+v", s)
			}
		})
	})
}
