package pf_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	. "unbloat/internal/cure/lang/pf"
	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform/openbsd"
	"unbloat/unit"
)

func withClasses(t *testing.T, w plan.ClassPreferences) (plan.Plan, Ruleset) {
	t.Helper()
	p, err := plan.Make(plan.Line{Down: 120 * unit.MbitPerSecond, Up: 12 * unit.MbitPerSecond},
		plan.Capabilities{Language: openbsd.Language(), WAN: "em0", LAN: "em1"}, plan.Preferences{Up: plan.RatePreference{Rate: 11e6}, Down: plan.RatePreference{Rate: 110e6}, Classes: w})
	if err != nil {
		t.Fatal(err)
	}
	rs, notes, err := Render(p)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range notes {
		if strings.Contains(n, "add up") || strings.Contains(n, "below its bandwidth") {
			t.Errorf("pf takes in silence what cannot be meant: %s", n)
		}
	}
	return p, rs
}

// TestClasses: each class has a flow queue below the root with the rate. A
// rule's traffic goes to its class, whichever side opens the connection. What
// pfctl reads is what was written.
func TestClasses(t *testing.T) {
	_, rs := withClasses(t, plan.ClassPreferences{
		Rules: []plan.Rule{
			{Class: plan.Voice, Protocol: "udp", FarPort: []plan.PortRange{{From: 19302, To: 19309}}},
			{Class: plan.Bulk, Direction: plan.DirectionUp, Home: []string{"192.168.1.7", "2001:db8::/32"}, DSCP: []string{"cs1"}},
		},
		Shares: []plan.SharePreference{{Class: plan.Bulk, Direction: plan.DirectionUp, Limit: plan.RatePreference{Fraction: 0.8}}},
	})
	var up []string
	for line := range strings.Lines(rs.String()) {
		if strings.Contains(line, "em0") {
			up = append(up, strings.TrimSpace(line))
		}
	}
	want := strings.Split(strings.TrimSpace(`
queue em0_out on em0 bandwidth 11M max 11M
queue em0_voice parent em0_out flows 1024 quantum 335 bandwidth 3300K max 4319653 qlimit 1024
queue em0_interactive parent em0_out flows 1024 quantum 335 bandwidth 3300K max 5641997 qlimit 1024
queue em0_normal parent em0_out flows 1024 quantum 335 bandwidth 2750K max 11M qlimit 1024 default
queue em0_bulk parent em0_out flows 1024 quantum 335 bandwidth 1100K max 8800K qlimit 1024
match out on em0 proto tcp set ( queue ( em0_normal, em0_interactive ), prio ( 3, 5 ) )
match in on em0 proto tcp set ( queue ( em0_normal, em0_interactive ), prio ( 3, 5 ) )
match out on em0 inet proto icmp set ( queue em0_voice, prio 6 )
match in on em0 inet proto icmp set ( queue em0_voice, prio 6 )
match out on em0 inet6 proto icmp6 set ( queue em0_voice, prio 6 )
match in on em0 inet6 proto icmp6 set ( queue em0_voice, prio 6 )
match out on em0 proto { tcp udp } from any to any port 53 set ( queue em0_voice, prio 6 )
match in on em0 proto { tcp udp } from any port 53 to any set ( queue em0_voice, prio 6 )
match out on em0 from { 192.168.1.7 2001:db8::/32 } to any tos 0x20 set ( queue ( em0_bulk, em0_interactive ), prio ( 1, 5 ) )
match in on em0 from any to 2001:db8::/32 tos 0x20 set ( queue ( em0_bulk, em0_interactive ), prio ( 1, 5 ) )
match out on em0 proto udp from any to any port 19302:19309 set ( queue em0_voice, prio 6 )
match in on em0 proto udp from any port 19302:19309 to any set ( queue em0_voice, prio 6 )
`), "\n")
	if diff := cmp.Diff(want, up); diff != "" {
		t.Error(diff)
	}
	read, err := Parse(rs.String())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(rs, read); diff != "" {
		t.Errorf("written and read again:\n%s", diff)
	}
	var shown strings.Builder
	for _, q := range rs.Queues {
		shown.WriteString(shownQueue(q) + "\n")
	}
	loaded, err := ParseShown(shown.String())
	if err != nil || !slices.Equal(loaded, rs.Queues) {
		t.Errorf("shown and read: %v, %v", loaded, err)
	}
}

// shownQueue writes a queue as `pfctl -vsq` does (print_queuespec of OpenBSD's
// pfctl_parser.c): other order, commas, and a blank where a rate has no unit.
func shownQueue(q Queue) string {
	s := "queue " + q.Name
	switch {
	case q.Parent != "":
		s += " parent " + q.Parent
	case q.Device != "":
		s += " on " + q.Device
	}
	if q.Flows != 0 {
		s += fmt.Sprintf(" flows %d", q.Flows)
		if q.Quantum != 0 {
			s += fmt.Sprintf(" quantum %d", q.Quantum)
		}
	}
	rate := func(before, text string) string {
		if !strings.ContainsAny(text, "KMG") {
			text += " "
		}
		return before + text
	}
	if q.Bandwidth != 0 {
		s += rate(" bandwidth ", Rate(q.Bandwidth))
		if q.Min != 0 {
			s += rate(", min ", Rate(q.Min))
		}
		if q.Max != 0 {
			s += rate(", max ", Rate(q.Max))
		}
	}
	if q.Default {
		s += " default"
	}
	if q.Qlimit != 0 {
		s += fmt.Sprintf(" qlimit %d", q.Qlimit)
	}
	return s
}

// TestEnds: a rule for a home port also matches connections from outside. Rules
// that no packet can match are left out: pfctl would reject the whole file.
func TestEnds(t *testing.T) {
	rules := func(r plan.Rule) (out []string) {
		r.Class = plan.Voice
		_, all := withClasses(t, plan.ClassPreferences{Rules: []plan.Rule{r}})
		_, none := withClasses(t, plan.ClassPreferences{Use: plan.ClassesOn})
		usual := map[string]bool{}
		for _, l := range none.Rules {
			usual[l.Text] = true
		}
		for _, l := range all.Rules {
			if text, _, _ := strings.Cut(l.Text, " set "); !usual[l.Text] {
				out = append(out, strings.TrimPrefix(text, "match "))
			}
		}
		return out
	}
	ssh := []plan.PortRange{{From: 22, To: 22}}
	for _, c := range []struct {
		r    plan.Rule
		want []string
	}{
		{plan.Rule{Protocol: "tcp", HomePort: ssh, Direction: plan.DirectionUp},
			[]string{"out on em0 proto tcp from any port 22 to any", "in on em0 proto tcp from any to any port 22"}},
		{plan.Rule{Protocol: "tcp", HomePort: ssh, Home: []string{"192.168.1.7"}, Direction: plan.DirectionUp},
			[]string{"out on em0 proto tcp from 192.168.1.7 port 22 to any"}},
		{plan.Rule{Home: []string{"192.168.1.7", "2001:db8::7"}, Direction: plan.DirectionUp},
			[]string{"out on em0 from { 192.168.1.7 2001:db8::7 } to any", "in on em0 from any to 2001:db8::7"}},
		{plan.Rule{Protocol: "icmp", Home: []string{"2001:db8::7"}, Direction: plan.DirectionDown},
			[]string{"in on em1 inet6 proto icmp6 from 2001:db8::7 to any", "out on em1 inet6 proto icmp6 from any to 2001:db8::7"}},
		{plan.Rule{Home: []string{"192.168.1.7", "2001:db8::7"}, Far: []string{"203.0.113.9"}, Direction: plan.DirectionUp},
			[]string{"out on em0 from { 192.168.1.7 2001:db8::7 } to 203.0.113.9"}},
		{plan.Rule{Home: []string{"192.168.1.7"}, Far: []string{"2001:db8::/32"}}, nil},
	} {
		if got := rules(c.r); !slices.Equal(got, c.want) {
			t.Errorf("%s:\n%s", c.r, strings.Join(got, "\n"))
		}
	}
}

// TestClassesSayWhatIsLost: what pf cannot match is left out and reported;
// nothing replaces it.
func TestClassesSayWhatIsLost(t *testing.T) {
	p, rs := withClasses(t, plan.ClassPreferences{
		Rules: []plan.Rule{
			{Class: plan.Voice, Domain: []string{"zoom.us"}},
			{Class: plan.Voice, Home: []string{"02:00:00:00:00:07"}},
			{Class: plan.Interactive, Protocol: "tcp", FarPort: []plan.PortRange{{From: 80, To: 80}}, Below: 1e6},
		},
		DSCP: plan.DSCPPreference{TrustHome: true},
	})
	said := p.Explain()
	for _, want := range []string{"zoom.us", "names", "02:00:00:00:00:07", "MAC", "counts no bytes", "neither trusted nor washed", "how a flow behaves"} {
		if !strings.Contains(said, want) {
			t.Errorf("%q is not said in\n%s", want, said)
		}
	}
	if len(p.Classes.Rules) != 0 || strings.Contains(rs.String(), "port 80") {
		t.Errorf("half of a rule is left:\n%s", rs)
	}
}

// TestNoClassesUnasked: a plan without rules is the article's one line per
// direction.
func TestNoClassesUnasked(t *testing.T) {
	if p, rs := withClasses(t, plan.ClassPreferences{}); p.Classes != nil || len(rs.Queues) != 2 || rs.Rules != nil {
		t.Errorf("%s", rs)
	}
}

// TestParseCounts reads how many packets each queue passed, dropped and holds.
func TestParseCounts(t *testing.T) {
	got := ParseCounts(`queue em0_out on em0 bandwidth 11M, max 11M
  [ pkts:          0  bytes:          0  dropped pkts:      0 bytes:      0 ]
  [ qlength:   0/ 50 ]
queue em0_normal parent em0_out flows 1024 bandwidth 2750K, max 11M default qlimit 1024
  [ pkts:     131602  bytes:  197344212  dropped pkts:    235 bytes: 352500 ]
  [ qlength:  29/1024 ]
`)
	want := map[string]Count{"em0_out": {}, "em0_normal": {Packets: 131602, Bytes: 197344212, Drops: 235, Waiting: 29}}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}
