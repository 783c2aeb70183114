package reason

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// placeholders returns the names and verbs of a template, sorted.
func placeholders(template string) []string {
	out := regexp.MustCompile(`\{[^}]*\}`).FindAllString(template, -1)
	slices.Sort(out)
	return out
}

// Every language has a text for every code, with all figures of the English text.
func TestLanguagesAreWhole(t *testing.T) {
	english := English()
	for _, l := range Languages() {
		for code, words := range english.Words {
			if d := cmp.Diff(placeholders(words), placeholders(l.Words[code])); d != "" {
				t.Errorf("%s, %s: -English +%s\n%s", l.Tag, code, l.Tag, d)
			}
		}
		for code := range l.Words {
			if english.Words[code] == "" {
				t.Errorf("%s has words for %s, which English has not", l.Tag, code)
			}
		}
		for name := range english.Names {
			if l.Names[name] == "" {
				t.Errorf("%s has no name for %s", l.Tag, name)
			}
		}
	}
}

func full() Reason {
	r := Of(LoadNotFull).In("upload")
	r.Causes = []Reason{Of(RateRising, "direction", "up", "first_bps", 1.5e6, "last_bps", 4.8e6)}
	return r
}

// The same reason in two languages, and on a page, where flags are not
// mentioned.
func TestText(t *testing.T) {
	for _, c := range []struct {
		r     Reason
		l     *Language
		where Surface
		want  string
	}{
		{full(), English(), Terminal, "upload: the line was not full, which proves nothing: the up rate was still rising, from 1.50 Mbit/s to 4.80 Mbit/s: measure longer (--seconds)"},
		{full(), English(), Page, "upload: the line was not full, which proves nothing: the up rate was still rising, from 1.50 Mbit/s to 4.80 Mbit/s: measure longer"},
		{full(), German(), Page, "Upload: die Leitung war nicht voll, das beweist nichts: die Rate im Upload stieg noch, von 1,50 Mbit/s auf 4,80 Mbit/s: länger messen"},
		{Of(ClockSet, "count", 1), English(), Terminal, "this machine's clock was set once meanwhile"},
		{Of(ClockSet, "count", 2.0), German(), Terminal, "die Uhr dieses Rechners wurde währenddessen 2-mal gestellt"},
		{Of(CPUBusy, "busy", 0.97, "most", 0.85), English(), Terminal, "this machine's busiest processor was 97 % busy (at most 85 %), so it measured itself"},
		{Of("from_tomorrow", "x", 1), English(), Terminal, "from_tomorrow"},
	} {
		if got := c.r.Text(c.l, c.where); got != c.want {
			t.Errorf("%s in %s:\n got %s\nwant %s", c.r.Code, c.l.Tag, got, c.want)
		}
	}
}

// What is written as JSON is read back as the same reason.
func TestJSON(t *testing.T) {
	b, err := json.Marshal(full())
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"code":"load_not_full","phase":"upload","causes":[{"code":"rate_rising","direction":"up","first_bps":1500000,"last_bps":4800000,"text":`; !strings.HasPrefix(string(b), want) {
		t.Errorf("%s\ndoes not begin with %s", b, want)
	}
	var back Reason
	if err := json.Unmarshal(b, &back); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(full(), back); d != "" {
		t.Errorf("-written +read:\n%s", d)
	}
	for _, bad := range []string{`3`, `{"code":3}`, `{"code":"x"`, `[]`} {
		if err := json.Unmarshal([]byte(bad), &back); err == nil {
			t.Errorf("%s was read as a reason", bad)
		}
	}
}

func TestChoose(t *testing.T) {
	for tag, want := range map[string]string{"": "en", "C": "en", "de": "de", "de_AT.UTF-8": "de", "DE-ch": "de", "fr": "en"} {
		if got := Choose(tag).Tag; got != want {
			t.Errorf("%q: %s, want %s", tag, got, want)
		}
	}
}

// FuzzJSON: whatever is accepted as a reason can be printed and written again.
func FuzzJSON(f *testing.F) {
	b, _ := json.Marshal(full())
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		var r Reason
		if json.Unmarshal(b, &r) != nil {
			return
		}
		for _, l := range Languages() {
			_ = r.Text(l, Page)
		}
		if _, err := json.Marshal(r); err != nil {
			t.Errorf("it can't be written again: %v", err)
		}
	})
}

// The language with the highest weight wins, among equals the first; unknown
// languages do not count.
func TestAccept(t *testing.T) {
	for header, want := range map[string]string{
		"": "en", "de": "de", "de-AT,de;q=0.9,en;q=0.8": "de", "fr, de;q=0.3": "de", "en;q=0.5, de;q=0.7": "de",
		"en, de": "en", "de;q=0": "en", "de;q=x, en;q=0.1": "en", "*": "en",
	} {
		if got := Accept(header).Tag; got != want {
			t.Errorf("%q: %s, want %s", header, got, want)
		}
	}
}
