package bsd_test

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"unbloat/internal/lang/nft"
	"unbloat/internal/plan"
	"unbloat/internal/platform/fake"
	"unbloat/internal/platform/freebsd"
	freebsdfake "unbloat/internal/platform/freebsd/fake"
	"unbloat/unit"
)

// A call gets its class from the states' counters within two readings, in the
// table of the applied plan, under the addresses before and after NAT. An upload gets
// none, and what is gone from the states is gone from the table. A table that was
// emptied by somebody is filled again.
func TestSorter(t *testing.T) {
	d := freebsd.Driver()
	p, err := plan.Make(plan.Line{}, plan.Capabilities{Language: d.Language, WAN: "igb0", LAN: "igb1"},
		plan.Preferences{Down: plan.RatePreference{Rate: 28e6}, Up: plan.RatePreference{Rate: 4.8e6}, Classes: plan.ClassPreferences{Use: plan.ClassesOn}})
	if err != nil {
		t.Fatal(err)
	}
	if d.Sorter(plan.Plan{Platform: "freebsd"}, nil) != nil {
		t.Error("a plan without classes has a sorter")
	}
	r := freebsdfake.New()
	parts, _, err := d.Render(p)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(parts[1].Text) {
		if _, errOut, err := r.Run(t.Context(), strings.Fields(line), nil); err != nil {
			t.Fatalf("%s: %s", line, errOut)
		}
	}
	seconds, calls := 0, true
	r.Tools["pfctl"] = fake.Tool{Run: func(args []string, _ []byte) (string, error) {
		if !slices.Equal(args, []string{"-ss", "-v"}) {
			return "", fmt.Errorf("pfctl %q", args)
		}
		text := fmt.Sprintf("all tcp 203.0.113.2:60001 (192.168.1.6:50000) -> 198.51.100.8:443       ESTABLISHED:ESTABLISHED\n"+
			"   age 00:01:02, expires in 23:59:59, %d:%d pkts, %d:%d bytes, rule 12\n", seconds*300, seconds*100, seconds*450000, seconds*5200)
		if calls {
			counts := fmt.Sprintf("   age 00:01:02, expires in 00:01:00, %d:%d pkts, %d:%d bytes, rule 12\n", seconds*50, seconds*50, seconds*10000, seconds*10000)
			text += "all udp 198.51.100.9:3478 <- 192.168.1.5:5004       MULTIPLE:MULTIPLE\n" + counts +
				"all udp 203.0.113.2:60002 (192.168.1.5:5004) -> 198.51.100.9:3478       MULTIPLE:MULTIPLE\n" + counts
		}
		return text, nil
	}}
	home := netip.MustParsePrefix("192.168.1.0/24")
	s := d.Sorter(p, home.Contains)
	sort := func() {
		t.Helper()
		seconds++
		if err := s.Sort(context.Background(), r, unit.Instant(time.Duration(seconds)*time.Second)); err != nil {
			t.Fatal(err)
		}
	}
	sort()
	if n := len(r.Dnctl.Table("unbloat")); n > 0 {
		t.Errorf("%d entries after one reading", n)
	}
	sort()
	want := map[string]uint32{
		"192.168.1.5,17,5004,198.51.100.9,3478": 11, "203.0.113.2,17,60002,198.51.100.9,3478": 11,
		"198.51.100.9,17,3478,192.168.1.5,5004": 21, "198.51.100.9,17,3478,203.0.113.2,60002": 21,
	}
	has := func(when string) {
		t.Helper()
		if got := r.Dnctl.Table("unbloat"); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: %v, want %v", when, got, want)
		}
	}
	has("after two readings")
	flow, err := nft.ParseFlow("udp 192.168.1.5:5004 > 198.51.100.9:3478")
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range d.WhyClass(t.Context(), r, p, flow).Verdicts {
		if v.Class != plan.Voice {
			t.Errorf("why: %+v", v)
		}
	}
	flow.Home = netip.MustParseAddrPort("192.168.1.77:5004")
	if v := d.WhyClass(t.Context(), r, p, flow).Verdicts[0]; v.Class != plan.Normal {
		t.Errorf("why, of a flow that is not there: %+v", v)
	}
	clear(r.Dnctl.Table("unbloat"))
	for range 10 {
		sort()
	}
	has("after somebody emptied it")
	calls, want = false, map[string]uint32{}
	sort()
	has("after the call")
}
