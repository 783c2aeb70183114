package dummynet_test

import (
	"encoding/json"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	. "unbloat/internal/cure/lang/dummynet"
	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform/opnsense"
	"unbloat/testkit/opnsensefake"
	"unbloat/unit"
)

// save sends all items to the stand-in, which must save them unchanged.
func save(t interface {
	Helper()
	Fatalf(string, ...any)
}, it Items) *opnsensefake.Router {
	t.Helper()
	o := opnsensefake.New()
	send := func(kind, uuid string, item any) {
		b, err := json.Marshal(map[string]any{kind: item})
		if err != nil {
			t.Fatalf("%v", err)
		}
		if _, answer := o.Request(http.MethodPost, "/api/trafficshaper/settings/set"+kind+"/"+uuid, string(b)); answer != `{"result":"saved"}` {
			t.Fatalf("%s: %s", b, answer)
		}
		var sent map[string]map[string]string
		if err := json.Unmarshal(b, &sent); err != nil {
			t.Fatalf("%v", err)
		}
		i := slices.IndexFunc(o.Items(), func(x opnsensefake.Item) bool { return x.Kind == kind && x.UUID == uuid })
		for name, v := range sent[kind] {
			if is := o.Items()[i].Fields[name]; is != v {
				t.Fatalf("%s of %s is %q, and was sent as %q", name, b, is, v)
			}
		}
	}
	for _, x := range it.Pipes {
		send("pipe", x.UUID, x)
	}
	for _, x := range it.Queues {
		send("queue", x.UUID, x)
	}
	for _, x := range it.Rules {
		send("rule", x.UUID, x)
	}
	return o
}

// TestUUIDs: all our uuids have the form that OPNsense accepts and differ; so
// do the numbers of a kind.
func TestUUIDs(t *testing.T) {
	form := regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	seen := map[string]bool{}
	for _, kind := range []string{"pipe", "queue", "rule"} {
		numbers := map[int]bool{}
		for _, name := range ItemNames(kind) {
			uuid := UUID(kind + " " + name)
			if !form.MatchString(uuid) || seen[uuid] || uuid != UUID(kind+" "+name) {
				t.Errorf("%s %s: %s", kind, name, uuid)
			}
			seen[uuid] = true
			n := ItemNumber(kind, name, func(int) bool { return false })
			again := ItemNumber(kind, name, func(taken int) bool { return taken == n })
			if numbers[n] || numbers[again] || n < 1 || again > 65535 || again == n {
				t.Errorf("%s %s: %d, and %d where that is taken", kind, name, n, again)
			}
			numbers[n], numbers[again] = true, true
		}
	}
}

// TestClassItems: OPNsense's items of a plan with classes: WF2Q+, a queue with
// weight and CoDel per class, and a rule per port or range. The model saves
// them all.
func TestClassItems(t *testing.T) {
	p, err := plan.Make(plan.Line{Up: 5 * unit.MbitPerSecond, Down: 30 * unit.MbitPerSecond}, plan.Capabilities{Language: opnsense.Language(), WAN: "wan"}, plan.Preferences{
		Only: plan.DirectionUp,
		Classes: plan.ClassPreferences{Rules: []plan.Rule{
			{Class: plan.Voice, Protocol: "udp", FarPort: []plan.PortRange{{From: 5060, To: 5061}, {From: 10000, To: 20000}}},
			{Class: plan.Bulk, Far: []string{"203.0.113.9", "198.51.100.0/24", "2001:db8::/32"}, DSCP: []string{"ef", "cs1"}},
			{Class: plan.Voice, DSCP: []string{"le"}}, {Class: plan.Voice, Protocol: "sctp"},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if said := p.Explain(); !strings.Contains(said, "knows the marks") || !strings.Contains(said, "no rules for that protocol") || len(p.Classes.Rules) != 2 {
		t.Errorf("%s", said)
	}
	it, _, err := RenderItems(p)
	if err != nil {
		t.Fatal(err)
	}
	dnctl := save(t, it).Files()["/usr/local/etc/dnctl.conf"]
	if pipe := "pipe 20001 config bw 4750Kbit/s type  wf2q+ \n"; !strings.Contains(dnctl, pipe) {
		t.Errorf("there is no %q in\n%s", pipe, dnctl)
	}
	names := map[string]string{}
	var got []string
	for _, q := range it.Queues {
		got = append(got, strings.TrimPrefix(q.Description, "unbloat class ")+" "+q.Weight+" codel "+q.CoDelEnable+" "+q.CoDelTarget+" "+q.CoDelInterval)
		names[q.UUID] = strings.TrimPrefix(q.Description, "unbloat class up ")
	}
	for _, r := range it.Rules {
		got = append(got, strings.TrimSpace(strings.Join([]string{r.Sequence, r.Proto, r.Source, r.SourcePort, r.Destination, r.DestPort, r.Direction, names[r.Target], r.DSCP}, " ")))
	}
	want := []string{"up voice 30 codel 1 5 100", "up interactive 30 codel 1 5 100", "up normal 25 codel 1 5 100", "up bulk 10 codel 1 5 100",
		"10 udp any any any 5060-5061 out voice", "11 udp any any any 10000-20000 out voice",
		"12 ip any any 198.51.100.0/24,203.0.113.9 any out bulk cs1,ef", "13 ip any any 2001:db8::/32 any out bulk cs1,ef",
		"14 udp any any any 53 out voice", "15 tcp any any any 53 out voice",
		"16 tcp_ack any any any any out interactive", "1000 ip any any any any out normal",
		"1 icmp any any any any", "1 ipv6-icmp any any any any", "1 udp any any any 67-68", "1 udp any any any 546-547"}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// TestSeed000Items: two fq_codel pipes at 97 %, three queues of weight 1, 10
// and 1, four rules.
func TestSeed000Items(t *testing.T) {
	it, _, err := RenderItems(seed000(t, "opnsense", "wan"))
	if err != nil {
		t.Fatal(err)
	}
	var pipes, weights, rules []string
	for _, p := range it.Pipes {
		pipes = append(pipes, p.Bandwidth+p.BandwidthMetric+" "+p.Scheduler+" ecn "+p.CoDelECN)
	}
	for _, q := range it.Queues {
		weights = append(weights, q.Weight)
	}
	slices.Sort(weights)
	for _, r := range it.Rules {
		rules = append(rules, r.Proto+" "+r.Source+":"+r.DestPort+" "+r.Direction)
	}
	if d := cmp.Diff([]string{"4850Kbit fq_codel ecn 1", "29100Kbit fq_codel ecn 1"}, pipes); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]string{"1", "1", "10"}, weights); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]string{"udp ROUTER-ADDRESS:53 out", "ip any:any out", "tcp_ack any:any out", "ip any:any in"}, rules); d != "" {
		t.Error(d)
	}
	it.Rules[0].Source = "192.0.2.7" // as the note says
	save(t, it)
}

// TestItemsHoldThePlan: OPNsense's pipes hold the plan's shapers, and so do the
// lines of its template.
func TestItemsHoldThePlan(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := anyPlan(t, "opnsense")
		it, _, err := RenderItems(p)
		if err != nil {
			t.Fatal(err)
		}
		for i := range it.Rules {
			if it.Rules[i].Source == RouterAddress {
				it.Rules[i].Source = "192.0.2.7"
			}
		}
		var want []plan.Shaper
		for _, s := range []*plan.Shaper{p.Up, p.Down} {
			if s != nil {
				c := *s
				c.IngressOf, c.LinkLayer = "", plan.Ethernet
				want = append(want, c)
			}
		}
		dnctl := save(t, it).Files()["/usr/local/etc/dnctl.conf"]
		if p.Control {
			want = append(want, plan.Shaper{Device: "wan", Rate: 4 * unit.GbitPerSecond, AQM: plan.FIFO, LinkLayer: plan.Ethernet})
		}
		for i, pipe := range it.Pipes {
			if line := "pipe " + pipe.Number + " config bw " + pipe.Bandwidth + pipe.BandwidthMetric + "/s "; !strings.Contains(dnctl, line) {
				t.Fatalf("there is no %q in\n%s", line, dnctl)
			}
			got, err := pipe.Shaper("wan")
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(want[i], got); d != "" {
				t.Fatal(d)
			}
		}
	})
}
