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
	for name, f := range map[string]struct {
		at, size    uintptr
		first, last uintptr // lines
	}{
		"bins":     {unsafe.Offsetof(c.bins), unsafe.Sizeof(c.bins), 0, sharedLine - 1},
		"arrived":  {unsafe.Offsetof(c.arrived), 8, 0, sharedLine - 1},
		"ackAlarm": {unsafe.Offsetof(c.ackAlarm), unsafe.Sizeof(c.ackAlarm), 0, sharedLine - 1},
		"index":    {unsafe.Offsetof(c.index), 4, sharedLine, sharedLine},
		"mostOut":  {unsafe.Offsetof(c.mostOut), 4, sharedLine, sharedLine},
		"alarm":    {unsafe.Offsetof(c.alarm), unsafe.Sizeof(c.alarm), alarmLine, alarmLine},
		"una":      {unsafe.Offsetof(c.una), 4, sharedLine + 1, sharedLine + senderLines - 1},
		"cubic":    {unsafe.Offsetof(c.cubic), unsafe.Offsetof(c.cubic.found), sharedLine + 1, sharedLine + senderLines - 1},
		"ranges":   {unsafe.Offsetof(c.ranges), unsafe.Sizeof(c.ranges), rangesLine, rangesLine},
		"inPlace":  {unsafe.Offsetof(c.inPlace), unsafe.Sizeof(c.inPlace), rangesLine, rangesLine},
		"segments": {unsafe.Offsetof(c.inConn), unsafe.Sizeof(c.inConn), segmentsLine, segmentsLine + fewSegments/segmentsALine - 1},
	} {
		if first, last := f.at/64, (f.at+f.size-1)/64; first < f.first || last > f.last {
			t.Errorf("%s is in lines %d to %d, not within %d to %d", name, first, last, f.first, f.last)
		}
	}
	if end := unsafe.Offsetof(c.rare.resendsInPlace) + unsafe.Sizeof(c.rare.resendsInPlace); end > 64*lossLines {
		t.Errorf("what a loss needs ends at byte %d, beyond %d lines", end, lossLines)
	}
	if receiverLines != sharedLine+1 {
		t.Error("the receiver's lines do not end with the shared one")
	}
	if unsafe.Sizeof(segment{})*segmentsALine != 64 {
		t.Errorf("a segment has %d bytes; %d are to fill a line", unsafe.Sizeof(segment{}), segmentsALine)
	}
	if size := unsafe.Sizeof(packet{}); size > 32 {
		t.Errorf("a packet has %d bytes, more than half a line", size)
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
