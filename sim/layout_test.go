package sim

import (
	"testing"
	"unsafe"
)

// What is asked for early is what is needed: a field that is moved away from
// the others costs a read from memory for each packet.
func TestConnLayout(t *testing.T) {
	var c Conn
	if size := unsafe.Sizeof(c); size%64 != 0 {
		t.Errorf("a connection has %d bytes, which are not whole lines of 64", size)
	}
	for name, end := range map[string]uintptr{
		"goodput": unsafe.Offsetof(c.bin) + unsafe.Sizeof(c.bin), "alarms": unsafe.Offsetof(c.alarms) + unsafe.Sizeof(c.alarms),
		"what is out of order": unsafe.Offsetof(c.ranges) + unsafe.Sizeof(c.ranges),
	} {
		if end > receiverLines*64 {
			t.Errorf("the receiver's %s ends at byte %d, beyond %d lines", name, end, receiverLines)
		}
	}
	for name, end := range map[string]uintptr{
		"control": unsafe.Offsetof(c.cubic) + unsafe.Sizeof(c.cubic), "count": unsafe.Offsetof(c.counts.Sent) + 8,
	} {
		if end > senderLines*64 {
			t.Errorf("the sender's %s ends at byte %d, beyond %d lines", name, end, senderLines)
		}
	}
	if size := unsafe.Sizeof(packet{}); size > 64 {
		t.Errorf("a packet has %d bytes, more than a line", size)
	}
	n := line(t, 1e6, 1e6, 0, 1e6, 1e6, 1)
	for range 2 * connChunk {
		addConn(t, n, ConnParams{})
	}
	for i := range uint32(2 * connChunk) {
		if at := uintptr(unsafe.Pointer(n.conn(i))); at%64 != 0 {
			t.Fatalf("connection %d begins in the middle of a line, at %x", i, at)
		}
	}
}
