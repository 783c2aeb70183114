package netio

import "testing"

// Control messages come from the kernel, but no content may make us read beyond
// their memory.
func FuzzControlMessages(f *testing.F) {
	f.Add([]byte{32, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 35, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0})
	f.Add([]byte{28, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 1, 0, 0, 0, 127, 0, 0, 1, 127, 0, 0, 1, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, oob []byte) {
		_ = kernelStamp(oob)
		var p Peer
		if n := putLocal(p.local[:], oob); n < 0 || n > oobLocal {
			t.Errorf("a message of %d bytes", n)
		}
	})
}
