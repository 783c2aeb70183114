package netio

import (
	"encoding/binary"
	"testing"
)

// TestIfinfo: the counters of each interface are read, whatever stands between the
// messages; what is cut off or too short is left out and ends nothing else.
func TestIfinfo(t *testing.T) {
	for name, l := range map[string]ifinfoLayout{"freebsd": ifinfoFreeBSD(), "openbsd": ifinfoOpenBSD()} {
		message := func(kind byte, size, index int) []byte {
			m := make([]byte, size)
			binary.NativeEndian.PutUint16(m, uint16(size))
			m[3] = kind
			if size < l.txBytes+8 {
				return m
			}
			binary.NativeEndian.PutUint16(m[l.index:], uint16(index))
			for i, at := range []int{l.rxPackets, l.txPackets, l.rxBytes, l.txBytes} {
				binary.NativeEndian.PutUint64(m[at:], uint64(index)<<40+uint64(i))
			}
			return m
		}
		var all []byte
		for _, m := range [][]byte{message(rtmIfinfo, 168, 1), message(0xc, 40, 1), message(rtmIfinfo, 24, 9), message(rtmIfinfo, 168, 2)} {
			all = append(all, m...)
		}
		var got []LinkCounts
		parseIfinfo(append(all, 200, 0, 5, rtmIfinfo), l, func(c LinkCounts) { got = append(got, c) })
		if len(got) != 2 {
			t.Fatalf("%s: %+v", name, got)
		}
		for i, c := range got {
			n := uint64(i+1) << 40
			if want := (LinkCounts{Index: i + 1, RxPackets: n, TxPackets: n + 1, RxBytes: n + 2, TxBytes: n + 3}); c != want {
				t.Errorf("%s: %+v, not %+v", name, c, want)
			}
		}
	}
}
