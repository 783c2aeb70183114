package netio

import (
	"encoding/binary"
	"testing"

	"golang.org/x/net/bpf"
)

// segment4 and segment6 write TCP segments with timestamps where systems put them.
func segment4(protocol byte, fragment uint16, tcp []byte) []byte {
	b := make([]byte, 24) // with four bytes of IP options
	b[0], b[9] = 0x46, protocol
	binary.BigEndian.PutUint16(b[6:], fragment)
	return append(b, tcp...)
}

func segment6(next byte, tcp []byte) []byte {
	b := make([]byte, 40)
	b[0], b[6] = 0x60, next
	return append(b, tcp...)
}

func stamps(flags byte, tsval, tsecr uint32) []byte {
	b := make([]byte, 20)
	b[12], b[13] = 8<<4, flags
	b = append(b, 1, 1, 8, 10)
	b = binary.BigEndian.AppendUint32(b, tsval)
	return binary.BigEndian.AppendUint32(b, tsecr)
}

// along is a program that sees packets of one kind (packet(7)): the machine that runs it
// here knows no kinds.
func along(program []bpf.Instruction, kind uint32) []bpf.Instruction {
	for i, x := range program {
		if x == (bpf.LoadExtension{Num: bpf.ExtType}) {
			program[i] = bpf.LoadConstant{Dst: bpf.RegA, Val: kind}
		}
	}
	return program
}

// Data pass by their sequence numbers, each direction's by its own mask, with stamps or without.
func TestDataFilter(t *testing.T) {
	const came, left = 0, 4
	data := func(seq uint32) []byte {
		b := append(stamps(16, 10, 10), make([]byte, 400)...)
		binary.BigEndian.PutUint32(b[4:], seq)
		return b
	}
	bare := data(4 << 16)
	bare[12] = 5 << 4
	for _, c := range []struct {
		name     string
		tcp      []byte
		kind     uint32
		down, up uint32
		want     bool
	}{
		{"in a block that is followed", data(4<<16 + 7), came, 3 << 16, ^uint32(0), true},
		{"in another", data(5 << 16), came, 3 << 16, 0, false},
		{"the same, out", data(5 << 16), left, 3 << 16, 1 << 17, true},
		{"out, in another", data(6 << 16), left, 0, 1 << 17, false},
		{"without stamps", bare, came, 3 << 16, ^uint32(0), true},
		{"an acknowledgement", data(4 << 16)[:40], came, 0, 0, false},
	} {
		for name, b := range map[string][]byte{"IPv4": segment4(6, 0, c.tcp), "IPv6": segment6(6, c.tcp)} {
			vm, err := bpf.NewVM(along(captureFilter(6, c.down, c.up), c.kind))
			if err != nil {
				t.Fatal(err)
			}
			if n, err := vm.Run(b); err != nil || (n > 0) != c.want {
				t.Errorf("%s, %s: %d bytes pass, %v", name, c.name, n, err)
			}
		}
	}
}

// The kernel's program lets exactly the segments pass that are wanted, behind any
// of the headers that the tracker reads.
func TestStampFilter(t *testing.T) {
	opening := make([]byte, 40)
	opening[12], opening[13] = 10<<4, 2
	strange := stamps(16, 8, 8)
	strange[20] = 5 // another order of options
	pppoe := func(b []byte) []byte { return append([]byte{0x11, 0, 0, 1, 0, 60, 0, 0x21}, b...) }
	for _, c := range []struct {
		name        string
		tcp         []byte
		plain, thin bool // passes without a mask, and with that of 7 less 1
	}{
		{"a stamp of ours", stamps(16, 8, 3), true, true},
		{"an echo of it", stamps(16, 3, 8), true, true},
		{"the millisecond after", stamps(16, 9, 3), true, true},
		{"neither", stamps(16, 10, 7), true, false},
		{"an opening", opening, true, true},
		{"another order", strange, true, false},
		{"without options", make([]byte, 20), false, false},
	} {
		for name, b := range map[string][]byte{
			"IPv4":               segment4(6, 0x4000, c.tcp),
			"IPv6":               segment6(6, c.tcp),
			"PPPoE":              pppoe(segment4(6, 0, c.tcp)),
			"PPPoE and IPv6":     pppoe(segment6(6, c.tcp)),
			"- UDP":              segment4(17, 0, c.tcp),
			"- a later fragment": segment4(6, 3, c.tcp),
			"- UDP over IPv6":    segment6(17, c.tcp),
			"- ARP":              append([]byte{0, 1, 8, 0}, c.tcp...),
			"- cut off":          segment4(6, 0, c.tcp)[:30],
		} {
			for mask, want := range map[uint32]bool{0: c.plain, 7 &^ 1: c.thin} {
				vm, err := bpf.NewVM(along(captureFilter(mask, 0, 0), 0))
				if err != nil {
					t.Fatal(err)
				}
				n, err := vm.Run(b)
				if want = want && name[0] != '-'; err != nil || (n > 0) != want || n != 0 && n != CaptureLength {
					t.Errorf("%s, %s, mask %x: %d bytes pass, %v", name, c.name, mask, n, err)
				}
			}
		}
	}
}

// What each of CAKE's tins has sent is read from what the kernel says of it; another
// queue's statistics are no tins.
func TestTins(t *testing.T) {
	attribute := func(kind uint16, v ...byte) []byte {
		b := binary.NativeEndian.AppendUint16(nil, uint16(4+len(v)))
		b = append(binary.NativeEndian.AppendUint16(b, kind), v...)
		for len(b)%4 != 0 {
			b = append(b, 0)
		}
		return b
	}
	var tins []byte
	for n := uint16(1); n <= MostTins+1; n++ {
		sent := binary.NativeEndian.AppendUint32(nil, 100*uint32(n))
		tins = append(tins, attribute(n, append(attribute(3, make([]byte, 8)...), attribute(cakeTinSent, sent...)...)...)...)
	}
	for kind, want := range map[string][MostTins]uint32{"cake": {100, 200, 300, 400, 500, 600, 700, 800}, "fq_codel": {}} {
		b := make([]byte, qdiscHeader)
		b = append(b, attribute(tcaKind, append([]byte(kind), 0)...)...)
		b = append(b, attribute(tcaStats2, attribute(tcaStatsApp, attribute(cakeTins, tins...)...)...)...)
		if _, _, q, ok := parseQdisc(b); !ok || q.Tins != want {
			t.Errorf("%s: %v %t", kind, q.Tins, ok)
		}
	}
}

// FuzzNetlink: nothing that a kernel could answer makes the parsers panic.
func FuzzNetlink(f *testing.F) {
	f.Add(make([]byte, 40))
	link := make([]byte, linkHeader)
	link = append(link, 8, 0, iflaIfname, 0, 'w', 'a', 'n', 0)
	f.Add(link)
	f.Fuzz(func(t *testing.T, b []byte) {
		if name, c, ok := parseLink(b); ok && (name == "" || len(b) < linkHeader) {
			t.Fatalf("%q %+v of %d bytes", name, c, len(b))
		}
		if _, _, q, ok := parseQdisc(b); ok && len(q.Kind) > len(b) {
			t.Fatalf("%+v", q)
		}
	})
}
