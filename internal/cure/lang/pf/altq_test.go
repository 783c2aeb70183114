package pf_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	. "unbloat/internal/cure/lang/pf"
	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform/openbsd"
	"unbloat/unit"
)

// TestArticle renders the article's lines from its own figures, with its macro
// expanded.
func TestALTQArticle(t *testing.T) {
	p, err := plan.Make(plan.Line{Down: 5 * unit.MbitPerSecond, Up: 1100 * unit.KbitPerSecond},
		plan.Capabilities{Language: openbsd.LanguageAltq(), WAN: "em0", LAN: "em1"},
		plan.Preferences{Style: plan.StyleArticle, Only: plan.DirectionUp})
	if err != nil {
		t.Fatal(err)
	}
	rs, notes, err := RenderALTQ(p)
	if err != nil {
		t.Fatal(err)
	}
	want := strings.ReplaceAll(`altq on $ext_if bandwidth 1Mb hfsc queue { bb }
queue bb bandwidth 100% qlimit 9 hfsc ( default )
pass out on $ext_if keep state queue( bb )
`, "$ext_if", "em0")
	if d := cmp.Diff(want, rs.String()); d != "" || len(notes) != 0 {
		t.Errorf("-seed +rendered:\n%s\nnotes %q", d, notes)
	}
}

// TestNoPassRule: only the article's style passes all egress traffic. Otherwise
// the user's block rules keep working: the queue is the default, so it needs no
// rule.
func TestNoPassRule(t *testing.T) {
	for _, style := range []plan.Style{plan.StyleDefault, plan.StyleArticle} {
		p, err := plan.Make(plan.Line{}, plan.Capabilities{Language: openbsd.LanguageAltq(), WAN: "em0", LAN: "em1"},
			plan.Preferences{Style: style, Up: plan.RatePreference{Rate: 1e6}, Down: plan.RatePreference{Rate: 5e6}})
		if err != nil {
			t.Fatal(err)
		}
		rs, _, err := RenderALTQ(p)
		if err != nil {
			t.Fatal(err)
		}
		if passes := len(rs.Rules) > 0; passes != (style == plan.StyleArticle) {
			t.Errorf("style %q: rules %q", style, rs.Rules)
		}
		for _, q := range rs.Queues {
			if !slices.Contains(q.Options, "default") {
				t.Errorf("style %q: %s takes only what rules assign", style, q.Name)
			}
		}
	}
}

func TestParseALTQ(t *testing.T) {
	rs, err := ParseALTQ(`ext_if="em0"
altq on $ext_if cbq bandwidth 10Mb queue { std, ssh }
queue std bandwidth 90% priority 1 cbq(default borrow)
queue ssh bandwidth 1Mb qlimit 20 priority 7 cbq(borrow)
pass out on $ext_if proto tcp to port 22 keep state queue (ssh, std)
`)
	if err != nil {
		t.Fatal(err)
	}
	want := ALTQRuleset{
		Interfaces: []ALTQInterface{{Device: "em0", Scheduler: "cbq", Bandwidth: ALTQBandwidth{Rate: 10e6}, Queues: []string{"std", "ssh"}}},
		Queues: []ALTQQueue{
			{Name: "std", Bandwidth: ALTQBandwidth{Percent: 90}, Priority: 1, Scheduler: "cbq", Options: []string{"default", "borrow"}},
			{Name: "ssh", Bandwidth: ALTQBandwidth{Rate: 1e6}, Priority: 7, Qlimit: 20, Scheduler: "cbq", Options: []string{"borrow"}},
		},
		Rules: []ALTQRule{{Text: "pass out on em0 proto tcp to port 22 keep state queue (ssh, std)", Queues: []string{"ssh", "std"}}},
	}
	if d := cmp.Diff(want, rs); d != "" {
		t.Error(d)
	}
}

func TestRefused(t *testing.T) {
	const iface = "altq on em0 bandwidth 1Mb hfsc queue { bb }\n"
	for text, want := range map[string]string{
		"queue outq on em0 flows 1024 bandwidth 11M max 11M default":                          "pf.conf:1: syntax error",
		"altq on em0 bandwidth 1M hfsc queue { bb }":                                          "unknown unit",
		"altq on em0 bandwidth 1MB hfsc queue { bb }":                                         "unknown unit",
		"altq on em0 bandwidth 5Gb hfsc queue { bb }\nqueue bb bandwidth 100% hfsc (default)": "32 bits",
		iface + "queue bb bandwidth 100% qlimit 65536 hfsc ( default )":                       "qlimit out of range",
		iface + "queue bb bandwidth 101% hfsc ( default )":                                    "out of range",
		iface + "queue bb bandwidth 100% hfsc":                                                "one default queue, not 0",
		iface:                                                                                 "queue bb has no definition",
		"altq on em0 bandwidth 1Mb hfsc queue { a, b }\nqueue a bandwidth 60% hfsc(default)\nqueue b bandwidth 60% hfsc":                          "higher than parent",
		iface + "queue bb bandwidth 100% hfsc ( default )\naltq on em1 bandwidth 1Mb hfsc queue { bb }\nqueue bb bandwidth 100% hfsc ( default )": "queue bb already exists on interface em0",
		"pass out on em0 queue( bb )":                "queue bb is not defined",
		"pass out on em0\n" + iface:                  "must be in order",
		"altq on $x bandwidth 1Mb hfsc queue { bb }": "not defined",
	} {
		if _, err := ParseALTQ(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// TestParseIsInverse: Parse reads back exactly what was rendered, and the queue
// is as short as wanted.
func TestALTQParseIsInverse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rate := func(label string) unit.Rate { return unit.Rate(rapid.Int64Range(64e3, 4e9).Draw(t, label)) }
		l := plan.Line{Down: rate("down"), Up: rate("up")}
		p, err := plan.Make(l, plan.Capabilities{Language: openbsd.LanguageAltq(), WAN: "em0", LAN: "vlan10"},
			plan.Preferences{Only: rapid.SampledFrom([]plan.Direction{"", plan.DirectionUp, plan.DirectionDown}).Draw(t, "only")})
		if err != nil {
			t.Fatal(err)
		}
		rs, _, err := RenderALTQ(p)
		if err != nil {
			t.Fatal(err)
		}
		back, err := ParseALTQ(rs.String())
		if err != nil {
			t.Fatalf("%s%v", rs, err)
		}
		if d := cmp.Diff(rs, back); d != "" {
			t.Fatalf("%s%s", rs, d)
		}
	})
}

func FuzzParseALTQ(f *testing.F) {
	f.Add("altq on em0 bandwidth 1Mb hfsc queue { bb }\nqueue bb bandwidth 100% qlimit 9 hfsc ( default )\npass out on em0 keep state queue( bb )")
	f.Add("a=b\nqueue $a bandwidth 1.5Kb priority 3 cbq(default) { a, b }")
	f.Fuzz(func(t *testing.T, text string) {
		rs, err := ParseALTQ(text)
		if err != nil {
			return
		}
		back, err := ParseALTQ(rs.String())
		if err != nil {
			t.Fatalf("%q → %q: %v", text, rs.String(), err)
		}
		if d := cmp.Diff(rs, back); d != "" {
			t.Fatalf("%q: %s", text, d)
		}
	})
}
