package netio

import "encoding/binary"

// An ifinfoLayout says where the fields of a routing socket's RTM_IFINFO message are,
// in bytes from its beginning.
type ifinfoLayout struct {
	index              int // of the interface, 16 bits
	rxPackets, rxBytes int // 64 bits each
	txPackets, txBytes int
}

// Layouts of FreeBSD from 11 on and of OpenBSD, on every processor: their counters
// have had 64 bits since then.
func ifinfoFreeBSD() ifinfoLayout {
	return ifinfoLayout{index: 12, rxPackets: 40, txPackets: 56, rxBytes: 80, txBytes: 88}
}

func ifinfoOpenBSD() ifinfoLayout {
	return ifinfoLayout{index: 6, rxPackets: 48, txPackets: 64, rxBytes: 88, txBytes: 96}
}

// rtmIfinfo is the type of a message about an interface, on both systems.
const rtmIfinfo = 0xe

// parseIfinfo calls f for each interface in what a routing socket's list of
// interfaces says; what is malformed ends it.
func parseIfinfo(b []byte, l ifinfoLayout, f func(c LinkCounts)) {
	const header = 4
	for len(b) >= header {
		n := int(binary.NativeEndian.Uint16(b))
		if n < header || n > len(b) {
			return
		}
		if m := b[:n]; m[3] == rtmIfinfo && n >= l.txBytes+8 {
			f(LinkCounts{
				Index:     int(binary.NativeEndian.Uint16(m[l.index:])),
				RxPackets: binary.NativeEndian.Uint64(m[l.rxPackets:]), TxPackets: binary.NativeEndian.Uint64(m[l.txPackets:]),
				RxBytes: binary.NativeEndian.Uint64(m[l.rxBytes:]), TxBytes: binary.NativeEndian.Uint64(m[l.txBytes:]),
			})
		}
		b = b[n:]
	}
}
