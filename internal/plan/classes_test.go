package plan_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"unbloat/internal/plan"
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

// A class file is read into wishes, and they survive JSON.
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
	var again plan.ClassWishes
	if err := json.Unmarshal(b, &again); err != nil || !reflect.DeepEqual(w, again) {
		t.Errorf("through JSON: %+v, %v", again, err)
	}
	one, err := plan.ParseRule("class=voice, protocol=udp, far_port=19302-19309|3478, name=Hangouts")
	if err != nil || len(one.FarPort) != 2 {
		t.Errorf("as a flag: %+v, %v", one, err)
	}
}

// What cannot be is refused, with the place that is wrong.
func TestParseClassesRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"[[rule]]\nclas = \"voice\"":                                                "f:2: rule.clas",
		"[[rule]]\nclass = \"express\"":                                             "rule[0].class",
		"[[rule]]\nclass = \"bulk\"\nport = [\"0\"]":                                "f:3",
		"[[rule]]\nclass = \"bulk\"\nprotocol = \"icmp\"\nport = [\"7\"]":           "no ports",
		"[[rule]]\nclass = \"bulk\"\nhome = [\"a b\"]":                              "rule[0].home",
		"[[rule]]\nclass = \"bulk\"\nfar = [\"nas\"]":                               "rule[0].far",
		"[[rule]]\nclass = \"bulk\"\ndomain = [\"x\\\"; drop\"]":                    "rule[0].domain",
		"[[rule]]\nclass = \"bulk\"\nfrom_bytes = \"2 MB\"\nbelow_bytes = \"1 MB\"": "from_bytes",
		"[[class]]\nname = \"bulk\"":                                                "neither limit nor guarantee",
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

// Acknowledgements are bounded where one for every packet of the download would
// take more than a ninth of the upload, and never below one for every four.
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
		p, err := plan.Make(plan.Line{Down: x.down, Up: x.up}, plan.Facts{Platform: plan.Linux, WAN: "wan", LAN: "lan", IFB: true}, plan.Wishes{})
		if err != nil {
			t.Fatal(err)
		}
		if got := p.Classes.Behaviour.Acks; got != x.want {
			t.Errorf("%s down, %s up: %d a second, want %d", x.down, x.up, got, x.want)
		}
		said := false
		for _, r := range p.Reasons {
			said = said || strings.Contains(r.Why, "left out")
		}
		if said != (x.want > 0) {
			t.Errorf("%s down, %s up: %d a second, and the plan says so: %v", x.down, x.up, x.want, said)
		}
	}
}
