package terminal

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"unbloat/internal/cure/tune"
	"unbloat/internal/keep/daemon"
	"unbloat/internal/keep/follow"
	"unbloat/internal/keep/steer"
	"unbloat/internal/keep/supervise"
	"unbloat/internal/measure/path"
	"unbloat/internal/measure/phases"
	"unbloat/internal/measure/verdict"
	"unbloat/reason"
	"unbloat/unit"
)

var update = flag.Bool("update", false, "write the golden screens anew")

// play feeds a phase to a line, five events a second: probes every 20 ms, whose
// round trip time grows to idle + queue within a second, at the given rates.
func play(l *Line, now time.Duration, name string, d, queue time.Duration, down, up unit.Rate) time.Duration {
	const every, idle = 200 * time.Millisecond, 20 * time.Millisecond
	e := phases.Event{Phase: name, Duration: unit.Seconds(max(d, 4*time.Second)), Head: unit.Seconds(d / 4)}
	if name == verdict.PhaseUpload {
		e.Duration, e.Head = unit.Seconds(10*time.Second), unit.Seconds(2500*time.Millisecond)
	}
	if down > 0 {
		e.FlowsDown = 4
	}
	if up > 0 {
		e.FlowsUp = 4
	}
	rng := rand.New(rand.NewPCG(uint64(len(name)), 7))
	for at := every; at <= d; at += every {
		e.Elapsed, e.Answers, e.Down, e.Up = unit.Seconds(at), nil, down, up
		for sent := at - every; sent < at; sent += 20 * time.Millisecond {
			full := min(1, sent.Seconds())
			e.RTT = unit.Milliseconds(idle + time.Duration(full*(0.9+0.1*rng.Float64())*float64(queue)) + time.Duration(rng.IntN(400))*time.Microsecond)
			e.Answers = append(e.Answers, phases.Answer{Sent: unit.Seconds(sent), RTT: e.RTT})
		}
		l.Observe(now+at, e)
	}
	return now + d
}

// testUnder returns a test in its third phase.
func testUnder() (*Line, time.Duration) {
	l := NewTest("test.example.net:7676", 5*time.Second, 10*time.Second, 1)
	now := play(l, 300*time.Millisecond, verdict.PhaseIdle, 5*time.Second, 0, 0, 0)
	now = play(l, now, verdict.PhaseDownload, 10*time.Second, 400*time.Millisecond, 28600*unit.KbitPerSecond, 0)
	return l, play(l, now, verdict.PhaseUpload, 4*time.Second, 950*time.Millisecond, 0, 4730*unit.KbitPerSecond)
}

// tuneUnder returns a tuning in its third trial.
func tuneUnder() (*Line, time.Duration) {
	const mb = unit.MbitPerSecond
	l := NewTune("test.example.net", tune.MostTime(4, 4))
	s := tune.Stage{Doing: tune.AsItIs}
	l.Tuning(s)
	now := play(l, 0, verdict.PhaseIdle, 4*time.Second, 0, 0, 0)
	now = play(l, now, verdict.PhaseDownload, 8*time.Second, 400*time.Millisecond, 28*mb, 0)
	now = play(l, now, verdict.PhaseUpload, 8*time.Second, 950*time.Millisecond, 0, 4730*unit.KbitPerSecond)
	now = play(l, now, verdict.PhaseBoth, 8*time.Second, 950*time.Millisecond, 27*mb, 4700*unit.KbitPerSecond)
	line := tune.Rates{Down: 30 * mb, Up: 5 * mb}
	search := tune.NewSearch(line, 5*time.Millisecond, 5)
	s.Goal, s.AsFound, s.LineDown, s.LineUp, s.Doing = unit.Milliseconds(5*time.Millisecond), 958, line.Down, line.Up, tune.Trying
	for i, over := range []time.Duration{21 * time.Millisecond, 3 * time.Millisecond, 6 * time.Millisecond} {
		s.Rates, _ = search.Next()
		down, up := search.Bounds()
		s.DownFrom, s.DownTo, s.UpFrom, s.UpTo = down.From, down.To, up.From, up.To
		l.Tuning(s)
		now = play(l, now, verdict.PhaseBoth, 7*time.Second/time.Duration(1+i/2), over, s.Down, s.Up)
		if i == 2 {
			break
		}
		search.Observe(tune.Observation{Increase: over, Down: over, Up: over / 4})
		s.Trials = append(s.Trials, tune.Trial{Rates: s.Rates, IncreaseMs: unit.Ms(over), Held: over <= time.Duration(s.Goal)})
	}
	return l, now
}

// pathUnder returns a trace under load, with a silent hop and a router that
// answers slowly.
func pathUnder() (*Path, time.Duration) {
	figures := func(n int, best, p50, p95 float64) *path.Figures {
		return &path.Figures{Sent: n, Received: n, LastMs: p50, AvgMs: p50, BestMs: best, WorstMs: p95, StDevMs: (p95 - best) / 4, RTTMs: verdict.Quantiles{Min: best, P50: p50, P95: p95, Max: p95}}
	}
	r := &path.Result{Host: "test.example.net", Address: "203.0.113.9", Load: &path.Load{Direction: "up"}, Reached: true, HomeHops: 1, Hops: []path.HopFigures{
		{Hop: 1, Address: "192.168.1.1", Name: "router.lan", Idle: figures(10, 0.4, 0.6, 1.2), Loaded: figures(12, 0.4, 0.7, 1.9), Increase: &path.Increase{P50: 0.1, P95: 1.3}},
		{Hop: 2, Address: "198.51.100.1", Idle: figures(10, 9.8, 10.1, 11), Loaded: figures(12, 410, 940, 972), Increase: &path.Increase{P50: 930, P95: 962}},
		{Hop: 3, Idle: &path.Figures{Sent: 10, Loss: 1}, Loaded: &path.Figures{Sent: 12, Loss: 1}},
		{Hop: 4, Address: "203.0.113.9", Destination: true, Idle: figures(10, 19.8, 20.1, 21), Loaded: figures(12, 420, 951, 983), Increase: &path.Increase{P50: 931, P95: 963}},
	}, Begins: &path.Beginning{Hop: 2, After: 1, Place: path.Uplink, IncreaseMs: 931}}
	v := NewPath("test.example.net")
	now := time.Duration(0)
	for i := 1; i <= 12; i++ {
		now += time.Second
		last := r.Hops[3].Loaded
		last.Received, last.LastMs = i, 20.1+931*min(1, float64(i)/4)
		v.Observe(now, path.WalkProgress{Phase: "upload", Elapsed: time.Duration(i) * time.Second, Duration: 20 * time.Second, Result: r})
	}
	return v, now
}

// wansUnder returns the view of lines that are kept, the first of which is followed.
func wansUnder(l *reason.Language, n int) (*WANs, time.Duration) {
	v := NewWANs(l)
	now := time.Duration(0)
	ms := func(f float64) unit.Milliseconds { return unit.Milliseconds(unit.FromMs(f)) }
	why := func(c follow.Cause, d follow.Direction, from, to, capacity, ms float64) follow.Why {
		return follow.Why{Cause: c, Direction: d, From: unit.Rate(from), To: unit.Rate(to), Capacity: unit.Rate(capacity), Delay: unit.FromMs(ms)}
	}
	room, drained := why(follow.Room, follow.Up, 8e6, 9.1e6, 9.5e6, 1), why(follow.Drained, follow.Down, 14.2e6, 14.6e6, 15e6, 4)
	wans := []daemon.WANStatus{
		{WAN: "wwan0", State: supervise.InPlace},
		{WAN: "eth1", Router: "ssh://root@192.0.2.1", State: supervise.Failing, Why: "run tc on root@192.0.2.1: exit status 2: no such device", Down: 47 * unit.MbitPerSecond},
	}[:n]
	at := func(second int) string {
		return time.Date(2026, 11, 23, 10, 30, second, 0, time.Local).Format(time.RFC3339)
	}
	made := []daemon.Decision{
		{Time: at(58), WAN: "wwan0", Direction: "up", Why: room.Reason()},
		{Time: at(67), WAN: "wwan0", Direction: "down", Why: why(follow.Queue, follow.Down, 46e6, 14.2e6, 15e6, 78).Reason()},
		{Time: at(69), WAN: "wwan0", Direction: "down", Why: drained.Reason()},
	}
	for i := range 30 {
		now += time.Second
		line := &steer.View{
			Down: follow.Belief{Rate: 46 * unit.MbitPerSecond, Capacity: 48200 * unit.KbitPerSecond, Carried: 44 * unit.MbitPerSecond, Delay: ms(3.1), Floor: ms(0.4), Why: drained},
			Up:   follow.Belief{Rate: 9100 * unit.KbitPerSecond, Capacity: 9500 * unit.KbitPerSecond, Carried: 740 * unit.KbitPerSecond, Why: room},
		}
		if i > 20 {
			line.Down.Rate, line.Down.Capacity = 14600*unit.KbitPerSecond, 15*unit.MbitPerSecond
		}
		wans[0].Line = line
		v.Observe(now, wans, made, false)
	}
	return v, now
}

// A drawer is a view.
type drawer interface {
	Draw(now time.Duration, o Options) string
}

func views() map[string]func() (drawer, time.Duration) {
	return map[string]func() (drawer, time.Duration){
		"test":       func() (drawer, time.Duration) { return testUnder() },
		"tune":       func() (drawer, time.Duration) { return tuneUnder() },
		"path":       func() (drawer, time.Duration) { return pathUnder() },
		"connecting": func() (drawer, time.Duration) { return NewTest("h", time.Second, time.Second, 1), 0 },
		"wans":       func() (drawer, time.Duration) { return wansUnder(reason.English(), 1) },
		"wans-de":    func() (drawer, time.Duration) { return wansUnder(reason.German(), 2) },
		"ending": func() (drawer, time.Duration) {
			l, now := tuneUnder()
			l.End("interrupted: putting everything back as it was")
			return l, now
		},
	}
}

// The screens match the golden files.
func TestGolden(t *testing.T) {
	for name, view := range views() {
		for _, o := range []Options{{80, 24, false, false}, {40, 20, false, false}, {200, 50, false, false}, {80, 24, true, false}, {80, 24, false, true}} {
			file := fmt.Sprintf("%s-%dx%d", name, o.Width, o.Height)
			if o.Colour {
				file += "-colour"
			}
			if o.ASCII {
				file += "-ascii"
			}
			v, now := view()
			got := v.Draw(now, o) + "\n"
			file = filepath.Join("testdata", file+".txt")
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil || string(want) != got {
				t.Errorf("%s (%v): got\n%s", file, err, got)
			}
		}
	}
}

var sgr = regexp.MustCompile("\x1b\\[[0-9;]*m")

// At any size: nothing is wider or higher than the screen, colour is never the
// only sign, and ASCII mode prints only ASCII.
func TestLaws(t *testing.T) {
	seed := rand.Uint64()
	t.Log("seed", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	for name, view := range views() {
		v, now := view()
		for range 150 {
			o := Options{Width: rng.IntN(230), Height: rng.IntN(70), Colour: true}
			coloured := v.Draw(now, o)
			text := sgr.ReplaceAllString(coloured, "")
			lines := strings.Split(text, "\n")
			if len(lines) > max(o.Height, 1) {
				t.Fatalf("%s at %+v: %d lines", name, o, len(lines))
			}
			for _, l := range lines {
				if width(l) > max(o.Width, 1) || strings.ContainsFunc(l, unicode.IsControl) {
					t.Fatalf("%s at %+v: %q", name, o, l)
				}
			}
			o.Colour = false
			uncoloured := v.Draw(now, o)
			if sgr.ReplaceAllString(uncoloured, "") != text {
				t.Fatalf("%s at %+v: without colour it says something else", name, o)
			}
			for _, code := range sgr.FindAllString(uncoloured, -1) {
				if code != "\x1b[0m" && code != "\x1b[0;1m" {
					t.Fatalf("%s at %+v: %q without colour", name, o, code)
				}
			}
			o.ASCII = true
			if s := sgr.ReplaceAllString(v.Draw(now, o), ""); strings.ContainsFunc(s, func(r rune) bool { return r > unicode.MaxASCII || r == '?' }) && name != "path" {
				t.Fatalf("%s at %+v: not ASCII, or without a sign of its own:\n%s", name, o, s)
			}
		}
	}
}

// The figures of the table follow from the answers: slow start does not count,
// and increases are over the idle median.
func TestFigures(t *testing.T) {
	l, now := testUnder()
	q := l.newest(verdict.PhaseUpload).quantiles()
	var counted []time.Duration
	for _, p := range l.phases[2:] {
		counted = append(counted, p.answers...)
	}
	if want := verdict.Summarise(counted); len(counted) != 75 || q != want || q.Min < 800 { // for 1.5 s
		t.Errorf("%d answers, %+v, want %+v", len(counted), q, want)
	}
	if over, ok := l.over(q.P95); !ok || over < 930 || over > 952 {
		t.Errorf("over idle: %v", over)
	}
	if down := l.newest(verdict.PhaseDownload).down(); down != 28600*unit.KbitPerSecond {
		t.Errorf("download %v", down)
	}
	if s := sgr.ReplaceAllString(l.Draw(now, Options{Width: 80, Height: 24}), ""); !strings.Contains(s, "▶ upload 4.0 of 10 s") || !strings.Contains(s, "about 16 s left") {
		t.Error(s)
	}
}

// Escape sequences in texts from outside do not reach the terminal.
func TestHostile(t *testing.T) {
	l := NewTest("evil\x1b]0;title\x07\u202e世界", time.Second, time.Second, 1)
	s := l.Draw(0, Options{Width: 80, Height: 24, Colour: true})
	if text := sgr.ReplaceAllString(s, ""); strings.ContainsAny(text, "\x1b\x07\u202e世") || !strings.Contains(text, "evil?]0;title?") {
		t.Errorf("%q", text)
	}
}

// The history of a line is drawn with its gaps, at any width.
func TestPast(t *testing.T) {
	from := time.Date(2026, 11, 23, 8, 0, 0, 0, time.UTC)
	p := Past{Name: "wwan0", From: from, To: from.Add(6 * time.Hour), Step: time.Minute}
	for m := range 360 {
		if m > 200 && m < 240 { // the daemon did not run
			continue
		}
		s := PastStep{At: from.Add(time.Duration(m) * time.Minute)}
		s.Way[0] = PastWay{Rate: 46e6, Capacity: 48e6, Carried: int64(m) * 1e5, DelayMs: 2, MostMs: float64(m%60) + 3}
		s.Way[1] = PastWay{Rate: 9e6, Carried: 1e6, MostMs: 1}
		if m > 100 {
			s.Way[0].Rate, s.Way[0].Capacity = 14e6, 15e6
		}
		p.Steps = append(p.Steps, s)
	}
	fixed := p // nothing measured its delay
	fixed.Steps = slices.Clone(p.Steps)
	for i := range fixed.Steps {
		for d := range fixed.Steps[i].Way {
			w := &fixed.Steps[i].Way[d]
			w.Capacity, w.DelayMs, w.MostMs = 0, -1, -1
		}
	}
	for _, c := range []struct {
		name  string
		past  Past
		width int
		l     *reason.Language
	}{{"past", p, 80, reason.English()}, {"past", p, 40, reason.German()}, {"past-fixed", fixed, 80, reason.English()}, {"past-fixed", fixed, 40, reason.German()}} {
		got := DrawPast(c.l, c.past, Options{Width: c.width}, false) + "\n"
		file := filepath.Join("testdata", fmt.Sprintf("%s-%d.txt", c.name, c.width))
		if *update {
			if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if want, err := os.ReadFile(file); err != nil || string(want) != got {
			t.Errorf("%s (%v): got\n%s", file, err, got)
		}
		for line := range strings.Lines(got) {
			if width(strings.TrimSuffix(line, "\n")) > c.width || strings.Contains(line, "\x1b") {
				t.Errorf("%q", line)
			}
		}
	}
}
