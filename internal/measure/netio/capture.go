package netio

import (
	"golang.org/x/net/bpf"

	"unbloat/unit"
)

// A Packet is the beginning of one that crossed an interface. Data is valid
// during the call only.
type Packet struct {
	At     unit.Instant
	Out    bool   // sent by this machine, for itself or for others
	Type   uint16 // EtherType of what Data begin with
	Length int    // of the whole packet from there on
	Data   []byte
}

// CaptureLength is how much of each packet a Capture hands over: a PPPoE header, and
// the headers of IP and TCP with their options.
const CaptureLength = 136

// Packets are looked at by their first byte, which tells IPv4, IPv6 and PPPoE
// apart: on the interface of a VLAN, of PPP or of a tunnel, they begin with IP.
const (
	firstVersion4 = 0x40
	firstVersion6 = 0x60
	firstPPPoE    = 0x11
)

// captureFilter returns a program of the kernel's classic packet filter that lets
// TCP segments with timestamps pass, cut to their headers. mask thins them out:
// of segments whose timestamps stand where all systems put them, those pass that
// have the bits of the mask zero in either stamp; those that open a connection
// pass always, and others never. A mask of 0 lets all pass. Beside them data pass
// whose sequence numbers have the bits of the mask of their direction zero.
func captureFilter(mask, down, up uint32) []bpf.Instruction {
	const (
		tcp      = 6
		leastTCP = 8 << 4     // header of 32 bytes: 20 and the option, padded
		usual    = 0x0101080a // no operation, twice; timestamps; 10 bytes
		flags    = 13
		syn      = 0x02
		option   = 20 // where the options begin
		sequence = 4
		outgoing = 4   // PACKET_OUTGOING of packet(7)
		data     = 256 // bytes of a packet with data at least: an acknowledgement has 120
	)
	pass, drop := bpf.RetConstant{Val: CaptureLength}, bpf.RetConstant{}
	// X is where the TCP header begins.
	tail := []bpf.Instruction{
		bpf.LoadExtension{Num: bpf.ExtLen},
		bpf.JumpIf{Cond: bpf.JumpLessThan, Val: data, SkipTrue: 9},
		bpf.LoadExtension{Num: bpf.ExtType},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: outgoing, SkipTrue: 3},
		bpf.LoadIndirect{Off: sequence, Size: 4},
		bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: down},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: 0, SkipTrue: 3, SkipFalse: 4},
		bpf.LoadIndirect{Off: sequence, Size: 4},
		bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: up},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: 0, SkipTrue: 1},
		pass,
		bpf.LoadIndirect{Off: 12, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpGreaterOrEqual, Val: leastTCP, SkipTrue: 1},
		drop,
	}
	if mask == 0 {
		tail = append(tail, pass)
	} else {
		tail = append(tail,
			bpf.LoadIndirect{Off: flags, Size: 1},
			bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: syn, SkipTrue: 8},
			bpf.LoadIndirect{Off: option, Size: 4},
			bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: usual, SkipTrue: 7},
			bpf.LoadIndirect{Off: option + 4, Size: 4},
			bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: mask},
			bpf.JumpIf{Cond: bpf.JumpEqual, Val: 0, SkipTrue: 3},
			bpf.LoadIndirect{Off: option + 8, Size: 4},
			bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: mask},
			bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: 0, SkipTrue: 1},
			pass,
			drop,
		)
	}
	four := func(at uint32) []bpf.Instruction {
		return append([]bpf.Instruction{
			bpf.LoadAbsolute{Off: at + 9, Size: 1},
			bpf.JumpIf{Cond: bpf.JumpEqual, Val: tcp, SkipTrue: 1},
			drop,
			bpf.LoadAbsolute{Off: at + 6, Size: 2},
			bpf.JumpIf{Cond: bpf.JumpBitsNotSet, Val: 0x1fff, SkipTrue: 1},
			drop,
			bpf.LoadMemShift{Off: at},
			bpf.TXA{},
			bpf.ALUOpConstant{Op: bpf.ALUOpAdd, Val: at},
			bpf.TAX{},
		}, tail...)
	}
	six := func(at uint32) []bpf.Instruction {
		return append([]bpf.Instruction{
			bpf.LoadAbsolute{Off: at + 6, Size: 1},
			bpf.JumpIf{Cond: bpf.JumpEqual, Val: tcp, SkipTrue: 1},
			drop,
			bpf.LoadConstant{Dst: bpf.RegX, Val: at + 40},
		}, tail...)
	}
	unless := func(body []bpf.Instruction) uint8 { return uint8(len(body)) }
	family := func(at uint32) []bpf.Instruction {
		body4, body6 := four(at), six(at)
		out := []bpf.Instruction{
			bpf.LoadAbsolute{Off: at, Size: 1},
			bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: 0xf0},
			bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: firstVersion4, SkipTrue: unless(body4)},
		}
		out = append(out, body4...)
		out = append(out, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: firstVersion6, SkipTrue: unless(body6)})
		return append(append(out, body6...), drop)
	}
	const pppHeader = 8
	inside := family(pppHeader)
	out := []bpf.Instruction{
		bpf.LoadAbsolute{Off: 0, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: firstPPPoE, SkipTrue: unless(inside)},
	}
	return append(append(out, inside...), family(0)...)
}
