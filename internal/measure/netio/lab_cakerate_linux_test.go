package netio_test

import (
	"os/exec"
	"strings"
	"testing"

	"unbloat/internal/measure/netio"
	"unbloat/lab"
	"unbloat/testkit/labtest"
	"unbloat/unit"
)

// CAKE's rate is changed, and nothing else of it: tc(8) shows so, and so does the
// counter. Where there is no CAKE, none is made.
func TestCakeRateInLab(t *testing.T) {
	if !labtest.Inside(t, labtest.Options{}) {
		return
	}
	show := func() string {
		b, err := exec.CommandContext(t.Context(), "tc", "qdisc", "show", "dev", lab.RouterWAN, "root").CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, b)
		}
		return string(b)
	}
	s, err := netio.OpenRateSetter()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Set(lab.RouterWAN, unit.MbitPerSecond); err == nil || strings.Contains(show(), "cake") {
		t.Errorf("a CAKE that is not there: %v, and then %s", err, show())
	}
	if err := s.Set("nobody", unit.MbitPerSecond); err == nil {
		t.Error("an interface that is not there has a rate")
	}
	if b, err := exec.CommandContext(t.Context(), "tc", "qdisc", "replace", "dev", lab.RouterWAN, "root", "handle", "7:", "cake", "bandwidth", "5mbit",
		"diffserv4", "dual-srchost", "nat", "ack-filter", "overhead", "22", "mpu", "64", "rtt", "60ms").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, b)
	}
	before := show()
	c, err := netio.OpenLinkCounter()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	out := make([]netio.LinkCounts, 1)
	for _, r := range []unit.Rate{12_500_000, 400_000, 90 * unit.MbitPerSecond, 5 * unit.MbitPerSecond} {
		if err := s.Set(lab.RouterWAN, r); err != nil {
			t.Fatal(err)
		}
		if err := c.Read([]string{lab.RouterWAN}, out); err != nil {
			t.Fatal(err)
		}
		if q := out[0].Queue; q.Rate != r || q.Kind != "cake" || q.Handle != 0x70000 {
			t.Errorf("%v is read back as %+v", r, q)
		}
	}
	if after := show(); after != before {
		t.Errorf("before and after:\n%s%s", before, after)
	}
}
