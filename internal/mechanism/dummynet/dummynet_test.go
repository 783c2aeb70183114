package dummynet_test

import (
	"bufio"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"unbloat/internal/host/freebsd"
	"unbloat/internal/host/opnsense"
	"unbloat/internal/host/pfsense"
	. "unbloat/internal/mechanism/dummynet"
	"unbloat/internal/plan"
	"unbloat/internal/platform/all"
	"unbloat/unit"
)

// seed000 is the article's plan: fq_codel at 97 % of 30/5 Mbit/s.
func seed000(t *testing.T, platform, wan string) plan.Plan {
	t.Helper()
	p, err := plan.Make(plan.Line{Down: 30 * unit.MbitPerSecond, Up: 5 * unit.MbitPerSecond},
		plan.Facts{Language: all.Must(platform), WAN: wan}, plan.Wishes{Style: plan.StyleSeed})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestSeed000Commands(t *testing.T) {
	c, _, err := Render(seed000(t, "freebsd", "igb0"))
	if err != nil {
		t.Fatal(err)
	}
	want := `dnctl pipe 1 config bw 4850Kbit/s
dnctl pipe 2 config bw 29100Kbit/s
dnctl sched 1 config pipe 1 type fq_codel target 5ms interval 100ms quantum 1514 limit 10240 flows 1024 ecn
dnctl sched 2 config pipe 2 type fq_codel target 5ms interval 100ms quantum 1514 limit 10240 flows 1024 ecn
dnctl queue 1 config sched 1 weight 1
dnctl queue 2 config sched 2 weight 1
dnctl queue 3 config sched 1 weight 10
ipfw add 59001 queue 3 udp from me to any dst-port 53 out xmit igb0
ipfw add 59002 queue 3 tcp from any to any tcpflags ack iplen 0-80 out xmit igb0
ipfw add 59003 queue 1 ip from any to any out xmit igb0
ipfw add 59004 queue 2 ip from any to any in recv igb0
`
	if d := cmp.Diff(want, c.String()); d != "" {
		t.Error(d)
	}
}

// TestClasses: a queue of its own weight, with its own CoDel, for each class of
// each direction, and rules that reach it from both ends, in the order in which
// the first that fits decides; what the tools read and show of it is the same.
func TestClasses(t *testing.T) {
	p, err := plan.Make(plan.Line{}, plan.Facts{Language: freebsd.Language(), WAN: "igb0"}, plan.Wishes{
		Up: plan.RateWish{Rate: 5 * unit.MbitPerSecond}, Down: plan.RateWish{Rate: 30 * unit.MbitPerSecond},
		Classes: plan.ClassWishes{
			Rules: []plan.Rule{
				{Class: plan.Voice, Protocol: "udp", FarPort: []plan.PortRange{{From: 19302, To: 19309}}},
				{Class: plan.Interactive, Direction: plan.DirectionUp, Port: []plan.PortRange{{From: 22, To: 22}}, Protocol: "tcp"},
				{Class: plan.Bulk, Direction: plan.DirectionDown, Far: []string{"198.51.100.0/24", "2001:db8::/32", "203.0.113.9"}, DSCP: []string{"ef", "8", "af11"}},
			},
			Shares: []plan.ShareWish{{Class: plan.Voice, Direction: plan.DirectionUp, Guarantee: plan.RateWish{Fraction: 0.4}}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	c, _, err := Render(p)
	if err != nil {
		t.Fatal(err)
	}
	want := `dnctl pipe 1 config bw 5Mbit/s
dnctl pipe 2 config bw 30Mbit/s
dnctl sched 1 config pipe 1 type wf2q+
dnctl sched 2 config pipe 2 type wf2q+
dnctl queue 11 config sched 1 weight 40 queue 100 codel target 5ms interval 100ms ecn
dnctl queue 12 config sched 1 weight 25 queue 100 codel target 5ms interval 100ms ecn
dnctl queue 13 config sched 1 weight 21 queue 100 codel target 5ms interval 100ms ecn
dnctl queue 14 config sched 1 weight 8 queue 100 codel target 5ms interval 100ms ecn
dnctl queue 21 config sched 2 weight 30 queue 100 codel target 5ms interval 100ms ecn
dnctl queue 22 config sched 2 weight 30 queue 100 codel target 5ms interval 100ms ecn
dnctl queue 23 config sched 2 weight 25 queue 100 codel target 5ms interval 100ms ecn
dnctl queue 24 config sched 2 weight 10 queue 100 codel target 5ms interval 100ms ecn
ipfw add 59001 queue 11 udp from any to any dst-port 19302-19309 out xmit igb0
ipfw add 59002 queue 12 tcp from any 22 to any out xmit igb0
ipfw add 59003 queue 12 tcp from any to any dst-port 22 out xmit igb0
ipfw add 59004 queue 11 udp from any to any dst-port 53 out xmit igb0
ipfw add 59005 queue 11 tcp from any to any dst-port 53 out xmit igb0
ipfw add 59006 queue 11 icmp from any to any out xmit igb0
ipfw add 59007 queue 11 ipv6-icmp from any to any out xmit igb0
ipfw add 59008 queue 12 tcp from any to any tcpflags ack iplen 0-80 out xmit igb0
ipfw add 59009 queue 13 ip from any to any out xmit igb0
ipfw add 59010 queue 21 udp from any 19302-19309 to any in recv igb0
ipfw add 59011 queue 24 ip from 198.51.100.0/24,203.0.113.9 to any dscp cs1,af11,ef in recv igb0
ipfw add 59012 queue 24 ip from 2001:db8::/32 to any dscp cs1,af11,ef in recv igb0
ipfw add 59013 queue 21 udp from any 53 to any in recv igb0
ipfw add 59014 queue 21 tcp from any 53 to any in recv igb0
ipfw add 59015 queue 21 icmp from any to any in recv igb0
ipfw add 59016 queue 21 ipv6-icmp from any to any in recv igb0
ipfw add 59017 queue 22 tcp from any to any tcpflags ack iplen 0-80 in recv igb0
ipfw add 59018 queue 23 ip from any to any in recv igb0
`
	if d := cmp.Diff(want, c.String()); d != "" {
		t.Error(d)
	}
	read, traps, err := Parse(c.String())
	if err != nil || len(traps) > 0 {
		t.Fatal(traps, err)
	}
	if d := cmp.Diff(c, read); d != "" {
		t.Errorf("written and read again:\n%s", d)
	}
	var queues, rules strings.Builder
	for _, q := range c.Queues {
		queues.WriteString(q.Shown() + "\n")
	}
	for _, r := range c.Rules {
		rules.WriteString(r.Shown() + "\n")
	}
	shown := c.ShownLines()
	if d := cmp.Diff(shown[2:], ParseShown("", "", queues.String(), rules.String())); d != "" {
		t.Errorf("shown and read:\n%s", d)
	}
}

// TestClassItems: the same of OPNsense's items: WF2Q+, a queue of its own weight
// with CoDel for each class, and a rule for each port or range, all of which its
// model saves.
func TestClassItems(t *testing.T) {
	p, err := plan.Make(plan.Line{Up: 5 * unit.MbitPerSecond, Down: 30 * unit.MbitPerSecond}, plan.Facts{Language: opnsense.Language(), WAN: "wan"}, plan.Wishes{
		Only: plan.DirectionUp,
		Classes: plan.ClassWishes{Rules: []plan.Rule{
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
	uuids, names := []string{}, map[string]string{}
	for _, x := range it.Pipes {
		if bad := x.Validate(); len(bad) > 0 || x.Scheduler != "" || x.Dnctl(20001) != "pipe 20001 config bw 4750Kbit/s" {
			t.Errorf("%v %s", bad, x.Dnctl(20001))
		}
		uuids = append(uuids, x.UUID)
	}
	var got []string
	for _, q := range it.Queues {
		if bad := q.Validate(uuids); len(bad) > 0 {
			t.Error(bad)
		}
		got = append(got, strings.TrimPrefix(q.Description, "unbloat class ")+" "+q.Weight+" codel "+q.CoDelEnable+" "+q.CoDelTarget+" "+q.CoDelInterval)
		names[q.UUID] = strings.TrimPrefix(q.Description, "unbloat class up ")
	}
	for q := range names {
		uuids = append(uuids, q)
	}
	for _, r := range it.Rules {
		if bad := r.Validate(uuids); len(bad) > 0 {
			t.Error(bad)
		}
		got = append(got, strings.TrimSpace(strings.Join([]string{r.Sequence, r.Proto, r.Source, r.SourcePort, r.Destination, r.DestPort, r.Direction, names[r.Target], r.DSCP}, " ")))
	}
	want := []string{"up voice 30 codel 1 5 100", "up interactive 30 codel 1 5 100", "up normal 25 codel 1 5 100", "up bulk 10 codel 1 5 100",
		"10 udp any any any 5060-5061 out voice", "11 udp any any any 10000-20000 out voice",
		"12 ip any any 198.51.100.0/24,203.0.113.9 any out bulk cs1,ef", "13 ip any any 2001:db8::/32 any out bulk cs1,ef",
		"14 udp any any any 53 out voice", "15 tcp any any any 53 out voice", "16 icmp any any any any out voice", "17 ipv6-icmp any any any any out voice",
		"18 tcp_ack any any any any out interactive", "1000 ip any any any any out normal"}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	for _, bad := range []RuleItem{{DestPort: "22,3389"}, {DSCP: "va"}, {DSCP: "12"}, {Proto: "sctp"}} {
		r := it.Rules[0]
		r.DestPort, r.DSCP, r.Proto = cmpOr(bad.DestPort, r.DestPort), bad.DSCP, cmpOr(bad.Proto, r.Proto)
		if len(r.Validate(uuids)) == 0 {
			t.Errorf("%+v is saved", bad)
		}
	}
}

func cmpOr(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// TestTooManyRules: more lines than we have numbers for are refused.
func TestTooManyRules(t *testing.T) {
	rules := slices.Repeat([]plan.Rule{{Class: plan.Voice, Port: []plan.PortRange{{From: 1, To: 1}}}}, 30)
	p, err := plan.Make(plan.Line{Up: 5 * unit.MbitPerSecond}, plan.Facts{Language: freebsd.Language(), WAN: "igb0"}, plan.Wishes{Classes: plan.ClassWishes{Rules: rules}})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := Render(p); err == nil || !strings.Contains(err.Error(), "join or leave out") {
		t.Errorf("%v", err)
	}
}

// Two fq_codel pipes at 97 %, three queues of weight 1, 10 and 1, four rules.
func TestSeed000Items(t *testing.T) {
	it, _, err := RenderItems(seed000(t, "opnsense", "wan"))
	if err != nil {
		t.Fatal(err)
	}
	var pipes, weights, rules []string
	for _, p := range it.Pipes {
		if bad := p.Validate(); len(bad) != 0 {
			t.Errorf("%s: %v", p.Description, bad)
		}
		pipes = append(pipes, p.Bandwidth+p.BandwidthMetric+" "+p.Scheduler+" ecn "+p.CoDelECN)
	}
	uuids := []string{UUID("pipe up"), UUID("pipe down")}
	for _, q := range it.Queues {
		if bad := q.Validate(uuids); len(bad) != 0 {
			t.Errorf("%s: %v", q.Description, bad)
		}
		weights = append(weights, q.Weight)
	}
	slices.Sort(weights)
	for _, q := range it.Queues {
		uuids = append(uuids, q.UUID)
	}
	for _, r := range it.Rules {
		if bad := r.Validate(uuids); len(bad) != 0 {
			t.Errorf("%s: %v", r.Description, bad)
		}
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
}

// TestOPNsenseVerdicts gives Validate what the real controller was given.
func TestOPNsenseVerdicts(t *testing.T) {
	f, err := os.Open("testdata/opnsense-api.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	n := 0
	s := bufio.NewScanner(f)
	for s.Buffer(nil, 1<<20); s.Scan(); n++ {
		var v struct {
			Case  string
			Calls []struct {
				Path string
				Body struct {
					Pipe  PipeItem
					Queue QueueItem
					Rule  RuleItem
				}
			}
			Exit   int
			Output []string
		}
		if err := json.Unmarshal(s.Bytes(), &v); err != nil {
			t.Fatal(err)
		}
		for i, call := range v.Calls {
			var bad map[string]string
			switch b := call.Body; {
			case strings.HasSuffix(call.Path, "Pipe"):
				bad = b.Pipe.Validate()
			case strings.HasSuffix(call.Path, "Queue"):
				bad = b.Queue.Validate([]string{"$0.uuid"})
			case strings.HasSuffix(call.Path, "Rule"):
				bad = b.Rule.Validate([]string{"$1.uuid"})
			}
			want := validations(t, v.Output[1+i])
			if d := cmp.Diff(want, bad); d != "" && (len(want) > 0 || len(bad) > 0) {
				t.Errorf("%s: -real +ours\n%s", v.Case, d)
			}
		}
		for _, line := range v.Output {
			if strings.HasPrefix(line, "pipe 10000 config") {
				got := v.Calls[0].Body.Pipe.Dnctl(10000)
				if strings.Join(strings.Fields(line), " ") != got {
					t.Errorf("%s: dnctl.conf\nreal: %s\nours: %s", v.Case, line, got)
				}
			}
		}
	}
	if n != 30 {
		t.Errorf("%d vectors, want 30", n)
	}
}

// validations reads the controller's answer of one call.
func validations(t *testing.T, line string) map[string]string {
	_, answer, ok := strings.Cut(line, " ")
	var a struct{ Validations map[string]string }
	if !ok || json.Unmarshal([]byte(answer), &a) != nil {
		t.Fatalf("not an answer: %s", line)
	}
	return a.Validations
}

func anyPlan(t *rapid.T, platform string) plan.Plan {
	f, err := all.Assume(platform, "", "")
	if err != nil {
		t.Fatal(err)
	}
	rate := func(label string) unit.Rate { return unit.Rate(rapid.Int64Range(64e3, 4.2e9).Draw(t, label)) }
	directions := []plan.Direction{"", plan.DirectionUp, plan.DirectionDown}
	if platform == "pfsense" { // has no download alone
		directions = directions[:2]
	}
	p, err := plan.Make(plan.Line{Down: rate("down"), Up: rate("up")}, f, plan.Wishes{
		AQM:   rapid.SampledFrom([]plan.AQM{"", plan.FIFO}).Draw(t, "aqm"),
		Only:  rapid.SampledFrom(directions).Draw(t, "only"),
		Style: rapid.SampledFrom([]plan.Style{"", plan.StyleSeed}).Draw(t, "style"),
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Parse reads back exactly what was rendered, and no trap is set off.
func TestParseIsInverse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c, _, err := Render(anyPlan(t, "freebsd"))
		if err != nil {
			t.Fatal(err)
		}
		back, traps, err := Parse(c.String())
		if err != nil || len(traps) > 0 {
			t.Fatalf("%s%v %v", c, err, traps)
		}
		if d := cmp.Diff(c, back); d != "" {
			t.Fatalf("%s%s", c, d)
		}
	})
}

// OPNsense's pipes hold the plan's shapers, and its template's line says the same.
func TestItemsHoldThePlan(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := anyPlan(t, "opnsense")
		it, _, err := RenderItems(p)
		if err != nil {
			t.Fatal(err)
		}
		var want []plan.Shaper
		for _, s := range []*plan.Shaper{p.Up, p.Down} {
			if s != nil {
				c := *s
				c.IngressOf, c.LinkLayer = "", plan.Ethernet
				want = append(want, c)
			}
		}
		for i, pipe := range it.Pipes {
			got, err := pipe.Shaper("wan")
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(want[i], got); d != "" {
				t.Fatal(d)
			}
			c, traps, err := Parse(pipe.Dnctl(10000))
			if err != nil || len(traps) > 0 || c.Pipes[0].Bandwidth != want[i].Rate {
				t.Fatalf("%s: %v %v", pipe.Dnctl(10000), err, traps)
			}
		}
	})
}

// pfSense's config.xml survives its own reading, and rules.limiter holds the plan.
func TestLimiters(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := anyPlan(t, "pfsense")
		ls, _, err := RenderLimiters(p, 1)
		if err != nil {
			t.Fatal(err)
		}
		back, err := ParseLimiters(ls.String())
		if err != nil {
			t.Fatal(err)
		}
		back.XMLName = ls.XMLName
		if d := cmp.Diff(ls, back); d != "" {
			t.Fatal(d)
		}
		c, traps, err := Parse(ls.RulesLimiter(1))
		if err != nil || len(traps) > 0 {
			t.Fatalf("%s%v %v", ls.RulesLimiter(1), err, traps)
		}
		for _, pipe := range c.Pipes {
			if want := map[int]unit.Rate{1: p.UpBps, 2: p.DownBps}[pipe.Number]; pipe.Bandwidth != want {
				t.Fatalf("pipe %d: %s, want %s", pipe.Number, pipe.Bandwidth, want)
			}
		}
	})
}

func TestRulesLimiter(t *testing.T) {
	p, err := plan.Make(plan.Line{}, plan.Facts{Language: pfsense.Language(), WAN: "igb0"},
		plan.Wishes{Style: plan.StyleSeed, Down: plan.RateWish{Rate: 85 * unit.MbitPerSecond}, Up: plan.RateWish{Rate: 9500 * unit.KbitPerSecond}})
	if err != nil {
		t.Fatal(err)
	}
	ls, _, err := RenderLimiters(p, 1)
	if err != nil {
		t.Fatal(err)
	}
	want := `pipe 1 config  bw 9500Kb droptail
sched 1 config pipe 1 type fq_codel target 5ms interval 100ms quantum 1514 limit 10240 flows 1024 ecn
queue 1 config pipe 1 droptail

pipe 2 config  bw 85Mb droptail
sched 2 config pipe 2 type fq_codel target 5ms interval 100ms quantum 1514 limit 10240 flows 1024 ecn
queue 2 config pipe 2 droptail

`
	if d := cmp.Diff(want, ls.RulesLimiter(1)); d != "" {
		t.Error(d)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("dnctl pipe 1 config bw 29100Kbit/s\nsched 1 config pipe 1 type fq_codel target 5ms noecn\nqueue 1 config sched 1 weight 10\nipfw add 100 queue 1 ip from any to any")
	f.Add("pipe 1 config bw 9.5Mbit/s queue 9 type fq_codel foo")
	f.Fuzz(func(t *testing.T, text string) {
		c, _, err := Parse(text)
		if err != nil {
			return
		}
		for _, p := range c.Pipes {
			if p.Bandwidth < 0 || p.Bandwidth > MaxRate {
				t.Errorf("%q: %d bit/s", text, p.Bandwidth)
			}
		}
	})
}
