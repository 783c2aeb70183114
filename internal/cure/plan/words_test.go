package plan_test

import (
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	. "unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform/all"
	"unbloat/reason"
)

// martian is English without its words. A plan in it has only the router's own
// names.
func martian() *reason.Language {
	of := *reason.English()
	of.Words, of.Names = maps.Clone(of.Words), maps.Clone(of.Names)
	l := &of
	words, figure := regexp.MustCompile(`[A-Za-z]+`), regexp.MustCompile(`\{[^}]*\}`)
	silent := func(text string) string {
		var b strings.Builder
		for {
			at := figure.FindStringIndex(text)
			if at == nil {
				return b.String() + words.ReplaceAllString(text, "ω")
			}
			b.WriteString(words.ReplaceAllString(text[:at[0]], "ω") + text[at[0]:at[1]])
			text = text[at[1]:]
		}
	}
	for code, text := range l.Words {
		l.Words[code] = silent(text)
	}
	for name := range l.Names {
		l.Names[name] = "ω"
	}
	return l
}

// talkative returns preferences whose plans give many reasons.
func talkative(t *testing.T) []Preferences {
	t.Helper()
	yes := true
	rules := ClassPreferences{DSCP: DSCPPreference{TrustHome: true}}
	for _, s := range []string{"class=voice,protocol=udp,far_port=19302-19309", "class=bulk,home=192.168.1.7", "class=bulk,domain=example.com", "class=bulk,dscp=af42"} {
		r, err := ParseRule(s)
		if err != nil {
			t.Fatal(err)
		}
		rules.Rules = append(rules.Rules, r)
	}
	return []Preferences{{}, {Style: StyleArticle}, {AQM: FIFO}, {ECN: &yes}, {FlowsDown: 100}, {Classes: rules}, {AQM: SFQ, Classes: rules}}
}

// All words of a plan come from its language: in a language without words only the
// router's own names are left.
func TestNoWordsInPlans(t *testing.T) {
	l, word := martian(), regexp.MustCompile(`[A-Za-z]{2,}`)
	units := []string{"ms", "bit", "kbit", "Mbit", "Gbit", "kB", "MB", "down", "up"}
	for _, platform := range all.Names() {
		for _, w := range talkative(t) {
			f, err := all.Assume(platform, "", "")
			if err != nil {
				t.Fatal(err)
			}
			p, err := Make(Line{Down: 25 * mbit, Up: 2 * mbit}, f, w)
			if err != nil {
				continue // not supported on the platform
			}
			known := append(slices.Clone(units), platform, p.WAN, p.LAN, string(p.AQM))
			for _, r := range p.Reasons {
				known = append(known, r.Field)
				for _, x := range append([]reason.Reason{r.Value, r.Why}, r.Why.Causes...) {
					for _, a := range x.Args {
						if s, ok := a.Value.(string); ok {
							known = append(known, s)
						}
					}
				}
			}
			for _, x := range p.Warnings {
				for _, a := range x.Args {
					if s, ok := a.Value.(string); ok {
						known = append(known, s)
					}
				}
			}
			for _, s := range []*Shaper{p.Down, p.Up} {
				if s != nil {
					known = append(known, s.Device)
				}
			}
			names := strings.Join(known, " ")
			for _, found := range word.FindAllString(p.ExplainIn(l), -1) {
				if !strings.Contains(names, found) {
					t.Errorf("%s, %+v: %q is said without a language's word for it", platform, w, found)
				}
			}
		}
	}
}

// A plan survives JSON, which has codes, figures and English text. The text of an
// older program's plan is kept.
func TestReasonsAsJSON(t *testing.T) {
	f, err := all.Assume("clearos", "", "")
	if err != nil {
		t.Fatal(err)
	}
	p := mustMake(t, Line{Down: 25 * mbit, Up: mbit}, f, Preferences{AQM: SFQ, Classes: talkative(t)[5].Classes})
	b, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	back, err := parse(b)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(p.Reasons, back.Reasons); d != "" {
		t.Errorf("-made +read:\n%s", d)
	}
	if d := cmp.Diff(p.Warnings, back.Warnings); d != "" || len(p.Warnings) == 0 {
		t.Errorf("-made +read:\n%s", d)
	}
	var old Plan
	if err := json.Unmarshal([]byte(`{"reasons":[{"field":"up.rate","value":"1 Mbit/s","why":"so it was"}],"warnings":["beware"]}`), &old); err != nil {
		t.Fatal(err)
	}
	if why, _ := old.Why("up.rate"); why.Value.String() != "1 Mbit/s" || why.Why.String() != "so it was" || len(old.Warnings) != 1 || old.Warnings[0].String() != "beware" {
		t.Errorf("an older plan's text: %+v", old)
	}
}
