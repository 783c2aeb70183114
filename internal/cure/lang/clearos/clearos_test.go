package clearos_test

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	. "unbloat/internal/cure/lang/clearos"
	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform/clearos"
	"unbloat/unit"
)

// TestSeed001: the article's settings: the switch and the line's own speeds,
// 25/1 Mbit/s.
func TestSeed001(t *testing.T) {
	p, err := plan.Make(plan.Line{Down: 25 * unit.MbitPerSecond, Up: unit.MbitPerSecond},
		plan.Capabilities{Language: clearos.Language(), WAN: "ppp0", LAN: "eth1", IFB: true}, plan.Preferences{Style: plan.StyleArticle})
	if err != nil {
		t.Fatal(err)
	}
	s, _, err := Render(p)
	if err != nil {
		t.Fatal(err)
	}
	want := `QOS_ENABLE="on"
QOS_ENABLE_IFB="no"
QOS_UPSTREAM="ppp0:auto"
QOS_DOWNSTREAM="ppp0:auto"
QOS_UPSTREAM_BWRES="*:15:15:14:14:14:14:14"
QOS_DOWNSTREAM_BWRES="*:15:15:14:14:14:14:14"
QOS_UPSTREAM_BWLIMIT="*:100:100:100:100:100:100:100"
QOS_DOWNSTREAM_BWLIMIT="*:100:100:100:100:100:100:100"
`
	if d := cmp.Diff(want, Format(s.QoS, true)); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff("PPP0_MAX_UPSTREAM=1000\nPPP0_MAX_DOWNSTREAM=25000\n", Format(s.Network, false)); d != "" {
		t.Error(d)
	}
}

// TestClasses: classes have guarantee and limit in ClearOS's settings. Each
// class has one of the seven bands, the last matching rule wins, and the user's
// rules stay.
func TestClasses(t *testing.T) {
	text, err := os.ReadFile("../../../../docs/examples/services.toml")
	if err != nil {
		t.Fatal(err)
	}
	w, err := plan.ParseClasses("services.toml", text)
	if err != nil {
		t.Fatal(err)
	}
	w.Rules = append(w.Rules, plan.Rule{Class: plan.Bulk, Home: []string{"192.168.1.7"}, Far: []string{"203.0.113.0/24"}},
		plan.Rule{Class: plan.Voice, Far: []string{"2001:db8::1"}}, plan.Rule{Class: plan.Voice, DSCP: []string{"ef"}})
	p, err := plan.Make(plan.Line{Down: 25 * unit.MbitPerSecond, Up: unit.MbitPerSecond},
		plan.Capabilities{Language: clearos.Language(), WAN: "ppp0", IFB: true}, plan.Preferences{AQM: plan.SFQ, Classes: w})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"marks IPv4 alone", "no rules for marks", "for the upload alone", "does not see how flows behave",
		"IPv6 has none", "all IPv6 goes to the last of its bands, behind bulk, where it is guaranteed 1 % of the download and 1 % of the upload"} {
		if !strings.Contains(p.Explain(), want) {
			t.Errorf("%q is not said in\n%s", want, p.Explain())
		}
	}
	s, _, err := Render(p)
	if err != nil {
		t.Fatal(err)
	}
	if got := Get(s.QoS, "QOS_UPSTREAM_BWRES") + " " + Get(s.QoS, "QOS_UPSTREAM_BWLIMIT"); got != "*:30:20:1:37:1:10:1 *:40:52:100:100:100:80:100" {
		t.Error(got)
	}
	var up, down []string
	for rule := range strings.FieldsSeq(Get(s.QoS, RulesKey)) {
		f := strings.Split(rule, "|")
		if len(f) != 10 || f[1] != "ppp0" || f[2] != "1" {
			t.Fatalf("%q", rule)
		}
		if line := strings.Join(f[4:], " "); f[3] == "0" {
			up = append(up, line)
		} else {
			down = append(down, line)
		}
	}
	want := []string{"3 - - - - -", "0 icmp - - - -", "0 tcp - - - 53", "0 udp - - - 53", "5 - 192.168.1.7 - 203.0.113.0/24 -",
		"5 tcp - - - 25", "5 tcp - - - 143", "5 tcp - - - 465", "5 tcp - - - 587", "5 tcp - - - 873", "5 tcp - - - 993",
		"1 tcp - - - 22", "1 tcp - - - 3389", "0 udp - - - 5060:5061", "0 udp - - - 10000:20000"}
	if d := cmp.Diff(want, up); d != "" {
		t.Error(d)
	}
	if len(down) != len(up)-1 || down[len(down)-1] != "0 udp - 10000:20000 - -" {
		t.Errorf("%q", down)
	}
	const old = " DNS|*|1|0|0|udp|-|-|-|53 unbloat-000|ppp0|1|0|3|-|-|-|-|-  "
	if got := Get(WithOthers(s.QoS, old), RulesKey); got != Get(s.QoS, RulesKey)+" DNS|*|1|0|0|udp|-|-|-|53" {
		t.Error(got)
	}
	w.Shares = []plan.SharePreference{{Class: plan.Normal, Guarantee: plan.RatePreference{Fraction: 0.6}}, {Class: plan.Voice, Guarantee: plan.RatePreference{Fraction: 0.38}}}
	if _, err = plan.Make(plan.Line{Down: 25 * unit.MbitPerSecond, Up: unit.MbitPerSecond}, plan.Capabilities{Language: clearos.Language(), WAN: "ppp0", IFB: true}, plan.Preferences{AQM: plan.SFQ, Classes: w}); err == nil || !strings.Contains(err.Error(), "ClearOS's own engine can guarantee 97 %") {
		t.Errorf("%v", err)
	}
	p.Classes.Up[0].Guarantee = p.Up.Rate // a plan edited by hand
	if _, _, err := Render(p); err == nil || !strings.Contains(err.Error(), "guarantee less") {
		t.Errorf("%v", err)
	}
}

// TestSlowClasses: below 100 kbit/s a band of 1 % would be a class of 0 kbit/s,
// which HTB does not take. Each band gets at least 1 kbit/s and the plan says
// so. If that leaves the classes too little, the error says how much there is.
func TestSlowClasses(t *testing.T) {
	made := 0
	for kbit := unit.Rate(8); kbit <= 130; kbit++ {
		line := plan.Line{Down: unit.MbitPerSecond, Up: unit.MbitPerSecond}
		p, err := plan.Make(line, plan.Capabilities{Language: clearos.Language(), WAN: "ppp0", IFB: true}, plan.Preferences{AQM: plan.SFQ, Up: plan.RatePreference{Rate: kbit * unit.KbitPerSecond},
			Classes: plan.ClassPreferences{Rules: []plan.Rule{{Class: plan.Bulk, Protocol: "tcp", FarPort: []plan.PortRange{{From: 873, To: 873}}}}}})
		if err != nil {
			if !strings.Contains(err.Error(), "own engine can guarantee") || kbit > 20 {
				t.Errorf("%d kbit/s: %v", kbit, err)
			}
			continue
		}
		made++
		s, _, err := Render(p)
		if err != nil {
			t.Fatalf("%d kbit/s: %v", kbit, err)
		}
		sum := unit.Rate(0)
		for n := range strings.SplitSeq(strings.TrimPrefix(Get(s.QoS, "QOS_UPSTREAM_BWRES"), "*:"), ":") {
			share, err := strconv.Atoi(n)
			if err != nil || unit.Rate(share)*kbit/100 < 1 {
				t.Errorf("%d kbit/s: a band has %s %% (%v)", kbit, n, err)
			}
			sum += unit.Rate(share)
		}
		said := strings.Contains(p.Explain(), "HTB takes no class of 0")
		if sum != 100 || said != (kbit < 100) {
			t.Errorf("%d kbit/s: %d %%, said: %v", kbit, sum, said)
		}
	}
	if made < 100 {
		t.Errorf("%d plans", made)
	}
}

func TestRefused(t *testing.T) {
	for name, p := range map[string]plan.Plan{
		"letters and digits": {WAN: "eth0.100", AQM: plan.SFQ, UpBps: 1e6, DownBps: 1e6},
		"one direction":      {WAN: "eth0", AQM: plan.SFQ, UpBps: 1e6},
		"whole number":       {WAN: "eth0", AQM: plan.SFQ, UpBps: 1e6 + 1, DownBps: 1e6},
		"no cake":            {WAN: "eth0", AQM: plan.CAKE, UpBps: 1e6},
	} {
		if _, _, err := Render(p); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Engine(nil, [][]string{{"tc", "qdisc", `add"; os.exit()`}}); err == nil {
		t.Error("a quote in a command")
	}
}

// TestNamesOfSpeeds: shells read network.conf too, so a key that is no shell
// name is not written.
func TestNamesOfSpeeds(t *testing.T) {
	for wan, want := range map[string]int{"ppp0": 2, "wan_2": 2, "eth0.100": 0, "br-lan": 0, "6in4": 0, "wan@x": 0} {
		p, err := plan.Make(plan.Line{Down: 25 * unit.MbitPerSecond, Up: unit.MbitPerSecond},
			plan.Capabilities{Language: clearos.Language(), WAN: wan, LAN: "eth1", IFB: true}, plan.Preferences{})
		if err != nil {
			t.Fatal(err)
		}
		s, notes, err := Render(p)
		if err != nil {
			t.Fatal(err)
		}
		if said := strings.Contains(strings.Join(notes, "; "), "the speeds are in unbloat's engine alone"); len(s.Network) != want || said != (want == 0) {
			t.Errorf("%s: %v, %q", wan, s.Network, notes)
		}
		const text = "EXTIF=\"x\" # no end"
		if got := Merge(text, s.Network, false); want == 0 && got != text {
			t.Errorf("%s: %q", wan, got)
		}
	}
}

const byHand = `# my settings
QOS_ENABLE="off"
QOS_PRIOMARK4="\
    DNS|*|1|0|0|udp|-|-|-|53 \
"
QOS_UPSTREAM="eth0:auto"
`

func TestParseAndMerge(t *testing.T) {
	got, err := Parse(byHand)
	want := []Setting{{"QOS_ENABLE", "off"}, {"QOS_PRIOMARK4", " DNS|*|1|0|0|udp|-|-|-|53  "}, {"QOS_UPSTREAM", "eth0:auto"}}
	got[1].Value = strings.Join(strings.Fields(got[1].Value), " ")
	want[1].Value = strings.TrimSpace(want[1].Value)
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Errorf("%v\n%s", err, d)
	}
	merged := Merge(byHand, []Setting{{"QOS_ENABLE", "on"}, {"QOS_ENGINE", "x"}}, true)
	wantText := strings.Replace(byHand, "off", "on", 1) + "QOS_ENGINE=\"x\"\n"
	if d := cmp.Diff(wantText, merged); d != "" {
		t.Error(d)
	}
	if again := Merge(merged, []Setting{{"QOS_ENABLE", "on"}, {"QOS_ENGINE", "x"}}, true); again != merged {
		t.Errorf("merging twice changes it:\n%s", again)
	}
	if d := cmp.Diff("A=1\n", Merge("", []Setting{{"A", "1"}}, false)); d != "" {
		t.Error(d)
	}
}

// TestParseIsInverse: Parse reads back exactly what was rendered, also after
// merging into a file.
func TestParseIsInverse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rate := func(label string) unit.Rate { return unit.Rate(rapid.Int64Range(64e3, 10e9).Draw(t, label)) }
		p, err := plan.Make(plan.Line{Down: rate("down"), Up: rate("up")},
			plan.Capabilities{Language: clearos.Language(), WAN: "ppp0", LAN: "eth1", IFB: true},
			plan.Preferences{AQM: rapid.SampledFrom([]plan.AQM{plan.SFQ, plan.FQCoDel}).Draw(t, "aqm")})
		if err != nil {
			t.Fatal(err)
		}
		s, _, err := Render(p)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range []struct {
			list   []Setting
			quoted bool
		}{{s.QoS, true}, {s.Network, false}} {
			back, err := Parse(Merge("# a comment\n", f.list, f.quoted))
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(f.list, back); d != "" {
				t.Fatal(d)
			}
		}
		if down, up, err := s.Speeds("ppp0"); err != nil || down != p.DownBps || up != p.UpBps {
			t.Fatalf("%s/%s: %v", down, up, err)
		}
	})
}

func FuzzParse(f *testing.F) {
	f.Add(byHand)
	f.Fuzz(func(t *testing.T, text string) {
		list, err := Parse(text)
		if err != nil {
			return
		}
		_, _, _ = Settings{Network: list}.Speeds("ppp0")
		Merge(text, []Setting{{"QOS_ENABLE", "on"}}, true)
	})
}
