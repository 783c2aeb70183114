package dummynet_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	. "unbloat/internal/cure/lang/dummynet"
	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform/all"
	"unbloat/internal/cure/platform/freebsd"
	"unbloat/internal/cure/platform/pfsense"
	"unbloat/unit"
)

// seed000 is the article's plan: fq_codel at 97 % of 30/5 Mbit/s.
func seed000(t *testing.T, platform, wan string) plan.Plan {
	t.Helper()
	p, err := plan.Make(plan.Line{Down: 30 * unit.MbitPerSecond, Up: 5 * unit.MbitPerSecond},
		plan.Capabilities{Language: all.Must(platform), WAN: wan}, plan.Preferences{Style: plan.StyleArticle})
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

// TestClasses: each class of each direction has a queue with a weight and
// CoDel, and rules for connections from either end, in an order where the first
// match wins. What the tools read and show is the same.
func TestClasses(t *testing.T) {
	p, err := plan.Make(plan.Line{}, plan.Capabilities{Language: freebsd.Language(), WAN: "igb0"}, plan.Preferences{
		Up: plan.RatePreference{Rate: 5 * unit.MbitPerSecond}, Down: plan.RatePreference{Rate: 30 * unit.MbitPerSecond},
		Classes: plan.ClassPreferences{
			Rules: []plan.Rule{
				{Class: plan.Voice, Protocol: "udp", FarPort: []plan.PortRange{{From: 19302, To: 19309}}},
				{Class: plan.Interactive, Direction: plan.DirectionUp, Port: []plan.PortRange{{From: 22, To: 22}}, Protocol: "tcp"},
				{Class: plan.Bulk, Direction: plan.DirectionDown, Far: []string{"198.51.100.0/24", "2001:db8::/32", "203.0.113.9"}, DSCP: []string{"ef", "8", "af11"}},
			},
			Shares: []plan.SharePreference{{Class: plan.Voice, Direction: plan.DirectionUp, Guarantee: plan.RatePreference{Fraction: 0.4}}},
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
dnctl pipe 3 config bw 4Gbit/s
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
ipfw add 59001 pipe 3 icmp from any to any via igb0
ipfw add 59002 pipe 3 ipv6-icmp from any to any via igb0
ipfw add 59003 pipe 3 udp from any to any dst-port 67-68 via igb0
ipfw add 59004 pipe 3 udp from any to any dst-port 546-547 via igb0
ipfw add 59005 queue 11 udp from any to any dst-port 19302-19309 out xmit igb0
ipfw add 59006 queue 12 tcp from any 22 to any out xmit igb0
ipfw add 59007 queue 12 tcp from any to any dst-port 22 out xmit igb0
ipfw add 59008 queue 11 udp from any to any dst-port 53 out xmit igb0
ipfw add 59009 queue 11 tcp from any to any dst-port 53 out xmit igb0
ipfw add 59010 queue 12 tcp from any to any tcpflags ack iplen 0-80 out xmit igb0
ipfw add 59011 queue 13 ip from any to any out xmit igb0
ipfw add 59012 queue 21 udp from any 19302-19309 to any in recv igb0
ipfw add 59013 queue 24 ip from 198.51.100.0/24,203.0.113.9 to any dscp cs1,af11,ef in recv igb0
ipfw add 59014 queue 24 ip from 2001:db8::/32 to any dscp cs1,af11,ef in recv igb0
ipfw add 59015 queue 21 udp from any 53 to any in recv igb0
ipfw add 59016 queue 21 tcp from any 53 to any in recv igb0
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
		queues.WriteString(ShownQueue(q) + "\n")
	}
	for _, r := range c.Rules {
		rules.WriteString(r.Shown() + "\n")
	}
	shown := c.ShownLines()
	if d := cmp.Diff(shown[3:], ParseShown("", "", queues.String(), rules.String(), "")); d != "" {
		t.Errorf("shown and read:\n%s", d)
	}
}

// TestTooManyRules: a plan that needs more rules than there are numbers is
// refused.
func TestTooManyRules(t *testing.T) {
	rules := slices.Repeat([]plan.Rule{{Class: plan.Voice, Port: []plan.PortRange{{From: 1, To: 1}}}}, 30)
	p, err := plan.Make(plan.Line{Up: 5 * unit.MbitPerSecond}, plan.Capabilities{Language: freebsd.Language(), WAN: "igb0"}, plan.Preferences{Classes: plan.ClassPreferences{Rules: rules}})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := Render(p); err == nil || !strings.Contains(err.Error(), "join or leave out") {
		t.Errorf("%v", err)
	}
}

func anyPlan(t *rapid.T, platform string) plan.Plan {
	f, err := all.Assume(platform, "", "")
	if err != nil {
		t.Fatal(err)
	}
	rate := func(label string) unit.Rate { return unit.Rate(rapid.Int64Range(64e3, 4.2e9).Draw(t, label)) }
	directions := []plan.Direction{"", plan.DirectionUp, plan.DirectionDown}
	if platform == "pfsense" { // can't shape the download alone
		directions = directions[:2]
	}
	p, err := plan.Make(plan.Line{Down: rate("down"), Up: rate("up")}, f, plan.Preferences{
		AQM:   rapid.SampledFrom([]plan.AQM{"", plan.FIFO}).Draw(t, "aqm"),
		Only:  rapid.SampledFrom(directions).Draw(t, "only"),
		Style: rapid.SampledFrom([]plan.Style{"", plan.StyleArticle}).Draw(t, "style"),
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestParseIsInverse: Parse reads back exactly what was rendered, without
// traps.
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

// TestLimiters: the limiters survive writing and reading config.xml, and
// rules.limiter holds the plan.
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
			if want := map[int]unit.Rate{1: p.UpBps, 2: p.DownBps, 3: 4 * unit.GbitPerSecond}[pipe.Number]; pipe.Bandwidth != want {
				t.Fatalf("pipe %d: %s, want %s", pipe.Number, pipe.Bandwidth, want)
			}
		}
	})
}

func TestRulesLimiter(t *testing.T) {
	p, err := plan.Make(plan.Line{}, plan.Capabilities{Language: pfsense.Language(), WAN: "igb0"},
		plan.Preferences{Style: plan.StyleArticle, Down: plan.RatePreference{Rate: 85 * unit.MbitPerSecond}, Up: plan.RatePreference{Rate: 9500 * unit.KbitPerSecond}})
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
