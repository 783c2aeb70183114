package nft_test

import (
	"strings"
	"testing"
	"unicode"

	"unbloat/internal/cure/classify"
	"unbloat/internal/cure/lang/nft"
	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform/all"
	"unbloat/unit"
)

// FuzzClasses: a class file or rule is refused, or gives a table that contains
// no injected nft syntax.
func FuzzClasses(f *testing.F) {
	f.Add("use = \"on\"\n[dscp]\ntrust_home = true\n[[rule]]\nname = \"Hangouts\"\nclass = \"voice\"\nprotocol = \"udp\"\nfar_port = [\"19302-19309\"]\n", "class=voice,protocol=udp,far_port=19302-19309")
	f.Add("[[class]]\nname = \"bulk\"\ndirection = \"up\"\nlimit = \"80%\"\n", "class=bulk,home=10.1.0.2|10.1.0.0/24,domain=example.org")
	f.Add("[[rule]]\nname = \"a } b\"\nclass = \"bulk\"\nhome = [\"02:00:00:00:00:01\"]\n", "class=interactive,dscp=ef|af41,below_bytes=10kB")
	facts, err := all.Assume("linux", "", "")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, file, rule string) {
		w, err := plan.ParseClasses("classes.toml", []byte(file))
		if err != nil {
			w = plan.ClassPreferences{}
		}
		if r, err := plan.ParseRule(rule); err == nil {
			w.Rules = append(w.Rules, r)
		}
		p, err := plan.Make(plan.Line{Down: 30 * unit.MbitPerSecond, Up: 5 * unit.MbitPerSecond}, facts, plan.Preferences{Classes: w})
		if err != nil || p.Classes == nil {
			return
		}
		table := nft.Render(p, "")
		if d := nft.Differences(table, table); d != nil {
			t.Fatalf("it differs from itself: %v", d)
		}
		if depth := strings.Count(table.Text, "{") - strings.Count(table.Text, "}"); depth != 0 {
			t.Fatalf("%d braces are left open:\n%s", depth, table.Text)
		}
		if i := strings.IndexFunc(table.Text, func(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\t' }); i >= 0 {
			t.Fatalf("a control character at %d:\n%q", i, table.Text)
		}
	})
}

// FuzzFlow: a parsed flow has two ends of one family, and ports if its protocol
// has them. Comparing any listed table does not panic.
func FuzzFlow(f *testing.F) {
	f.Add("udp 10.1.0.2:5004 > 203.0.113.9:5004")
	f.Add("icmp fe80::1%eth0 > ::1")
	f.Add("table inet unbloat_wan {\n\tchain a {\n\t\tip saddr 10.0.0.1 accept\n\t}\n\tset b {\n\t\ttype ipv4_addr\n\t}\n}")
	sample := nft.Sample()
	f.Fuzz(func(t *testing.T, s string) {
		if flow, err := classify.ParseFlow(s); err == nil {
			home, far := flow.Home.Addr(), flow.Far.Addr()
			if !home.IsValid() || !far.IsValid() || home.Is4() != far.Is4() {
				t.Fatalf("%q: %+v", s, flow)
			}
		}
		listed := nft.Table{Text: s}
		listed.Of("eth0")
		if d := nft.Differences(listed, sample); len(d) == 0 && s != sample.Text && !strings.Contains(s, "{") {
			t.Fatalf("%q equals the sample", s)
		}
	})
}
