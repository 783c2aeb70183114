package linux_test

import (
	"io"
	"net"
	"os/exec"
	"testing"
	"time"

	"unbloat/internal/cure/lang/tc"
	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform/linux"
	"unbloat/lab"
	"unbloat/testkit/labtest"
	"unbloat/unit"
)

// tinBytes returns what each class's tin of CAKE on a device has sent.
func tinBytes(t *testing.T, device string, shares []plan.Share) map[plan.Class]int64 {
	t.Helper()
	out, err := exec.Command("tc", "-s", "-d", "-j", "qdisc", "show", "dev", device).Output()
	if err != nil {
		t.Fatal(err)
	}
	counters, err := tc.ParseCounters(out, device)
	if err != nil {
		t.Fatal(err)
	}
	sent := map[plan.Class]int64{}
	for _, c := range counters {
		for _, s := range shares {
			if len(c.Tins) >= int(s.Tin) {
				sent[s.Class] += c.Tins[s.Tin-1].Bytes
			}
		}
	}
	return sent
}

// TestLongConnectionsInLab: a connection's class is in its mark, and its bytes
// are checked only now and then. Of a connection that sends or receives 3 MB
// the first bytes are interactive and the following normal; it is bulk at most
// 160 kB after it has become long.
func TestLongConnectionsInLab(t *testing.T) {
	if !routerInLab(t) {
		return
	}
	ctx := t.Context()
	facts, err := linux.Detect(ctx, here(), "wan", "lan")
	if err != nil {
		t.Fatal(err)
	}
	p, err := plan.Make(plan.Line{Down: 30 * unit.MbitPerSecond, Up: 5 * unit.MbitPerSecond, RTT: 20 * time.Millisecond}, facts, plan.Preferences{})
	if err != nil {
		t.Fatal(err)
	}
	b := &p.Classes.Behaviour
	b.LongBytes = 1500 * unit.KB
	turn(t, &linux.Backend{Runner: here(), Exe: labtest.Unbloat()}, p)
	serveAll(t, lab.ServerAddr)
	const carried = 3_000_000
	for _, x := range []struct {
		d       plan.Direction
		device  string
		port    string
		first   unit.Size
		carries func(c net.Conn) error
	}{
		{plan.DirectionUp, "wan", "6001", b.FirstUp, func(c net.Conn) error { _, err := c.Write(make([]byte, carried)); return err }},
		{plan.DirectionDown, "ifb4wan", "6002", b.FirstBytes, func(c net.Conn) error { _, err := io.CopyN(io.Discard, c, carried); return err }},
	} {
		shares := p.Classes.Of(x.d == plan.DirectionDown)
		before := tinBytes(t, x.device, shares)
		within(t, lab.Host(1), func() {
			c, err := net.DialTimeout("tcp", net.JoinHostPort(lab.ServerAddr, x.port), 20*time.Second)
			if err == nil {
				defer c.Close()
				err = x.carries(c)
			}
			if err != nil {
				t.Error(err)
			}
		})
		after := tinBytes(t, x.device, shares)
		sent := map[plan.Class]int64{}
		for class := range after {
			sent[class] = after[class] - before[class]
		}
		t.Logf("%s: %v", x.d, sent)
		const slack = 160_000
		if n, most := sent[plan.Interactive], int64(x.first)*5/4+3000; n < int64(x.first)/2 || n > most {
			t.Errorf("%s: %d bytes were interactive, not about %s", x.d, n, x.first)
		}
		if n, all := sent[plan.Normal], int64(b.LongBytes-x.first); n < all*9/10 || n > all+slack {
			t.Errorf("%s: %d bytes were normal, not %d", x.d, n, all)
		}
		if n, all := sent[plan.Bulk], int64(carried-b.LongBytes); n < all-2*slack {
			t.Errorf("%s: %d bytes were bulk, not %d", x.d, n, all)
		}
	}
}
