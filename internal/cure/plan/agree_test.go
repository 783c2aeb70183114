package plan_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	. "unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform/all"
)

// anyPlan returns a plan of any platform, with the parts that some plans have.
func anyPlan(t *rapid.T) Plan {
	l, f, w := anyInput(t)
	l.Down, l.Up = min(l.Down, gbit), min(l.Up, gbit)
	w.Side = rapid.SampledFrom(append(f.Language.Sides, "")).Draw(t, "side")
	w.FlowTable = rapid.IntRange(0, 3).Draw(t, "flow table") == 0
	w.Classes.Use = rapid.SampledFrom([]string{"", ClassesOn, ClassesOff}).Draw(t, "classes")
	if rapid.IntRange(0, 3).Draw(t, "bpf") == 0 {
		w.Classes.Classifier = ByBPF
	}
	p, err := Make(l, f, w)
	if err != nil {
		t.Skip("refused: ", err)
	}
	return p
}

// A member is one value of a plan's JSON, and how to put another there.
type member struct {
	at  string
	is  any
	put func(any)
}

// members lists all values below v, except what only tells how the plan was made:
// the reasons, and of the basis all but which router it was made for.
func members(at string, v any, put func(any)) (out []member) {
	switch v := v.(type) {
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(v)) {
			switch where := at + "." + k; {
			case k == "reasons" || strings.HasPrefix(k, "warning"):
			case strings.HasPrefix(where, ".basis.") && !slices.Contains([]string{".basis.facts", ".basis.facts.platform", ".basis.facts.wan", ".basis.facts.lan"}, where):
			default:
				out = append(out, members(where, v[k], func(x any) { v[k] = x })...)
			}
		}
	case []any:
		for i := range v {
			out = append(out, members(fmt.Sprintf("%s[%d]", at, i), v[i], func(x any) { v[i] = x })...)
		}
	default:
		out = append(out, member{at, v, put})
	}
	return out
}

// written returns the plan's JSON as values, to be changed and written again.
func written(t *rapid.T, p Plan) map[string]any {
	b, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	var v map[string]any
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// A plan names its WAN, LAN, platform, queue discipline and rates in several places.
// If one of them says something else, the plan is refused.
func TestPlanSaysOneThing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := anyPlan(t)
		v := written(t, p)
		others := map[any][]any{p.WAN: {"wan9", p.LAN}, p.Platform: {"linux", "openwrt", "beos"}, string(p.AQM): {"cake", "fq_codel", "fifo", "sfq"}, IFBName(p.WAN): {p.WAN, p.LAN, "lo"}}
		if p.LAN != "" {
			others[p.LAN] = []any{"lan9", p.WAN}
		}
		for _, r := range []float64{float64(p.DownBps), float64(p.UpBps)} {
			others[r] = append(others[r], 9e6, 0.0, -r)
		}
		all := slices.DeleteFunc(members("", v, nil), func(m member) bool {
			_, rate := m.is.(float64)
			return others[m.is] == nil || rate && !slices.Contains([]string{".down_bps", ".up_bps", ".down.rate_bps", ".up.rate_bps"}, m.at)
		})
		m := all[rapid.IntRange(0, len(all)-1).Draw(t, "member")]
		to := rapid.SampledFrom(others[m.is]).Draw(t, "value")
		if strings.HasPrefix(m.at, ".offloads") {
			to = "wan9" // of the WAN and the LAN either may have its offloads off
		}
		if to == m.is {
			t.Skip("the same")
		}
		m.put(to)
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := parse(b); err == nil {
			t.Fatalf("%s is %v in place of %v, and the plan is accepted:\n%s", m.at, to, m.is, b)
		}
	})
}

// Whatever is written into a plan, and however often: what is accepted shapes its
// own WAN, with its own queue discipline, and touches no other device.
func TestAcceptedPlanIsOfItsWAN(t *testing.T) {
	accepted := 0
	rapid.Check(t, func(t *rapid.T) {
		v := written(t, anyPlan(t))
		from := members("", written(t, anyPlan(t)), nil)
		for range rapid.IntRange(0, 3).Draw(t, "changes") {
			all := members("", v, nil)
			m := all[rapid.IntRange(0, len(all)-1).Draw(t, "member")]
			switch rapid.IntRange(0, 2).Draw(t, "how") {
			case 0:
				m.put(all[rapid.IntRange(0, len(all)-1).Draw(t, "of it")].is)
			case 1:
				m.put(from[rapid.IntRange(0, len(from)-1).Draw(t, "of another")].is)
			default:
				m.put(nil)
			}
		}
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		p, err := parse(b)
		if err != nil {
			return
		}
		accepted++
		check := func(what, is string, may ...string) {
			if !slices.Contains(may, is) {
				t.Fatalf("%s is %q, not one of %q:\n%s", what, is, may, b)
			}
		}
		for _, s := range []*Shaper{p.Up, p.Down} {
			if s == nil {
				continue
			}
			check("an aqm", string(s.AQM), string(p.AQM))
			check("a device", s.Device, map[bool][]string{true: {p.WAN}, false: {p.WAN, p.LAN, IFBName(p.WAN)}}[s == p.Up]...)
			check("what is redirected", s.IngressOf, "", p.WAN)
		}
		for _, o := range p.Offloads {
			check("the device of an offload", o.Device, p.WAN, p.LAN)
		}
		for _, d := range p.FlowTable {
			check("a device of the flow table", d, p.WAN, p.LAN)
		}
		if p.Classes != nil {
			check("the classes' LAN", p.Classes.LAN, "", p.LAN)
		}
		if p.Basis != nil {
			check("the basis's WAN", p.Basis.Capabilities.WAN, p.WAN)
		}
	})
	if accepted == 0 {
		t.Error("nothing was accepted, so nothing was looked at")
	}
}

// A member that is there twice says two things, also where only its case differs:
// readers of JSON disagree about which of the two counts.
func TestMemberTwice(t *testing.T) {
	f, err := all.Assume("linux", "eth0", "eth1")
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(mustMake(t, Line{Down: 30 * mbit, Up: 5 * mbit}, f, Preferences{}))
	if err != nil {
		t.Fatal(err)
	}
	for _, twice := range []string{`"wan":"eth9",`, `"WAN":"eth0",`, `"ba\u0073is":null,`, `"ba\u017fis":null,`} {
		var field *FieldError
		if _, err := parse(append([]byte("{"+twice), b[1:]...)); !errors.As(err, &field) || !strings.Contains(field.Why, "twice") {
			t.Errorf("%s and the member itself: %v", twice, err)
		}
	}
	inner := strings.Replace(string(b), `"up":{`, `"up":{"Device":"eth0",`, 1)
	if _, err := parse([]byte(inner)); err == nil || !strings.Contains(err.Error(), "up.device") {
		t.Errorf("within a direction: %v", err)
	}
}

// Settings that the queue discipline or the platform does not have are refused: what
// runs would not be what the plan says.
func TestSettingsOfAnother(t *testing.T) {
	for _, c := range []struct {
		platform string
		aqm      AQM
		field    string
		spoil    func(p *Plan)
	}{
		{"linux", CAKE, "up.target", func(p *Plan) { p.Up.Target = 5e6 }},
		{"linux", CAKE, "up.limit", func(p *Plan) { p.Up.Limit = 1000 }},
		{"linux", CAKE, "down.quantum", func(p *Plan) { p.Down.Quantum = 1514 }},
		{"linux", CAKE, "down.burst", func(p *Plan) { p.Down.Burst = 15000 }},
		{"linux", CAKE, "up.ecn", func(p *Plan) { p.Up.ECN = false }},
		{"linux", FQCoDel, "up.tins", func(p *Plan) { p.Up.Tins = "diffserv4" }},
		{"linux", FQCoDel, "up.nat", func(p *Plan) { p.Up.NAT = true }},
		{"linux", FQCoDel, "up.ack_filter", func(p *Plan) { p.Up.AckFilter = true }},
		{"linux", FIFO, "up.interval", func(p *Plan) { p.Up.Interval = 1e8 }},
		{"linux", FIFO, "down.ecn", func(p *Plan) { p.Down.ECN = true }},
		{"openbsd", FQCoDel, "up.target", func(p *Plan) { p.Up.Target = 15e6 }},
		{"openbsd", FQCoDel, "up.ecn", func(p *Plan) { p.Up.ECN = true }},
		{"openbsd", FQCoDel, "up.overhead", func(p *Plan) { p.Up.Overhead = 44 }},
		{"openbsd", FQCoDel, "up.burst", func(p *Plan) { p.Up.Burst = 15000 }},
		{"openbsd", FQCoDel, "offloads", func(p *Plan) { p.Offloads = []Offload{{Device: "em0", Feature: "tso"}} }},
		{"openbsd", FQCoDel, "classes", func(p *Plan) { p.Classes = &Classes{} }},
		{"linux", CAKE, "classes", func(p *Plan) { p.Classes.Up, p.Classes.Down = nil, nil }},
		{"linux", CAKE, "classes.classifier", func(p *Plan) { p.Classes.Classifier = "ebpf" }},
		{"linux", CAKE, "classes.classifier", func(p *Plan) { p.Classes.Classifier, p.Classes.LAN, p.Classes.Down = ByBPF, p.LAN, nil }},
		{"linux", CAKE, "classes.lan", func(p *Plan) { p.Classes.Classifier = "" }},
		{"linux", CAKE, "classes.lan", func(p *Plan) { p.Classes.LAN = "lan7" }},
		{"linux", CAKE, "classes.up", func(p *Plan) { p.Classes.Up[0].Limit, p.Classes.Up[0].Guarantee = mbit, 2*mbit }},
	} {
		f, err := all.Assume(c.platform, "", "")
		if err != nil {
			t.Fatal(err)
		}
		p := mustMake(t, Line{Down: 30 * mbit, Up: 5 * mbit}, f, Preferences{AQM: c.aqm})
		c.spoil(&p)
		if err := p.Validate(f.Language); err == nil || !strings.Contains(err.Error(), c.field+": ") {
			t.Errorf("%s, %s, %s: %v", c.platform, c.aqm, c.field, err)
		}
	}
}
