package platform_test

import (
	"strings"
	"testing"

	"unbloat/internal/cure/classify"
	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform"
	"unbloat/internal/cure/platform/all"
	"unbloat/unit"
)

// TestWhyRules: on a platform with explicit rules only, why names the
// rule that the platform applies, or says that none matches.
func TestWhyRules(t *testing.T) {
	w := plan.Preferences{Classes: plan.ClassPreferences{Rules: []plan.Rule{
		{Class: plan.Voice, Protocol: "udp", FarPort: []plan.PortRange{{From: 5060, To: 5061}}},
		{Class: plan.Bulk, Direction: plan.DirectionUp, Far: []string{"203.0.113.0/24"}},
		{Class: plan.Interactive, Far: []string{"203.0.113.9"}},
	}}}
	for _, name := range []string{"openbsd", "openbsd-altq", "freebsd", "opnsense", "clearos"} {
		facts, err := all.Assume(name, "", "")
		if err != nil {
			t.Fatal(err)
		}
		if w.AQM = ""; name == "clearos" {
			w.AQM = plan.SFQ
		}
		p, err := plan.Make(plan.Line{Down: 25 * unit.MbitPerSecond, Up: 2 * unit.MbitPerSecond}, facts, w)
		if err != nil {
			t.Fatal(err)
		}
		acks := map[string]plan.Class{"openbsd": plan.Interactive, "openbsd-altq": plan.Interactive, "freebsd": plan.Bulk, "opnsense": plan.Bulk, "clearos": plan.Bulk}[name]
		bare := plan.Interactive
		if name == "clearos" {
			bare = plan.Normal
		}
		for _, c := range []struct {
			flow  string
			bytes unit.Size
			d     plan.Direction
			class plan.Class
			says  string
		}{
			{"udp 192.168.1.2:40000 > 198.51.100.1:5060", 200, plan.DirectionUp, plan.Voice, "rule 1"},
			{"udp 192.168.1.2:40000 > 198.51.100.1:5060", 200, plan.DirectionDown, plan.Voice, "rule 1"},
			{"tcp 192.168.1.2:40000 > 203.0.113.9:443", 1500, plan.DirectionUp, plan.Bulk, "rule 2"},
			{"tcp 192.168.1.2:40000 > 203.0.113.9:443", 1500, plan.DirectionDown, plan.Interactive, "rule 3"},
			{"tcp 192.168.1.2:40000 > 203.0.113.9:443", 52, plan.DirectionUp, acks, "rule 2"},
			{"udp 192.168.1.2:40000 > 198.51.100.1:53", 80, plan.DirectionUp, plan.Voice, "DNS"},
			{"icmp 192.168.1.2 > 198.51.100.1", 84, plan.DirectionDown, plan.Voice, "ping"},
			{"tcp 192.168.1.2:40000 > 198.51.100.1:443", 52, plan.DirectionUp, bare, ""},
			{"tcp 192.168.1.2:40000 > 198.51.100.1:443", 1500, plan.DirectionUp, plan.Normal, "no rule names it, and nothing on " + name},
		} {
			f, err := classify.ParseFlow(c.flow)
			if err != nil {
				t.Fatal(err)
			}
			f.Packet = c.bytes
			got := platform.WhyRules(p, c.d, f, 0, func(int, bool) bool { return false })
			if got.Class != c.class || !strings.Contains(got.Rule, c.says) {
				t.Errorf("%s: %s of %d bytes %s: %+v, want %s, %q", name, c.flow, c.bytes, c.d, got, c.class, c.says)
			}
		}
	}
}

// TestWhyRulesNotWritten: a rule of ports alone is written for TCP and UDP;
// pf's second queue takes packets whose TOS asks for low delay.
func TestWhyRulesNotWritten(t *testing.T) {
	for _, c := range []struct {
		platform, flow, dscp string
		class                plan.Class
	}{
		{"openbsd", "sctp 192.168.1.2:40000 > 198.51.100.1:2905", "df", plan.Normal},
		{"freebsd", "sctp 192.168.1.2:40000 > 198.51.100.1:2905", "df", plan.Normal},
		{"openbsd", "tcp 192.168.1.2:40000 > 198.51.100.1:2905", "df", plan.Bulk},
		{"openbsd", "tcp 192.168.1.2:40000 > 198.51.100.1:2905", "ef", plan.Interactive},
		{"freebsd", "tcp 192.168.1.2:40000 > 198.51.100.1:2905", "ef", plan.Bulk},
		{"openbsd-altq", "tcp 192.168.1.2:40000 > 198.51.100.1:2905", "ef", plan.Interactive},
		{"pfsense", "tcp 192.168.1.2:40000 > 198.51.100.1:2905", "df", plan.Bulk},
		{"openbsd", "tcp 192.168.1.2:40000 > 198.51.100.1:443", "ef", plan.Interactive},
		{"openbsd", "udp 192.168.1.2:40000 > 198.51.100.1:443", "ef", plan.Normal},
	} {
		facts, err := all.Assume(c.platform, "", "")
		if err != nil {
			t.Fatal(err)
		}
		p, err := plan.Make(plan.Line{Down: 25 * unit.MbitPerSecond, Up: 2 * unit.MbitPerSecond}, facts, plan.Preferences{Classes: plan.ClassPreferences{Rules: []plan.Rule{
			{Class: plan.Bulk, Port: []plan.PortRange{{From: 2905, To: 2905}}}}}})
		if err != nil {
			t.Fatal(err)
		}
		f, err := classify.ParseFlow(c.flow)
		if err != nil {
			t.Fatal(err)
		}
		f.Packet = 1000
		f.DSCP, err = plan.ParseDSCP(c.dscp)
		if got := platform.WhyRules(p, plan.DirectionUp, f, 0, nil); err != nil || got.Class != c.class {
			t.Errorf("%s: %s with %s: %+v, want %s (%v)", c.platform, c.flow, c.dscp, got, c.class, err)
		}
	}
}
