package paste

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"unbloat/internal/mechanism/altq"
	"unbloat/internal/mechanism/dummynet"
	"unbloat/internal/mechanism/pfqueue"
	"unbloat/internal/mechanism/sqm"
	"unbloat/internal/plan"
	"unbloat/unit"
)

// Every plan that can be made can be pasted, comments fit their width, and what
// is not a comment is read back by the platform's own grammar.
func TestEveryPlanIsWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f, err := plan.AssumedFacts(rapid.SampledFrom(plan.Platforms()).Draw(t, "platform"), "", "")
		if err != nil {
			t.Fatal(err)
		}
		rate := func(label string) unit.Rate { return unit.Rate(rapid.Int64Range(64e3, 4e9).Draw(t, label)) }
		l := plan.Line{
			Down: rate("down"), Up: rate("up"),
			LinkLayer: rapid.SampledFrom([]plan.LinkLayer{"", plan.DOCSIS, plan.ATM, plan.PTM}).Draw(t, "layer"),
		}
		p, err := plan.Make(l, f, plan.Wishes{
			AQM:   rapid.SampledFrom(append(f.AQMs, "")).Draw(t, "aqm"),
			Style: rapid.SampledFrom([]plan.Style{"", plan.StyleSeed}).Draw(t, "style"),
		})
		if err != nil {
			t.Fatal(err)
		}
		text, err := Render(p)
		if err != nil {
			t.Fatal(err)
		}
		var code strings.Builder
		for line := range strings.Lines(text) {
			if !strings.HasPrefix(line, "#") {
				code.WriteString(line)
				continue
			}
			if n := len([]rune(line)) - 1; n > width && strings.Contains(line[6:], " ") {
				t.Fatalf("%d characters: %s", n, line)
			}
		}
		if err := readBack(p.Platform, code.String()); err != nil {
			t.Fatalf("%v\n%s", err, code.String())
		}
	})
}

// readBack gives what was written to the platform's parser.
func readBack(platform, code string) error {
	var err error
	switch platform {
	case plan.OpenBSD:
		_, err = pfqueue.Parse(before(code, "pfctl"))
	case plan.OpenBSDAltq:
		_, err = altq.Parse(before(code, "pfctl"))
	case plan.OpenWrt:
		_, err = sqm.Parse(before(code, "service"))
	case plan.FreeBSD:
		_, _, err = dummynet.Parse(code)
	}
	return err
}

func before(text, word string) string {
	text, _, _ = strings.Cut(text, "\n"+word)
	return text
}
