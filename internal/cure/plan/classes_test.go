package plan_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform/linux"
	"unbloat/reason"
	"unbloat/unit"
)

const classFile = `
first_bytes = "64 kB"
[dscp]
trust_home = true
wash_down = true
[[rule]]
name = "Hangouts"
class = "voice"
protocol = "udp"
far_port = ["19302-19309"]
[[rule]]
class = "bulk"
direction = "up"
home = ["192.168.1.7", "02:00:00:00:00:07", "nas"]
from_bytes = "1 MB"
[[class]]
name = "bulk"
direction = "up"
limit = "80%"
`

// A class file is read, and survives JSON.
func TestParseClasses(t *testing.T) {
	w, err := plan.ParseClasses("home.toml", []byte(classFile))
	if err != nil {
		t.Fatal(err)
	}
	if len(w.Rules) != 2 || w.Rules[0].FarPort[0] != (plan.PortRange{From: 19302, To: 19309}) || !w.DSCP.TrustHome || w.FirstBytes != 64000 {
		t.Errorf("%+v", w)
	}
	b, err := json.Marshal(w)
	if err != nil {
		t.Fatal(err)
	}
	var again plan.ClassPreferences
	if err := json.Unmarshal(b, &again); err != nil || !reflect.DeepEqual(w, again) {
		t.Errorf("through JSON: %+v, %v", again, err)
	}
	one, err := plan.ParseRule("class=voice, protocol=udp, far_port=19302-19309|3478, name=Hangouts")
	if err != nil || len(one.FarPort) != 2 {
		t.Errorf("as a flag: %+v, %v", one, err)
	}
}

// Invalid files are refused, and the error names the place.
func TestParseClassesRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"[[rule]]\nclas = \"voice\"":                                                               "f:2: rule.clas",
		"[[rule]]\nclass = \"express\"":                                                            "rule[0].class",
		"[[rule]]\nclass = \"bulk\"\nport = [\"0\"]":                                               "f:3",
		"[[rule]]\nclass = \"bulk\"\nprotocol = \"icmp\"\nport = [\"7\"]":                          "no ports",
		"[[rule]]\nclass = \"bulk\"\nhome = [\"a b\"]":                                             "rule[0].home",
		"[[rule]]\nclass = \"bulk\"\nfar = [\"nas\"]":                                              "rule[0].far",
		"[[rule]]\nclass = \"bulk\"\ndomain = [\"x\\\"; drop\"]":                                   "rule[0].domain",
		"[[rule]]\nclass = \"bulk\"\nfrom_bytes = \"2 MB\"\nbelow_bytes = \"1 MB\"":                "from_bytes",
		"[[class]]\nname = \"bulk\"":                                                               "neither limit nor guarantee",
		"[[rule]]\nclass = \"voice\"\n\n [[rule]]\nclass = \"vioce\"":                              "f:4: rule[1].class",
		"[[rule]]\nclass = \"voice\"\nfar_port = \"80\"":                                           "f:3: far_port takes a list",
		"[[rule]]\nclass = [\"voice\"]":                                                            "f:2: class takes a text",
		"[dscp]\ntrust_home = \"yes\"":                                                             "f:2: trust_home is true or false",
		"[[rule]]\nclass = \"bulk\"\nbelow_bytes = \"1 B\"":                                        "less than any connection",
		"[[class]]\nname = \"bulk\"\nlimit = \"20%\"\nguarantee = \"30%\"":                         "f:1: class[0].guarantee: 0.3 is more than the limit",
		"[[class]]\nname = \"bulk\"\nlimit = \"20%\"\n[[class]]\nname = \"bulk\"\nlimit = \"30%\"": "f:4: class[1].name: bulk was bounded",
	} {
		if _, err := plan.ParseClasses("f", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	if _, err := plan.ParseRule(`class=voice,name=a"b`); err == nil {
		t.Error("a quote was taken")
	}
	var field *plan.FieldError
	if _, err := plan.ParseRule("class=voice,dscp=ef9"); !errors.As(err, &field) {
		t.Errorf("%v", err)
	}
}

// ACKs are limited if one for every packet of the download would take more than a
// ninth of the upload, and never to less than one for every four packets.
func TestAcknowledgements(t *testing.T) {
	for _, x := range []struct {
		down, up unit.Rate
		want     int
	}{
		{30 * unit.MbitPerSecond, 5 * unit.MbitPerSecond, 1052},
		{25 * unit.MbitPerSecond, unit.MbitPerSecond, 516}, // a ninth would be 210
		{100 * unit.MbitPerSecond, 100 * unit.MbitPerSecond, 0},
		{10 * unit.MbitPerSecond, 5 * unit.MbitPerSecond, 0},
	} {
		p, err := plan.Make(plan.Line{Down: x.down, Up: x.up}, plan.Capabilities{Language: linux.Language(), WAN: "wan", LAN: "lan", IFB: true}, plan.Preferences{})
		if err != nil {
			t.Fatal(err)
		}
		if got := p.Classes.Behaviour.Acks; got != x.want {
			t.Errorf("%s down, %s up: %d a second, want %d", x.down, x.up, got, x.want)
		}
		said := false
		for _, r := range p.Reasons {
			said = said || r.Why.Code == reason.InteractiveThinned
		}
		if said != (x.want > 0) {
			t.Errorf("%s down, %s up: %d a second, and the plan says so: %v", x.down, x.up, x.want, said)
		}
	}
}

// A limit is refused with CAKE, which has none, and the error names fq_codel. A
// limit without classes gives a warning.
func TestLimitsThatCannotBe(t *testing.T) {
	line := plan.Line{Down: 30 * unit.MbitPerSecond, Up: 5 * unit.MbitPerSecond}
	capabilities := plan.Capabilities{Language: linux.Language(), WAN: "wan", LAN: "lan", IFB: true}
	limit := plan.ClassPreferences{Shares: []plan.SharePreference{{Class: plan.Bulk, Limit: plan.RatePreference{Fraction: 0.5}}}}
	only := capabilities
	only.AQMs = []plan.AQM{plan.CAKE}
	for _, w := range []struct {
		f plan.Capabilities
		w plan.Preferences
	}{{capabilities, plan.Preferences{AQM: plan.CAKE, Classes: limit}}, {only, plan.Preferences{Classes: limit}}} {
		if p, err := plan.Make(line, w.f, w.w); err == nil || !strings.Contains(err.Error(), "--aqm fq_codel") {
			t.Errorf("CAKE with a limit: %v, %v", p.Classes, err)
		}
	}
	without := capabilities
	without.NoClasses, without.NoBPF = "no meters", "no cls_bpf"
	if p, err := plan.Make(line, without, plan.Preferences{Classes: limit}); err != nil || len(p.Warnings) == 0 {
		t.Errorf("a limit without classes: %q, %v", p.Warnings, err)
	}
}

// A plan warns of a rule that can never match, and notes one that matches
// everything; rules that only overlap are fine.
func TestRulesThatNeverDecide(t *testing.T) {
	for _, x := range []struct {
		rules []string
		never bool
	}{
		{[]string{"class=normal", "class=voice,protocol=udp,far_port=5060"}, true},
		{[]string{"class=voice,protocol=udp,far_port=5060", "class=normal"}, false},
		{[]string{"class=bulk,protocol=tcp,far_port=1-1024", "class=voice,protocol=tcp,far_port=80|443"}, true},
		{[]string{"class=bulk,protocol=tcp,far_port=1-100", "class=voice,protocol=tcp,far_port=80|443"}, false},
		{[]string{"class=bulk,port=80", "class=voice,protocol=tcp,far_port=80"}, true},
		{[]string{"class=bulk,port=80", "class=voice,protocol=sctp,far_port=80"}, false},
		{[]string{"class=bulk,port=80", "class=voice,protocol=icmp"}, false},
		{[]string{"class=bulk,home=10.0.0.0/8", "class=voice,home=10.1.2.3"}, true},
		{[]string{"class=bulk,home=10.0.0.0/8", "class=voice,home=10.1.2.3|192.168.1.1"}, false},
		{[]string{"class=bulk,home=::ffff:10.0.0.0/104", "class=voice,home=::ffff:10.1.2.3"}, true},
		{[]string{"class=bulk,home=2001:db8::/32", "class=voice,home=2001:db8:1::/48"}, true},
		{[]string{"class=bulk,direction=up", "class=voice,port=80"}, false},
		{[]string{"class=bulk,port=80", "class=voice,home=10.0.0.1,far=2001:db8::/32"}, true},
		{[]string{"class=bulk,port=80", "class=voice,home=10.0.0.1|fd00::1,far=2001:db8::/32"}, false},
		{[]string{"class=bulk,domain=zoom.us", "class=voice,domain=eu.zoom.us"}, true},
		{[]string{"class=bulk,domain=zoom.us", "class=voice,domain=eu.zoom.us,far=1.1.1.1"}, false},
		{[]string{"class=bulk,below_bytes=1MB", "class=voice,below_bytes=1kB"}, true},
		{[]string{"class=bulk,below_bytes=1MB", "class=voice"}, false},
		{[]string{"class=bulk,from_bytes=1MB", "class=voice,from_bytes=2MB"}, true},
		{[]string{"class=bulk,dscp=ef", "class=voice,dscp=af41"}, false},
	} {
		var w plan.ClassPreferences
		for _, s := range x.rules {
			r, err := plan.ParseRule(s)
			if err != nil {
				t.Fatal(err)
			}
			w.Rules = append(w.Rules, r)
		}
		p, err := plan.Make(plan.Line{Down: 30 * unit.MbitPerSecond, Up: 5 * unit.MbitPerSecond}, plan.Capabilities{Language: linux.Language(), WAN: "wan", LAN: "lan", IFB: true}, plan.Preferences{Classes: w})
		if err != nil {
			t.Fatal(err)
		}
		said := slices.ContainsFunc(p.Warnings, func(w reason.Reason) bool {
			return w.Code == reason.RuleCovered || w.Code == reason.RuleTwoFamilies
		})
		if said != x.never {
			t.Errorf("%q: the second never decides: said %v, want %v\n%q", x.rules, said, x.never, p.Warnings)
		}
		all := strings.HasPrefix(x.rules[0], "class=normal") || strings.HasSuffix(x.rules[1], "class=normal") || x.rules[1] == "class=voice"
		if why, _ := p.Why("classes.behaviour"); (why.Why.Code == reason.RuleTakesAll) != all {
			said := !all
			t.Errorf("%q: behaviour decides nothing: said %v, want %v", x.rules, said, all)
		}
	}
}
