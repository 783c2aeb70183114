package pfsense_test

import (
	"regexp"
	"strings"
	"testing"

	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform"
	"unbloat/internal/cure/platform/pfsense"
	"unbloat/testkit/pfsensefake"
)

// lastMatch returns the queues of the last of pf's rules that takes a packet which opens
// a state on igb0: for its direction, and for what comes back.
func lastMatch(rules, direction, family, proto, toPort string) (queues string) {
	rule := regexp.MustCompile(`^match\s+(\S+)\s+on \{\s+igb0\s+\} (\S+)\s+(?:proto (\S+)\s+)?from any to any(?: port (\d+ >< \d+|\S+))?\s.*dnqueue\( ([0-9,]+)\)`)
	for line := range strings.Lines(rules) {
		m := rule.FindStringSubmatch(line)
		if m != nil && m[1] == direction && m[2] == family && (m[3] == "" || m[3] == proto) && (m[4] == "ridentifier" || m[4] == "" || m[4] == toPort) {
			queues = m[5]
		}
	}
	return queues
}

// Neighbour discovery, router advertisements, DHCP, DHCPv6 and the pings of a gateway's
// monitor have the queues of a limiter that holds nothing back, by the last rule that
// takes them, in both directions; an older plan is as it was applied; both go without
// a trace.
func TestControlPasses(t *testing.T) {
	for name, w := range map[string]plan.Preferences{
		"no classes": {}, "a FIFO": {AQM: plan.FIFO}, "upload": {Only: plan.DirectionUp}, "classes": {Classes: classes("2001:db8::/32", 0.4)}, "older": {},
	} {
		f := pfsensefake.New()
		before := f.Text()
		b := &pfsense.Backend{Runner: f}
		p := make5(t, w)
		p.Control = p.Control && name != "older"
		observe := func() platform.State {
			t.Helper()
			s, err := b.Observe(t.Context(), p, nil)
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		start := observe()
		want, err := b.Desire(t.Context(), p, start, nil)
		if err != nil {
			t.Fatal(err)
		}
		reach := func(want platform.State) {
			t.Helper()
			steps, _, err := b.Compare(observe(), want)
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range steps {
				if _, errOut, err := f.Run(t.Context(), s.Argv, []byte(s.Stdin)); err != nil {
					t.Fatalf("%s: %s", s, errOut)
				}
			}
			if _, diffs, err := b.Compare(observe(), want); err != nil || len(diffs) > 0 {
				t.Errorf("%s: %v, %q", name, err, diffs)
			}
		}
		reach(want)
		sched := map[string]string{} // by the queue's number
		for line := range strings.Lines(f.Dnctl.Run([]string{"dnctl", "queue", "show"}, nil).Stdout) {
			if m := regexp.MustCompile(`^q0*(\d+) .* sched (\d+) `).FindStringSubmatch(line); m != nil {
				sched[m[1]] = m[2]
			}
		}
		rules := f.Files[pfsense.RulesDebug]
		for _, x := range [][4]string{{"out", "inet6", "ipv6-icmp"}, {"in", "inet6", "ipv6-icmp"}, {"out", "inet", "icmp"}, {"in", "inet", "icmp"},
			{"out", "inet6", "udp", "545 >< 548"}, {"in", "inet6", "udp", "545 >< 548"}, {"out", "inet", "udp", "66 >< 69"}, {"in", "inet", "udp", "66 >< 69"}} {
			if x[0] == "in" && p.Down == nil {
				continue
			}
			queues := lastMatch(rules, x[0], x[1], x[2], x[3])
			if queues == "" {
				t.Errorf("%s: no rule takes %v", name, x)
			}
			for q := range strings.SplitSeq(queues, ",") {
				if (sched[q] == "7003") != p.Control {
					t.Errorf("%s: %v goes to queue %s of limiter %s", name, x, q, sched[q])
				}
			}
			if other := lastMatch(rules, x[0], x[1], "tcp", "443"); other == "" || other == queues && p.Control {
				t.Errorf("%s: everything else, %s: %q", name, x[0], other)
			}
		}
		if shown := f.Dnctl.Run([]string{"dnctl", "pipe", "show"}, nil).Stdout; strings.Contains(shown, "07003:   4.000 Gbit/s") != p.Control {
			t.Errorf("%s: %s", name, shown)
		}
		shapers, err := b.Shapers(t.Context(), "igb0")
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range shapers {
			if strings.HasSuffix(s.Device, "_control") && (s.Rate != 0 || !strings.HasSuffix(s.Says, "it runs")) {
				t.Errorf("%s: status takes it for a shaper: %+v", name, s)
			}
		}
		without, err := b.Baseline(t.Context(), observe(), start)
		if err != nil {
			t.Fatal(err)
		}
		if reach(without); f.Text() != before {
			t.Errorf("%s: without it, it is\n%s", name, f.Text())
		}
	}
}
