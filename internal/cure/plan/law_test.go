package plan_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	. "unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform/all"
	"unbloat/internal/cure/platform/linux"
	"unbloat/reason"
	"unbloat/unit"
)

func anyRate(t *rapid.T, label string) unit.Rate {
	// From 64 kbit/s to 10 Gbit/s, evenly over the orders of magnitude.
	of := rapid.SampledFrom([]unit.Rate{kbit, 10 * kbit, 100 * kbit, mbit, 10 * mbit, 100 * mbit, gbit}).Draw(t, label+" order")
	return max(64*kbit, unit.Rate(rapid.Int64Range(int64(of), 10*int64(of)).Draw(t, label)))
}

// parse reads a plan as `unbloat apply` does, and validates it.
func parse(b []byte) (Plan, error) {
	var p Plan
	if err := json.Unmarshal(b, &p); err != nil {
		return p, err
	}
	lang, err := all.Language(p.Platform)
	if err != nil {
		return p, err
	}
	p = p.In(lang)
	return p, p.Validate(lang)
}

func anyInput(t *rapid.T) (Line, Capabilities, Preferences) {
	name := rapid.SampledFrom(all.Names()).Draw(t, "platform")
	f, err := all.Assume(name, "", "")
	if err != nil {
		t.Fatal(err)
	}
	l := Line{
		Down: anyRate(t, "down"), Up: anyRate(t, "up"),
		RTT:       time.Duration(rapid.IntRange(0, 700).Draw(t, "rtt")) * time.Millisecond,
		LinkLayer: rapid.SampledFrom([]LinkLayer{"", Ethernet, DOCSIS, ATM, PTM}).Draw(t, "link layer"),
		Overhead:  rapid.SampledFrom([]int{0, 0, 18, 44}).Draw(t, "overhead"),
	}
	f.MTU = rapid.SampledFrom([]int{0, 1492, 1500}).Draw(t, "mtu")
	w := Preferences{AQM: rapid.SampledFrom(append(f.AQMs, "")).Draw(t, "aqm")}
	if rapid.Bool().Draw(t, "fractions") {
		w.Down = RatePreference{Fraction: rapid.Float64Range(0.5, 1).Draw(t, "down fraction")}
		w.Up = RatePreference{Fraction: rapid.Float64Range(0.5, 1).Draw(t, "up fraction")}
	}
	w.Only = rapid.SampledFrom([]Direction{"", DirectionDown, DirectionUp}).Draw(t, "only")
	w.Style = rapid.SampledFrom([]Style{StyleDefault, StyleDefault, StyleArticle}).Draw(t, "style")
	if name == "pfsense" && w.Only == DirectionDown || name == "clearos" && (w.AQM == SFQ || w.Style == StyleArticle) {
		w.Only = "" // refused, see TestWholePlans
	}
	return l, f, w
}

// Every plan of Make is valid, stays below the line's rate, has a target of at
// least one packet's time, survives JSON, and is what WithRates makes of it.
func TestLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l, f, w := anyInput(t)
		p, err := Make(l, f, w)
		if err != nil {
			var field *FieldError
			if errors.As(err, &field) && strings.Contains(field.Why, "the most that") {
				t.Skip("above the platform's limit")
			}
			t.Fatalf("Make: %v", err)
		}
		if err := p.Validate(f.Language); err != nil {
			t.Fatalf("Validate: %v", err)
		}
		if p.DownBps > l.Down || p.UpBps > l.Up {
			t.Fatalf("%s/%s on a line of %s/%s", p.DownBps, p.UpBps, l.Down, l.Up)
		}
		mtu := unit.Size(1500)
		if f.MTU != 0 {
			mtu = unit.Size(f.MTU)
		}
		for _, s := range []*Shaper{p.Down, p.Up} {
			if s == nil {
				continue
			}
			if s.Target != 0 && w.Style == StyleDefault && s.Target*2 < s.Rate.Time(s.WireSize(mtu))*3 {
				t.Fatalf("target %v at %s", s.Target, s.Rate)
			}
			if s.AQM == FQCoDel && w.Style == StyleDefault && (s.Quantum < 300 || s.Quantum > 1514) {
				t.Fatalf("quantum %s", s.Quantum)
			}
		}
		if d := cmp.Diff(p, p.WithRates(p.DownBps, p.UpBps)); d != "" {
			t.Fatalf("WithRates is not Make:\n%s", d)
		}
		b, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		back, err := parse(b)
		if err != nil {
			t.Fatalf("read back: %v", err)
		}
		if d := cmp.Diff(p, back); d != "" {
			t.Fatalf("JSON round trip:\n%s", d)
		}
	})
}

// A retune to other rates gives what Make gives for these rates.
func TestRetuneIsMake(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l, f, w := anyInput(t)
		l.Down, l.Up = min(l.Down, gbit), min(l.Up, gbit)
		w.Only = ""
		p, err := Make(l, f, w)
		if err != nil {
			t.Fatal(err)
		}
		down := max(64*kbit, l.Down.Scale(rapid.Float64Range(0.5, 1).Draw(t, "down'")))
		up := max(64*kbit, l.Up.Scale(rapid.Float64Range(0.5, 1).Draw(t, "up'")))
		w.Down, w.Up = RatePreference{Rate: down}, RatePreference{Rate: up}
		want, err := Make(l, f, w)
		if err != nil {
			t.Skip("refused: ", err)
		}
		got := p.WithRates(down, up)
		ignore := func(p Plan) Plan { p.Basis, p.Reasons = nil, nil; return p }
		if d := cmp.Diff(ignore(want), ignore(got)); d != "" {
			t.Fatalf("-Make +WithRates:\n%s", d)
		}
	})
}

// A plan made by hand keeps its numbers, except a target too small for the rate.
func TestRetuneByHand(t *testing.T) {
	p := Plan{
		Schema: Schema, Platform: "linux", WAN: "eth0", UpBps: 20 * mbit, AQM: FQCoDel,
		Up: &Shaper{Device: "eth0", Rate: 20 * mbit, AQM: FQCoDel, Target: 5 * time.Millisecond, Interval: 100 * time.Millisecond, Limit: 77},
	}
	q := p.WithRates(0, mbit)
	if err := q.Validate(linux.Language()); err != nil {
		t.Fatal(err)
	}
	if q.Up.Rate != mbit || q.Up.Limit != 77 || q.Up.Target < 18*time.Millisecond || q.Up.Interval < 108*time.Millisecond {
		t.Errorf("%+v", q.Up)
	}
	if p.Up.Rate != 20*mbit {
		t.Error("the first plan was changed")
	}
}

// Whatever is read and valid, Explain prints and WithRates retunes without a panic.
func FuzzParse(f *testing.F) {
	for _, platform := range all.Names() {
		capabilities, _ := all.Assume(platform, "", "")
		p, err := Make(Line{Down: 30 * mbit, Up: 5 * mbit}, capabilities, Preferences{})
		if err != nil {
			f.Fatal(err)
		}
		b, _ := json.Marshal(p)
		f.Add(b)
	}
	f.Add([]byte(`{"schema":"unbloat.plan/1","platform":"linux","wan":"eth0","up_bps":-1,"up":{"device":"eth0","rate_bps":-1}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := parse(b)
		if err != nil {
			return
		}
		if p.Explain() == "" {
			t.Error("no explanation")
		}
		lang, err := all.Language(p.Platform)
		if err != nil {
			t.Fatal(err)
		}
		if q := p.WithRates(p.DownBps, p.UpBps); q.Validate(lang) != nil {
			t.Errorf("its own rates make it invalid: %v", q.Validate(lang))
		}
		again, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := parse(again); err != nil {
			t.Errorf("its own JSON is refused: %v", err)
		}
	})
}

func TestRatePreference(t *testing.T) {
	for s, want := range map[string]RatePreference{
		"": {}, "950 kbit/s": {Rate: 950 * kbit}, "95%": {Fraction: 0.95}, "95 %": {Fraction: 0.95}, "0.95": {Fraction: 0.95}, "1": {Fraction: 1},
	} {
		got, err := ParseRatePreference(s)
		if err != nil || got != want {
			t.Errorf("%q: %+v, %v", s, got, err)
		}
		if again, err := ParseRatePreference(got.String()); err != nil || again != got {
			t.Errorf("%q → %q → %+v, %v", s, got, again, err)
		}
	}
	for _, s := range []string{"0", "950", "-1", "101%", "NaN", "Inf", "x", "0 kbit"} {
		if got, err := ParseRatePreference(s); err == nil {
			t.Errorf("%q is %+v", s, got)
		}
	}
}

func TestIFBName(t *testing.T) {
	for wan, want := range map[string]string{"eth0": "ifb4eth0", "eleven-char": "ifb4eleven-char", "interface-of-15": "ifb-1526165b"} {
		if got := IFBName(wan); got != want {
			t.Errorf("%s: %s, want %s", wan, got, want)
		}
	}
	if IFBName("interface-of-15") == IFBName("interface-of-1x") {
		t.Error("two devices share an ifb")
	}
}

// Make refuses a single direction, and interface names, that the platform's shaper
// cannot do.
func TestWholePlans(t *testing.T) {
	for says, c := range map[string]struct {
		platform, wan string
		preferences   Preferences
	}{
		"only beside one for the upload": {"pfsense", "", Preferences{Only: DirectionDown}},
		"in one direction only":          {"clearos", "", Preferences{Only: DirectionUp, Style: StyleArticle}},
		"letters and digits alone":       {"clearos", "eth0.100", Preferences{AQM: SFQ}},
		"above 5s, the most":             {"freebsd", "", Preferences{Target: 6 * time.Second, Interval: 10 * time.Second}},
		"above 10s, the most":            {"opnsense", "", Preferences{Interval: 11 * time.Second}},
		"below 2 packets":                {"opnsense", "", Preferences{AQM: FIFO, Limit: 1}},
		"not within 0…100":               {"pfsense", "", Preferences{AQM: FIFO, Limit: 101}},
		"not within 0…32767":             {"openbsd", "", Preferences{Flows: 32768}},
		"not within 256…9000":            {"freebsd", "", Preferences{Quantum: 9001}},
		"not within 0…20480":             {"freebsd", "", Preferences{Limit: 20481}},
		"the most that openbsd-altq":     {"openbsd-altq", "", Preferences{Up: RatePreference{Rate: 5 * gbit}}},
	} {
		f, err := all.Assume(c.platform, c.wan, "")
		if err != nil {
			t.Fatal(err)
		}
		l := Line{Down: 100 * mbit, Up: 10 * mbit}
		if c.preferences.Up.Rate != 0 {
			l.Up = c.preferences.Up.Rate
		}
		var field *FieldError
		if _, err := Make(l, f, c.preferences); !errors.As(err, &field) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s, %+v: %v, want %q", c.platform, c.preferences, err, says)
		}
	}
}

// "seed", the old name of the article's style, can still be read from flags and
// plans.
func TestOldNameOfArticle(t *testing.T) {
	capabilities, err := all.Assume("linux", "", "")
	if err != nil {
		t.Fatal(err)
	}
	l := Line{Down: 30 * mbit, Up: 5 * mbit}
	want := mustMake(t, l, capabilities, Preferences{Style: StyleArticle})
	if d := cmp.Diff(want.Reasons, mustMake(t, l, capabilities, Preferences{Style: "seed"}).Reasons); d != "" {
		t.Errorf("-article +seed:\n%s", d)
	}
	b, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	old := strings.Replace(string(b), `"style":"article"`, `"style":"seed"`, 1)
	if old == string(b) {
		t.Fatalf("the plan does not name its style: %s", b)
	}
	p, err := parse([]byte(old))
	if err != nil || p.Basis.Preferences.Style != StyleArticle {
		t.Errorf("an older plan: style %q, %v", p.Basis.Preferences.Style, err)
	}
}

// A plan only states what this kernel has if the kernel was asked.
func TestAssumedKernel(t *testing.T) {
	capabilities, err := all.Assume("linux", "", "")
	if err != nil {
		t.Fatal(err)
	}
	for assumed, want := range map[bool]reason.Code{true: reason.AQMCakeAssumed, false: reason.AQMCake} {
		capabilities.Assumed = assumed
		p := mustMake(t, Line{Down: 30 * mbit, Up: 5 * mbit}, capabilities, Preferences{})
		if r, _ := p.Why("aqm"); r.Why.Code != want {
			t.Errorf("assumed %v: the reason for CAKE is %s, want %s", assumed, r.Why.Code, want)
		}
	}
}
