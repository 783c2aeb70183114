package serve

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"unbloat/internal/measure/phases"
	"unbloat/internal/measure/verdict"
	"unbloat/reason"
	"unbloat/unit"
)

// cases returns measurements of every kind that the rules distinguish.
func cases() map[string]*Submission {
	good := fakeLine{rttUs: 20_000, jitterUs: 900, downUs: 3_000, upUs: 12_000, downBps: 50e6, upBps: 10e6}
	lines := map[string]fakeLine{}
	with := func(name string, change func(*fakeLine)) {
		l := good
		change(&l)
		lines[name] = l
	}
	with("good", func(*fakeLine) {})
	with("both", func(l *fakeLine) { l.both = true })
	with("bloated", func(l *fakeLine) { l.downUs, l.upUs, l.both = 155_000, 512_345, true })
	with("fast", func(l *fakeLine) { l.rttUs, l.jitterUs, l.downUs, l.upUs, l.downBps = 700, 60, 10, 20, 940e6 })
	with("late", func(l *fakeLine) { l.lateUs = 7_345 })
	with("late and bloated", func(l *fakeLine) { l.lateUs, l.downUs, l.upUs = 9_345, 442_000, 789_000 })
	with("very late and bloated", func(l *fakeLine) { l.lateUs, l.downUs, l.upUs = 43_000, 442_000, 789_000 })
	with("a little late", func(l *fakeLine) { l.lateUs = 3_210; l.skipEach = 2 })
	with("skipping", func(l *fakeLine) { l.skipEach = 30 })
	with("rising", func(l *fakeLine) { l.rising = true })
	with("rising in both", func(l *fakeLine) { l.rising, l.both = true, true })
	with("lossy", func(l *fakeLine) { l.unanswered = 25 })
	with("silent", func(l *fakeLine) { l.unanswered = 10_000 })
	with("broken", func(l *fakeLine) { l.broken = 2 })
	with("nothing arrived", func(l *fakeLine) { l.upBps = 0 })
	with("unsteady", func(l *fakeLine) { l.jitterUs = 200_000 })
	out := map[string]*Submission{}
	for name, l := range lines {
		out[name] = l.submission(rand.New(rand.NewPCG(7, uint64(len(name)))))
	}
	edit := func(name string, change func(*Submission)) {
		s := good.submission(rand.New(rand.NewPCG(7, 9)))
		change(s)
		out[name] = s
	}
	edit("hidden", func(s *Submission) { s.HiddenUs = 1_550_000 })
	edit("coarse clock", func(s *Submission) { s.TickUs = 16_667 })
	edit("one connection", func(s *Submission) { s.Protocol = "h2" })
	edit("datagrams", func(s *Submission) { s.Transport = OverWebTransport })
	edit("idle only", func(s *Submission) { s.Phases = s.Phases[:1] })
	edit("upload only", func(s *Submission) { s.Phases = slices.Delete(s.Phases, 1, 2) })
	return out
}

// A result has the same meaning and the same figures in every language. The
// result itself has only English words.
func TestWordsInEveryLanguage(t *testing.T) {
	for name, s := range cases() {
		got := Judge(s, verdict.Meta{Label: "browser"})
		english := wordsOf(got, reason.English())
		if english.Verdict != got.Verdict || !slices.Equal(english.Notes, got.Notes) || !slices.Equal(english.Reasons, got.InvalidReasons) {
			t.Errorf("%s: %+v are not the words of the result", name, english)
		}
		german := wordsOf(got, reason.German())
		if german.Verdict == english.Verdict || len(german.Notes) != len(english.Notes) || len(german.Reasons) != len(english.Reasons) {
			t.Errorf("%s: German %+v, English %+v", name, german, english)
		}
		for i, note := range german.Notes {
			if note == english.Notes[i] {
				t.Errorf("%s: a note in English: %s", name, note)
			}
		}
		for i, why := range german.Reasons {
			if why == english.Reasons[i] || strings.Contains(why, "--") {
				t.Errorf("%s: German reason %q", name, why)
			}
		}
		if g := german.Grades; got.Valid && (g["download"] != got.GradeDown || g["upload"] != got.GradeUp) || !got.Valid && len(g) > 0 {
			t.Errorf("%s: grades %v of %s and %s", name, g, got.GradeDown, got.GradeUp)
		}
	}
}

func TestJudge(t *testing.T) {
	for name, want := range map[string]struct {
		grade, reason string
	}{
		"good":                  {"A", ""},
		"bloated":               {"F", ""},
		"fast":                  {"A+", ""},
		"a little late":         {"A", ""},
		"late":                  {"", "probes left late (p95 7.3 ms"},
		"late and bloated":      {"", "probes left late (p95 9.3 ms, at most 9 ms"},
		"very late and bloated": {"", "probes left late (p95 43.0 ms"},
		"skipping":              {"", "probes left late"},
		"rising":                {"", "still rising"},
		"silent":                {"", "probes were answered"},
		"broken":                {"", "2 flows broke off"},
		"nothing arrived":       {"", "nothing arrived"},
		"unsteady":              {"", "unsteady"},
		"hidden":                {"", "not in front for 1.6 s"},
		"coarse clock":          {"", "ticks every 16.7 ms"},
		"idle only":             {"", ""},
		"upload only":           {"A", ""},
	} {
		got := Judge(cases()[name], verdict.Meta{})
		if got.Grade != want.grade || got.Valid != (want.reason == "") || !strings.Contains(strings.Join(got.InvalidReasons, "; "), want.reason) {
			t.Errorf("%s: grade %q, valid %v, %q", name, got.Grade, got.Valid, got.InvalidReasons)
		}
		if strings.Contains(got.Verdict+strings.Join(got.InvalidReasons, ""), "--") {
			t.Errorf("%s: tells a visitor of the page to use a flag: %s", name, got.Verdict)
		}
	}
}

// Probes that left late are judged against what is measured: a little is a remark, and
// of a line that is bad whatever they did, that is said.
func TestLateAndBad(t *testing.T) {
	s := cases()["late and bloated"]
	for i := range s.Phases { // at 8 ms, 2 % of the lesser rise
		for k := range s.Phases[i].Probes.SentUs {
			s.Phases[i].Probes.SentUs[k] -= 1_345
		}
	}
	if got := Judge(s, verdict.Meta{}); got.Grade != verdict.GradeF || !strings.Contains(strings.Join(got.Notes, "\n"), "may be wrong by as much") {
		t.Errorf("8 ms late: grade %q, %q, %q", got.Grade, got.InvalidReasons, got.Notes)
	}
	got := Judge(cases()["very late and bloated"], verdict.Meta{})
	if w := wordsOf(got, reason.English()); !strings.HasPrefix(w.Certain, "F for certain") || got.Valid {
		t.Errorf("43 ms late: valid %v, certain %q", got.Valid, w.Certain)
	}
	if w := wordsOf(Judge(cases()["late"], verdict.Meta{}), reason.English()); w.Certain != "" {
		t.Errorf("of a line that is not bad: %q", w.Certain)
	}
}

// Over TCP a lost packet holds the probes behind it. Where the grade hinges on that there is
// none, and the figures are what the line adds at least; as datagrams it is none of it.
func TestHeldByTCP(t *testing.T) {
	line := fakeLine{rttUs: 20_000, jitterUs: 900, downUs: 30_000, upUs: 80_000, downBps: 50e6, upBps: 10e6}
	submitted := func(each int64) *Submission {
		s := line.submission(rand.New(rand.NewPCG(7, 1)))
		c := &s.Phases[2].Probes // the upload
		for i := range c.SentUs {
			if lost := int64(i) - int64(i)%each; each > 0 && int64(i)-lost < 20 { // 20 wait until the last of them comes
				c.ReceivedUs[i] = max(c.ReceivedUs[i], c.SentUs[lost]+500_000+int64(i))
			}
		}
		return s
	}
	if got := Judge(submitted(40), verdict.Meta{}); got.Valid || !strings.Contains(strings.Join(got.InvalidReasons, ""), "upload: probes over TCP waited") ||
		got.Upload.Latency.IncreaseMs.P95 > 150 || got.Upload.Latency.IncreaseMs.P95 < 75 {
		t.Errorf("a loss each 0.8 s: valid %v, %q, %.0f ms", got.Valid, got.InvalidReasons, got.Upload.Latency.IncreaseMs.P95)
	}
	s := submitted(40)
	if s.Transport = OverWebTransport; !Judge(s, verdict.Meta{}).Valid {
		t.Error("datagrams do not wait for each other")
	}
	s = submitted(10_000) // one loss, at the beginning, which is not counted
	if got := Judge(s, verdict.Meta{}); got.Grade != verdict.GradeC {
		t.Errorf("one loss: grade %q, %q", got.Grade, got.InvalidReasons)
	}
}

// A line that adds a given latency gets the grade of that latency, as with
// `unbloat test`, at any idle round trip time.
func TestGradeIsOfTheIncrease(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		add := rapid.Int64Range(0, 600_000).Draw(t, "added µs")
		l := fakeLine{rttUs: rapid.Int64Range(100, 200_000).Draw(t, "rtt µs") * 2, downUs: add, upUs: add / 2, downBps: 9e6, upBps: 9e6,
			seconds: rapid.Int64Range(4, 20).Draw(t, "seconds")}
		got := Judge(l.submission(rand.New(rand.NewPCG(1, 2))), verdict.Meta{})
		down := verdict.Grade(time.Duration(add) * time.Microsecond)
		if !got.Valid || got.GradeDown != down || got.Grade != down {
			t.Fatalf("added %d µs: grade %s (%s), want %s; %q", add, got.Grade, got.GradeDown, down, got.InvalidReasons)
		}
		if x := got.Download.Latency.DownMs.P50; x < float64(add)/1e3-0.001 || x > float64(add)/1e3+0.001 {
			t.Fatalf("one way down: %v ms of %d µs", x, add)
		}
	})
}

// Edges are cut as `unbloat test` cuts them.
func TestEdges(t *testing.T) {
	for _, length := range []time.Duration{4 * time.Second, 8 * time.Second, phases.DefaultLoad, 20 * time.Second} {
		p := RawPhase{Name: verdict.PhaseBoth, StartUs: 1_000_000, EndUs: 1_000_000 + length.Microseconds()}
		from, to := p.counted()
		head, tail := min(length/4, 2500*time.Millisecond), min(length/40, 250*time.Millisecond)
		if from != 1_000_000+head.Microseconds() || to != 1_000_000+(length-tail).Microseconds() {
			t.Errorf("%v: counts from %d to %d", length, from, to)
		}
	}
}

// The page's submissions that must be refused: each is a good one with a single
// error.
func TestDecodeRefuses(t *testing.T) {
	text, err := json.Marshal(cases()["both"])
	if err != nil {
		t.Fatal(err)
	}
	if _, err := DecodeSubmission(bytes.NewReader(text), unit.MB); err != nil {
		t.Fatalf("a good one: %v", err)
	}
	if _, err := DecodeSubmission(bytes.NewReader(text), unit.Size(len(text)-1)); err == nil {
		t.Error("took one that is too large")
	}
	if _, err := DecodeSubmission(strings.NewReader(string(text)+"{}"), unit.MB); err == nil {
		t.Error("took one with something behind it")
	}
	if _, err := DecodeSubmission(strings.NewReader(strings.Replace(string(text), `"tick_us"`, `"x":1,"tick_us"`, 1)), unit.MB); err == nil {
		t.Error("took an unknown field")
	}
	for name, spoil := range map[string]func(s *Submission){
		"schema":               func(s *Submission) { s.Schema = "unbloat.raw/2" },
		"interval":             func(s *Submission) { s.IntervalUs = 0 },
		"negative hidden":      func(s *Submission) { s.HiddenUs = -1 },
		"protocol":             func(s *Submission) { s.Protocol = "<b>\n" },
		"no phase":             func(s *Submission) { s.Phases = nil },
		"no idle":              func(s *Submission) { s.Phases = s.Phases[1:] },
		"a phase twice":        func(s *Submission) { s.Phases[2].Name = "download" },
		"an unknown phase":     func(s *Submission) { s.Phases[2].Name = "loaded" },
		"phases that overlap":  func(s *Submission) { s.Phases[1].StartUs = s.Phases[0].EndUs - 1 },
		"a phase too short":    func(s *Submission) { s.Phases[0].EndUs = s.Phases[0].StartUs + 10 },
		"a phase too long":     func(s *Submission) { s.Phases[3].EndUs = 1 << 60 },
		"flows when idle":      func(s *Submission) { s.Phases[0].Flows.Down = 1 },
		"many flows":           func(s *Submission) { s.Phases[1].Flows.Down = 1 << 30 },
		"no flows":             func(s *Submission) { s.Phases[1].Flows.Down = 0 },
		"broken":               func(s *Submission) { s.Phases[1].Broken = 5 },
		"tiny bins":            func(s *Submission) { s.Phases[1].BinUs = 0 },
		"negative bytes":       func(s *Submission) { s.Phases[1].DownByte[3] = -1 },
		"bytes of elsewhere":   func(s *Submission) { s.Phases[1].UpByte = []int64{1} },
		"uneven columns":       func(s *Submission) { s.Phases[0].Probes.HeldUs = s.Phases[0].Probes.HeldUs[1:] },
		"sent before due":      func(s *Submission) { s.Phases[0].Probes.DueUs[5]++ },
		"out of order":         func(s *Submission) { s.Phases[0].Probes.SentUs[5] = s.Phases[0].Probes.SentUs[4] - 1 },
		"received before sent": func(s *Submission) { s.Phases[0].Probes.ReceivedUs[5] = s.Phases[0].Probes.SentUs[5] - 1 },
		"held too long":        func(s *Submission) { s.Phases[0].Probes.HeldUs[5] = 1 << 40 },
		"server's past":        func(s *Submission) { s.Phases[0].Probes.ServerUs[5] = -1 },
		"a skip of none":       func(s *Submission) { s.Phases[0].Skips = []Skip{{AtUs: 1, Probes: 0}} },
		"skips without end":    func(s *Submission) { s.Phases[0].Skips = []Skip{{AtUs: 1, Probes: 1 << 30}} },
	} {
		s := cases()["both"]
		spoil(s)
		text, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := DecodeSubmission(bytes.NewReader(text), unit.MB); err == nil {
			t.Errorf("%s: was not refused", name)
		}
	}
}

// Whatever is submitted, nothing panics, and what is accepted makes a result
// that can be written, and read back, within its laws.
func FuzzDecode(f *testing.F) {
	for _, name := range []string{"good", "idle only", "lossy"} {
		s := cases()[name]
		for i := range s.Phases { // a small one, so that mutations reach the important parts
			p := &s.Phases[i]
			p.Probes = Probes{p.Probes.DueUs[:3], p.Probes.SentUs[:3], p.Probes.ReceivedUs[:3], p.Probes.ServerUs[:3], p.Probes.HeldUs[:3]}
			p.DownByte, p.UpByte = p.DownByte[:min(2, len(p.DownByte))], p.UpByte[:min(2, len(p.UpByte))]
		}
		text, err := json.Marshal(s)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Add([]byte(`{"schema":"unbloat.raw/1","interval_us":20000,"phases":[{"name":"idle","end_us":3600000000}]}`))
	f.Add([]byte(`[1e999]`))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := DecodeSubmission(bytes.NewReader(text), 64*unit.KB)
		if err != nil {
			return
		}
		test := Judge(s, verdict.Meta{})
		if _, err := json.Marshal(test); err != nil {
			t.Fatal(err)
		}
		if test.Valid != (len(test.InvalidReasons) == 0) || !test.Valid && test.Grade != "" || test.Verdict == "" {
			t.Fatalf("valid %v, grade %q, %q: %q", test.Valid, test.Grade, test.InvalidReasons, test.Verdict)
		}
		for _, p := range test.Phases() {
			if l := p.Latency; l.Received > l.Sent || l.Loss < 0 || l.Loss > 1 || p.GoodputDownBps < 0 || p.GoodputUpBps < 0 {
				t.Fatalf("%s: %+v", p.Name, p.Phase)
			}
		}
	})
}
