package report

import (
	"bytes"
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"unbloat/internal/measure/verdict"
	"unbloat/reason"
)

// wild draws numbers as in broken inputs.
func wild(t *rapid.T, name string) float64 {
	return rapid.OneOf(rapid.Float64(), rapid.Float64Range(0, 5000),
		rapid.SampledFrom([]float64{0, -1, 1e-300, 1e300, math.NaN(), math.Inf(1), math.Inf(-1)})).Draw(t, name)
}

func wildPhase(t *rapid.T) *verdict.Phase {
	if rapid.IntRange(0, 5).Draw(t, "absent") == 0 {
		return nil
	}
	q := func(n string) verdict.Quantiles {
		return verdict.Quantiles{Min: wild(t, n), Mean: wild(t, n), P50: wild(t, n), P90: wild(t, n), P95: wild(t, n), P99: wild(t, n), Max: wild(t, n)}
	}
	n := rapid.IntRange(0, 40).Draw(t, "n")
	p := &verdict.Phase{Seconds: wild(t, "s"), GoodputDownBps: wild(t, "down"), GoodputUpBps: wild(t, "up"), CPU: wild(t, "cpu"), Saturated: rapid.Bool().Draw(t, "sat")}
	p.Latency = verdict.Latency{Sent: n, Received: rapid.IntRange(0, n).Draw(t, "received"), Loss: wild(t, "loss"), IPDVMs: wild(t, "ipdv"), RTTMs: q("rtt"), IncreaseMs: q("inc"), UpMs: q("up"), DownMs: q("dn")}
	if rapid.Bool().Draw(t, "series") {
		s := &verdict.Timeline{StartS: wild(t, "start"), EndS: wild(t, "end"), BinS: wild(t, "bin")}
		for range n {
			s.TS = append(s.TS, wild(t, "t"))
			if v := wild(t, "v"); rapid.Bool().Draw(t, "lost") {
				s.RTTMs = append(s.RTTMs, nil)
			} else {
				s.RTTMs = append(s.RTTMs, &v)
			}
		}
		for range rapid.IntRange(0, 20).Draw(t, "bins") {
			s.DownMbps, s.UpMbps = append(s.DownMbps, wild(t, "d")), append(s.UpMbps, wild(t, "u"))
		}
		p.Series = s
	}
	return p
}

func wildTest(t *rapid.T) *verdict.Test {
	return &verdict.Test{Label: rapid.String().Draw(t, "label"), Server: rapid.String().Draw(t, "server"), Time: rapid.String().Draw(t, "time"),
		Verdict: rapid.String().Draw(t, "verdict"), Grade: rapid.String().Draw(t, "grade"), Valid: rapid.Bool().Draw(t, "valid"),
		Idle: wildPhase(t), Download: wildPhase(t), Upload: wildPhase(t), Both: wildPhase(t), Loaded: wildPhase(t)}
}

// TestAnythingIsReported: no input makes a writer panic, and charts stay
// well-formed.
func TestAnythingIsReported(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := Page{Title: rapid.String().Draw(t, "title"), After: wildTest(t)}
		if rapid.Bool().Draw(t, "pair") {
			p.Before = wildTest(t)
		}
		if rapid.Bool().Draw(t, "more") {
			p.Others = []*verdict.Test{nil, wildTest(t)}
		}
		var b bytes.Buffer
		if err := Write(FormatHTML, &b, p); err != nil {
			t.Fatal(err)
		}
		page := b.String()
		if strings.Contains(page, "NaN") && !strings.Contains(p.Title, "NaN") {
			t.Fatalf("NaN is shown: …%s…", page[max(0, strings.Index(page, "NaN")-80):][:160])
		}
		for _, s := range svgs(page) {
			wellFormed(t, s)
		}
		for _, f := range []Format{FormatSVG, FormatCSV, FormatJSON} {
			b.Reset()
			if err := Write(f, &b, p); err != nil && f != FormatJSON { // JSON cannot represent NaN
				t.Fatal(err)
			}
			if f == FormatSVG {
				wellFormed(t, b.String())
			}
		}
		b.Reset()
		if err := TableOf(&b, reason.English(), p.Before, p.After, 0); err != nil {
			t.Fatal(err)
		}
		_, _ = flentOf(p.After)
	})
}

// TestFewSamples: the smallest inputs are drawn in every format.
func TestFewSamples(t *testing.T) {
	v := 12.5
	one := &verdict.Phase{Latency: verdict.Latency{Sent: 1, Received: 1, RTTMs: verdict.Quantiles{Min: v, Mean: v, P50: v, P90: v, P95: v, P99: v, Max: v}},
		Series: &verdict.Timeline{StartS: 0, EndS: 1, TS: []float64{0.5}, RTTMs: []*float64{&v}, BinS: 1, DownMbps: []float64{0}, UpMbps: []float64{0}}}
	lost := &verdict.Phase{Latency: verdict.Latency{Sent: 2, Loss: 1},
		Series: &verdict.Timeline{StartS: 1, EndS: 2, TS: []float64{1, 1.5}, RTTMs: []*float64{nil, nil}}}
	for name, test := range map[string]*verdict.Test{
		"empty": {}, "one sample": {Idle: one}, "all lost": {Upload: lost}, "one and lost": {Idle: one, Upload: lost, Valid: true},
		"no series": {Valid: true, Idle: &verdict.Phase{Latency: one.Latency}},
	} {
		for _, f := range []Format{FormatHTML, FormatSVG, FormatPNG, FormatCSV, FormatJSON} {
			for _, p := range []Page{{After: test}, {Before: test, After: test}} {
				var b bytes.Buffer
				if err := Write(f, &b, p); err != nil || b.Len() == 0 {
					t.Errorf("%s, %s: %v", name, f, err)
				}
			}
		}
	}
}

// TestScales: a scale covers its range and is monotonic.
func TestScales(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lo, hi := rapid.Float64Range(0.02, 5000).Draw(t, "lo"), rapid.Float64Range(0.02, 5000).Draw(t, "hi")
		if lo > hi {
			lo, hi = hi, lo
		}
		s := logScale(lo, hi, 0, 300)
		if s.lo > lo || s.hi < hi || s.at(lo) > s.at(hi) {
			t.Fatalf("%g…%g: scale %+v", lo, hi, s)
		}
		labels, last := 0, math.Inf(-1)
		for _, k := range s.ticks(30) {
			if k.at < -0.01 || k.at > 300.01 {
				t.Fatalf("%g…%g: tick %+v outside", lo, hi, k)
			}
			if k.label != "" {
				if k.at-last < 30 {
					t.Fatalf("%g…%g: labels overlap at %s", lo, hi, k.label)
				}
				labels, last = labels+1, k.at
			}
		}
		if labels < 2 {
			t.Fatalf("%g…%g: %d labels", lo, hi, labels)
		}
		checkLinear(t, hi)
	})
	checkLinear(t, 60.03125) // a little over three steps of 20
}

// checkLinear: a linear scale covers its range, has three ticks at least, and ends on one.
func checkLinear(t interface{ Fatalf(string, ...any) }, hi float64) {
	s := linearScale(hi, 0, 300)
	n := s.ticks(0)
	if s.hi < hi || len(n) > 12 || len(n) < 3 || n[len(n)-1].at != s.b {
		t.Fatalf("0…%g: scale %+v has %d ticks", hi, s, len(n))
	}
}

// FuzzParse: no file makes the reader panic, and what it accepts can be drawn.
func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"schema":"unbloat.test/1","valid":true,"idle":{"latency":{"sent":1,"received":1,"rtt_ms":{"p50":1}},"series":{"end_s":1,"t_s":[0],"rtt_ms":[1]}}}`))
	f.Add([]byte(`{"schema":"unbloat.lab/1","cases":[{"name":"before","test":{"loaded":{}}}]}`))
	f.Add([]byte(`{"schema":"unbloat.report/1","tests":[null]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		tests, err := ParseResults(data)
		if err != nil {
			return
		}
		var b bytes.Buffer
		if err := Write(FormatHTML, &b, Page{Before: tests[0], After: tests[len(tests)-1]}); err != nil {
			t.Fatal(err)
		}
		for _, s := range svgs(b.String()) {
			wellFormed(t, s)
		}
	})
}

func TestParseSaysWhatIsWrong(t *testing.T) {
	for in, want := range map[string]string{
		``:                            "is empty",
		"{\n\n\"schema\": }":          "not JSON: line 3",
		`{"a":1}`:                     `no "schema"`,
		`{"schema":"unbloat.plan/1"}`: `schema "unbloat.plan/1"`,
		`{"schema":"unbloat.test/1"}`: "has no phase",
		`{"schema":"unbloat.lab/1","cases":[{"name":"x"}]}`:                      "holds no test",
		`{"schema":"unbloat.lab/1"}`:                                             "cases: is empty",
		`{"schema":"unbloat.test/1","idle":{"latency":{"sent":"x"}}}`:            "idle.latency.sent",
		`{"schema":"unbloat.test/1","idle":{"latency":{"sent":1,"received":2}}}`: "idle: 2 of 1 probes",
		`{"schema":"unbloat.test/1","idle":{"series":{"t_s":[1],"rtt_ms":[]}}}`:  "1 times but 0 round trips",
		`{"schema":"unbloat.test/1","idle":{"series":{"start_s":3,"end_s":1}}}`:  "from 3 s to 1 s",
		`{"schema":"unbloat.report/1","tests":[null]}`:                           "test 1: is null",
	} {
		if _, err := ParseResults([]byte(in)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want …%s…", in, err, want)
		}
	}
}
