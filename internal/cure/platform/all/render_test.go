package all_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"unbloat/internal/cure/lang/dummynet"
	"unbloat/internal/cure/lang/pf"
	"unbloat/internal/cure/lang/sqm"
	"unbloat/internal/cure/plan"
	pages "unbloat/internal/cure/platform"
	"unbloat/internal/cure/platform/all"
	"unbloat/unit"
)

// anyPreferences draws preferences, sensible ones and others.
func anyPreferences(t *rapid.T, aqms []plan.AQM) plan.Preferences {
	w := plan.Preferences{
		AQM:   rapid.SampledFrom(append(aqms, "")).Draw(t, "aqm"),
		Style: rapid.SampledFrom([]plan.Style{"", plan.StyleArticle}).Draw(t, "style"),
		Only:  rapid.SampledFrom([]plan.Direction{"", "", plan.DirectionUp, plan.DirectionDown}).Draw(t, "only"),
		Side:  rapid.SampledFrom([]plan.Side{"", "", plan.SideIFB, plan.SideLAN, plan.SideIn}).Draw(t, "side"),
	}
	maybe := func(name string) bool { return rapid.IntRange(0, 5).Draw(t, "ask for "+name) == 0 }
	if maybe("limit") {
		w.Limit = rapid.SampledFrom([]int{1, 2, 50, 100, 101, 1001, 20480, 20481, 65535, 65536, 1 << 30}).Draw(t, "limit")
	}
	if maybe("flows") {
		w.Flows = rapid.SampledFrom([]int{1, 1024, 32767, 32768, 65535, 65536}).Draw(t, "flows")
	}
	if maybe("quantum") {
		w.Quantum = rapid.SampledFrom([]unit.Size{1, 256, 1514, 9000, 9001, 65535, 1 << 20}).Draw(t, "quantum")
	}
	if maybe("times") {
		w.Target = rapid.SampledFrom([]time.Duration{time.Microsecond, 5 * time.Millisecond, 1500 * time.Microsecond, 5 * time.Second, 6 * time.Second, 20 * time.Second}).Draw(t, "target")
		w.Interval = rapid.SampledFrom([]time.Duration{0, 100 * time.Millisecond, 10 * time.Second, 100 * time.Second}).Draw(t, "interval")
	}
	if maybe("ecn") {
		ecn := rapid.Bool().Draw(t, "ecn")
		w.ECN = &ecn
	}
	if maybe("latency") {
		w.Latency = rapid.SampledFrom([]time.Duration{time.Millisecond, 100 * time.Millisecond, 10 * time.Second}).Draw(t, "latency")
	}
	if maybe("classes") {
		w.Classes.Rules = []plan.Rule{
			{Class: plan.Voice, Protocol: "udp", FarPort: []plan.PortRange{{From: 5060, To: 5061}}},
			{Name: "backup", Class: plan.Bulk, Port: []plan.PortRange{{From: 873, To: 873}}, Far: []string{"203.0.113.0/24", "2001:db8::/32"}, DSCP: []string{"cs1"}},
			{Class: plan.Interactive, Home: []string{"192.168.1.7", "02:00:00:00:00:07"}}, {Class: plan.Voice, Domain: []string{"zoom.us"}},
		}
	}
	if maybe("shares") {
		w.Classes.Shares = []plan.SharePreference{{Class: rapid.SampledFrom(plan.AllClasses()).Draw(t, "share"),
			Guarantee: plan.RatePreference{Fraction: rapid.SampledFrom([]float64{0.01, 0.3, 0.6, 1}).Draw(t, "guarantee")}, Limit: plan.RatePreference{Fraction: 0.8}}}
	}
	return w
}

// Every plan that can be made can be written as text to paste: comments keep
// their width, and the platform's own grammar reads back the rest. So every
// limit of a platform is checked when the plan is made.
func TestEveryPlanIsWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		platform := rapid.SampledFrom(all.Names()).Draw(t, "platform")
		wan := ""
		if platform != "opnsense" {
			wan = rapid.SampledFrom([]string{"", "", "eth0.100", "pppoe-wan"}).Draw(t, "wan")
		}
		f, err := all.Assume(platform, wan, "")
		if err != nil {
			t.Fatal(err)
		}
		rate := func(label string) unit.Rate { return unit.Rate(rapid.Int64Range(64e3, 4e9).Draw(t, label)) }
		l := plan.Line{
			Down: rate("down"), Up: rate("up"),
			LinkLayer: rapid.SampledFrom([]plan.LinkLayer{"", plan.DOCSIS, plan.ATM, plan.PTM}).Draw(t, "layer"),
		}
		p, err := plan.Make(l, f, anyPreferences(t, f.AQMs))
		if err != nil {
			return // package plan tests what is refused
		}
		text, err := all.Text(p)
		if err != nil {
			t.Fatal(err)
		}
		var code strings.Builder
		for line := range strings.Lines(text) {
			if !strings.HasPrefix(line, "#") {
				code.WriteString(line)
				continue
			}
			if n := len([]rune(line)) - 1; n > pages.PlanWidth && strings.Contains(line[6:], " ") {
				t.Fatalf("%d characters: %s", n, line)
			}
		}
		if err := readBack(p.Platform, code.String()); err != nil {
			t.Fatalf("%v\n%s", err, code.String())
		}
	})
}

// readBack parses the text with the platform's parser.
func readBack(platform, code string) error {
	var err error
	switch platform {
	case "openbsd":
		_, err = pf.Parse(before(code, "pfctl"))
	case "openbsd-altq":
		_, err = pf.ParseALTQ(before(code, "pfctl"))
	case "openwrt":
		_, err = sqm.Parse(before(before(code, "service"), "cat > "))
	case "freebsd":
		_, _, err = dummynet.Parse(code)
	}
	return err
}

func before(text, word string) string {
	text, _, _ = strings.Cut(text, "\n"+word)
	return text
}

// TestClassExamples: the class files of the documents are written for every
// platform: the article's ports for calls, and guarantees and limits by
// service.
func TestClassExamples(t *testing.T) {
	ports := map[string]string{"linux": "udp th dport { 19302-19309 }", "openwrt": "udp th dport { 19302-19309 }", "openbsd": "port 19302:19309", "openbsd-altq": "port 19302:19309 queue em0_interactive", "freebsd": "dst-port 19302-19309",
		"opnsense": `"dst_port":"19302-19309"`, "pfsense": "from any to any port 19302-19309", "clearos": "19302:19309"}
	parts := map[string]string{"linux": "rate 6750kbit ceil 8835kbit", "openwrt": "rate 6750kbit ceil 8835kbit", "openbsd": "em0_voice", "openbsd-altq": "queue em0_voice bandwidth 1425Kb qlimit 17 hfsc ( realtime 1425Kb upperlimit 1865304b )", "freebsd": "weight 30", "opnsense": `"weight":"30"`, "pfsense": "<weight>30</weight>", "clearos": "*:30:20:1:37:1:10:1"}
	for file, want := range map[string]map[string]string{"tomato": ports, "services": parts} {
		text, err := os.ReadFile("../../../../docs/examples/" + file + ".toml")
		if err != nil {
			t.Fatal(err)
		}
		for _, platform := range all.Names() {
			w := plan.Preferences{}
			if w.Classes, err = plan.ParseClasses(file, text); err != nil {
				t.Fatal(err)
			}
			if platform == "clearos" {
				w.AQM = plan.SFQ
			}
			f, err := all.Assume(platform, "", "")
			if err != nil {
				t.Fatal(err)
			}
			p, err := plan.Make(plan.Line{Down: 25 * unit.MbitPerSecond, Up: 5 * unit.MbitPerSecond}, f, w)
			if err != nil {
				t.Fatal(err)
			}
			out, err := all.Text(p)
			if err != nil {
				t.Fatal(err)
			}
			if want[platform] == "" || !strings.Contains(out, want[platform]) {
				t.Errorf("%s, %s: there is no %q in\n%s", platform, file, want[platform], out)
			}
		}
	}
}
