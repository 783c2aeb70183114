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

func altqWithClasses(t rapid.TB, up, down unit.Rate, w plan.ClassPreferences) (plan.Plan, ALTQRuleset) {
	t.Helper()
	p, err := plan.Make(plan.Line{}, plan.Capabilities{Language: openbsd.LanguageAltq(), WAN: "em0", LAN: "em1"},
		plan.Preferences{Up: plan.RatePreference{Rate: up}, Down: plan.RatePreference{Rate: down}, Classes: w})
	if err != nil {
		t.Fatal(err)
	}
	rs, _, err := RenderALTQ(p)
	if err != nil {
		t.Fatal(err)
	}
	return p, rs
}

// TestClasses: each class has an HFSC queue below the interface's rate, and
// rules that match connections opened from either end, which neither pass nor
// block. What pfctl reads and shows is what was written.
func TestALTQClasses(t *testing.T) {
	_, rs := altqWithClasses(t, 11e6, 110e6, plan.ClassPreferences{
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
altq on em0 bandwidth 11Mb hfsc queue { em0_voice, em0_interactive, em0_normal, em0_bulk }
queue em0_voice bandwidth 3300Kb qlimit 38 hfsc ( realtime 3300Kb upperlimit 4319653b )
queue em0_interactive bandwidth 3300Kb qlimit 49 hfsc ( realtime 3300Kb upperlimit 5641997b )
queue em0_normal bandwidth 2750Kb qlimit 95 hfsc ( default upperlimit 11Mb )
queue em0_bulk bandwidth 1100Kb qlimit 76 hfsc ( upperlimit 8800Kb )
match out on em0 proto tcp queue ( em0_normal, em0_interactive )
match in on em0 proto tcp queue ( em0_normal, em0_interactive )
match out on em0 inet proto icmp queue em0_voice
match in on em0 inet proto icmp queue em0_voice
match out on em0 inet6 proto icmp6 queue em0_voice
match in on em0 inet6 proto icmp6 queue em0_voice
match out on em0 proto { tcp udp } from any to any port 53 queue em0_voice
match in on em0 proto { tcp udp } from any port 53 to any queue em0_voice
match out on em0 from { 192.168.1.7 2001:db8::/32 } to any tos 0x20 queue ( em0_bulk, em0_interactive )
match in on em0 from any to 2001:db8::/32 tos 0x20 queue ( em0_bulk, em0_interactive )
match out on em0 proto udp from any to any port 19302:19309 queue em0_voice
match in on em0 proto udp from any port 19302:19309 to any queue em0_voice
`), "\n")
	if d := cmp.Diff(want, up); d != "" {
		t.Error(d)
	}
	shown := slices.DeleteFunc(rs.Shown(), func(s string) bool { return !strings.Contains(s, " on em0 ") })
	if d := cmp.Diff([]string{
		"queue em0_voice on em0 bandwidth 3.30Mb qlimit 38 hfsc( realtime 3.30Mb upperlimit 4.32Mb )",
		"queue em0_interactive on em0 bandwidth 3.30Mb qlimit 49 hfsc( realtime 3.30Mb upperlimit 5.64Mb )",
		"queue em0_normal on em0 bandwidth 2.75Mb qlimit 95 hfsc( default upperlimit 11Mb )",
		"queue em0_bulk on em0 bandwidth 1.10Mb qlimit 76 hfsc( upperlimit 8.80Mb )",
	}, shown); d != "" {
		t.Error(d)
	}
}

// TestNoClassesUnasked: a plan without rules has one queue per direction and no
// rule.
func TestALTQNoClassesUnasked(t *testing.T) {
	if p, rs := altqWithClasses(t, 11e6, 110e6, plan.ClassPreferences{}); p.Classes != nil || len(rs.Queues) != 2 || len(rs.Rules) != 0 {
		t.Errorf("%s", rs)
	}
}

// TestAnyClasses: pfctl accepts any guarantees and limits: the sum is at most
// the rate, realtime at most 80 %, and every class has a share.
func TestAnyClasses(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rate := func(label string) unit.Rate { return unit.Rate(rapid.Int64Range(64e3, 4e9).Draw(t, label)) }
		w := plan.ClassPreferences{Use: plan.ClassesOn}
		for _, c := range plan.AllClasses() {
			of := []float64{0, 0.01, 0.3, 0.5, 0.9, 1}
			sure := rapid.SampledFrom(of).Draw(t, "guarantee "+string(c))
			most := rapid.SampledFrom(of).Draw(t, "limit "+string(c))
			if most > 0 {
				sure = min(sure, most)
			}
			if sure+most > 0 {
				w.Shares = append(w.Shares, plan.SharePreference{Class: c, Guarantee: plan.RatePreference{Fraction: sure}, Limit: plan.RatePreference{Fraction: most}})
			}
		}
		_, rs := altqWithClasses(t, rate("up"), rate("down"), w)
		back, err := ParseALTQ(rs.String())
		if err != nil {
			t.Fatalf("%s%v", rs, err)
		}
		if d := cmp.Diff(rs, back); d != "" {
			t.Fatalf("%s%s", rs, d)
		}
		for _, q := range rs.Queues {
			if q.Bandwidth.Rate <= 0 || q.Qlimit < 2 {
				t.Fatalf("a class has nothing:\n%s", rs)
			}
		}
	})
}

// TestCurves: curves that HFSC rejects and lines out of order are refused with
// pfctl's errors. Both notations of a curve are read.
func TestCurves(t *testing.T) {
	const iface = "altq on em0 bandwidth 10Mb hfsc queue { a, b }\nqueue b bandwidth 1Mb hfsc(default)\n"
	for text, want := range map[string]string{
		iface + "queue a bandwidth 1Mb hfsc(realtime 8Mb upperlimit 9Mb)":                                     "",
		iface + "queue a bandwidth 1Mb hfsc(realtime (8Mb, 10, 500Kb) linkshare 20%)":                         "",
		iface + "queue a bandwidth 1Mb hfsc(realtime 8001Kb)":                                                 "real-time sc exceeds 80% of the interface bandwidth (8Mb)",
		iface + "queue a bandwidth 1Mb hfsc(realtime (8001Kb 10 1Mb))":                                        "real-time sc exceeds 80%",
		iface + "queue a bandwidth 1Mb hfsc(linkshare 95%)":                                                   "linkshare sc exceeds parent's sc",
		iface + "queue a bandwidth 1Mb hfsc(upperlimit 11Mb)":                                                 "upper-limit larger than interface bandwidth",
		iface + "queue a bandwidth 1Mb hfsc(realtime 2Mb upperlimit 1Mb)":                                     "upper-limit sc smaller than real-time sc",
		iface + "queue a bandwidth 1Mb hfsc(realtime 1Mb realtime 2Mb)":                                       "realtime already specified",
		iface + "queue a bandwidth 1Mb hfsc(borrow)":                                                          `unknown hfsc flag "borrow"`,
		iface + "queue a bandwidth 1Mb hfsc()":                                                                "syntax error",
		iface + "queue a bandwidth 1Mb hfsc(realtime 1M)":                                                     "unknown unit",
		iface + "queue a bandwidth 11Mb":                                                                      "higher than parent",
		iface + "queue a bandwidth 1Mb\nmatch out on em0 queue (a, c)":                                        "queue c is not defined",
		"nat on em0 from any to any -> 1.2.3.4\n" + iface + "queue a bandwidth 1Mb":                           "must be in order",
		iface + "queue a bandwidth 1Mb\nmatch out on em0 queue a\nrdr on em0 from any to any -> 10.0.0.1":     "must be in order",
		"set require-order no\nnat on em0 from any to any -> 1.2.3.4\n" + iface + "queue a bandwidth 1Mb\n":   "",
		iface + "queue a bandwidth 1Mb\nno rdr on em0 from any to any\nmatch out on em0 proto tcp queue(a,b)": "",
	} {
		rs, err := ParseALTQ(text)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
		if back, again := ParseALTQ(rs.String()); err == nil && (again != nil || !cmp.Equal(rs, back)) {
			t.Errorf("%s: written and read again: %v\n%s", text, again, cmp.Diff(rs, back))
		}
	}
}
