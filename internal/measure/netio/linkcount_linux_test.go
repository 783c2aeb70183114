package netio_test

import (
	"net"
	"testing"

	"unbloat/internal/measure/netio"
)

// Interfaces are asked for together: one that is not there, or has no name, takes
// nothing from the others.
func TestLinkCounts(t *testing.T) {
	lo, err := net.InterfaceByName("lo")
	if err != nil {
		t.Skip("SKIPPED: this machine has no lo: ", err)
	}
	c, err := netio.OpenLinkCounter()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for range 3 {
		out := make([]netio.LinkCounts, 4)
		if err := c.Read([]string{"nosuchlink", "", "lo", "nosuchlink2"}, out); err != nil {
			t.Fatal(err)
		}
		for i, want := range []int{0, 0, lo.Index, 0} {
			if out[i].Index != want {
				t.Errorf("place %d has the index %d, want %d", i, out[i].Index, want)
			}
		}
		if err := c.Read([]string{"lo"}, out); err != nil || out[0].Index != lo.Index {
			t.Errorf("lo alone: index %d, %v", out[0].Index, err)
		}
	}
}
