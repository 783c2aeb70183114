package phases_test

import (
	"net"
	"testing"
	"time"

	"unbloat/internal/measure/netio"
	"unbloat/internal/measure/phases"
	"unbloat/internal/serve"
)

// A server of ours says with which traffic class each packet came, and answers with that class.
func TestMarksThere(t *testing.T) {
	if !netio.CanMark {
		t.Skip("SKIPPED: packets are marked on Linux only")
	}
	_, port, err := net.SplitHostPort(startWith(t, serve.Limits{}))
	if err != nil {
		t.Fatal(err)
	}
	c, err := phases.Dial(t.Context(), net.JoinHostPort("127.0.0.1", port), phases.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	classes := []uint8{46 << 2, 45 << 2, 1, 3, 46<<2 | 1, 0}
	seen, err := c.Marks(t.Context(), classes, 10, 2*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	for i, s := range seen {
		// The first packets come before the server has asked its system.
		if s.Class != classes[i] || s.Sent != 10 || s.There[s.Class] < 5 || len(s.There) > 1 || s.Back[s.Class] < 5 || len(s.Back) > 1 || len(s.RTTs) < 5 {
			t.Errorf("class %#02x: %+v", classes[i], s)
		}
	}
}
