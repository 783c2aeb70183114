package verdict

import (
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"unbloat/internal/measure/probe"
	"unbloat/unit"
)

// A fake describes a phase of 10 s with one probe every 10 ms.
type fake struct {
	name     string
	rtt      func(i int) time.Duration
	lost     func(i int) bool
	down, up float64 // bit/s
	late     time.Duration
	edit     func(*Raw)
}

const offset = 3 * time.Hour // of the server's clock

func (f fake) raw(start unit.Instant) Raw {
	const n = 1000
	r := Raw{
		Name: f.name, Start: start, End: start.Add(10 * time.Second),
		From: start.Add(2500 * time.Millisecond), To: start.Add(9750 * time.Millisecond),
		Interval: 10 * time.Millisecond, Greedy: f.down+f.up > 0,
	}
	for i := range n {
		at := start.Add(time.Duration(i) * r.Interval)
		s := probe.Sample{Seq: uint32(i), Scheduled: at, Sent: at.Add(f.late), Fate: probe.Answered}
		rtt := f.rtt(i)
		s.ServerReceived = s.Sent.Add(rtt - 10*time.Millisecond + offset)
		s.ServerSent = s.ServerReceived.Add(time.Millisecond) // which must not count
		s.Received = s.Sent.Add(rtt + time.Millisecond)
		if f.lost != nil && f.lost(i) {
			s = probe.Sample{Seq: s.Seq, Scheduled: s.Scheduled, Sent: s.Sent, Fate: probe.LostUp}
		}
		r.Samples = append(r.Samples, s)
	}
	flow := func(bps float64) ([]Series, [][]probe.SenderSample) {
		s := Series{Start: start, Bin: 100 * time.Millisecond}
		for range 100 {
			s.Bytes = append(s.Bytes, int64(bps/80))
		}
		var g []probe.SenderSample
		for i := range 21 {
			d := time.Duration(i) * 500 * time.Millisecond
			g = append(g, probe.SenderSample{At: start.Add(d), Flows: 1, Known: true, Busy: d, Retransmits: int64(i)})
		}
		return []Series{s}, [][]probe.SenderSample{g}
	}
	if f.down > 0 {
		r.Down, r.DownSenders = flow(f.down)
	}
	if f.up > 0 {
		r.Up, r.UpSenders = flow(f.up)
	}
	if f.edit != nil {
		f.edit(&r)
	}
	return r
}

func always(d time.Duration) func(int) time.Duration { return func(int) time.Duration { return d } }

func judge(fakes ...fake) *Test {
	var raws []Raw
	start := unit.Instant(1e18)
	for _, f := range fakes {
		raws = append(raws, f.raw(start))
		start = start.Add(12 * time.Second)
	}
	return Judge(Meta{Time: "2026-01-02T03:04:05Z", Server: "s:1"}, raws)
}

const ms20 = 20 * time.Millisecond

func TestJudge(t *testing.T) {
	idle := fake{name: PhaseIdle, rtt: always(ms20)}
	down := fake{name: PhaseDownload, rtt: always(ms20 + 4*time.Millisecond), down: 30e6}
	up := fake{name: PhaseUpload, rtt: always(1020 * time.Millisecond), up: 5e6, lost: func(i int) bool { return i%10 == 9 }}
	got := judge(idle, down, up)
	if !got.Valid || len(got.InvalidReasons) != 0 || got.InvalidReasons == nil {
		t.Fatalf("invalid: %q", got.InvalidReasons)
	}
	if got.GradeDown != "A+" || got.GradeUp != "F" || got.Grade != "F" {
		t.Errorf("grades %s, %s, %s", got.GradeDown, got.GradeUp, got.Grade)
	}
	l := got.Upload.Latency
	if l.RTTMs.P50 != 1020 || l.IncreaseMs.P95 != 1000 || l.UpMs.P50 != 1000 || l.DownMs.P50 != 0 {
		t.Errorf("rtt %v, increase %v, up %v, down %v", l.RTTMs.P50, l.IncreaseMs.P95, l.UpMs.P50, l.DownMs.P50)
	}
	if l.Sent != 725 || l.Loss < 0.09 || l.Loss > 0.11 || l.LossUp != l.Loss || l.LossDown != 0 {
		t.Errorf("sent %d, loss %v, %v, %v", l.Sent, l.Loss, l.LossUp, l.LossDown)
	}
	if p := got.Download; math.Abs(p.GoodputDownBps-30e6) > 1 || p.GoodputUpBps != 0 || !p.Saturated || p.FlowsDown != 1 || p.Seconds != 7.25 || p.Retransmits == 0 {
		t.Errorf("download %+v", p)
	}
	if s := got.Upload.Series; s.StartS != 24 || len(s.TS) != 1000 || s.RTTMs[9] != nil || *s.RTTMs[0] != 1020 || len(s.UpMbps) != 100 || s.UpMbps[50] != 5 {
		t.Errorf("series from %v: %d probes, %d bins", s.StartS, len(s.TS), len(s.UpMbps))
	}
	if !strings.Contains(got.Verdict, "uploads") || !strings.Contains(got.Verdict, "1020 ms") {
		t.Errorf("verdict %q", got.Verdict)
	}
}

func TestInvalid(t *testing.T) {
	idle := fake{name: PhaseIdle, rtt: always(ms20)}
	down := fake{name: PhaseDownload, rtt: always(24 * time.Millisecond), down: 30e6}
	held := func(r *Raw) { // no queue, no loss, and the buffers were the limit
		for i := range r.DownSenders[0] {
			s := &r.DownSenders[0][i]
			s.RwndLimited, s.Retransmits = s.Busy, 0
		}
	}
	with := func(f fake, edit func(*Raw)) fake { f.edit = edit; return f }
	for _, c := range []struct {
		name   string
		phases []fake
		reason string // "" is valid
		// unsaturated: it is the only reason
		unsaturated bool
	}{
		{"sound", []fake{idle, down}, "", false},
		{"no idle phase", []fake{down}, "no idle phase", false},
		{"busy machine", []fake{idle, with(down, func(r *Raw) { r.CPU = 0.86 })}, "busiest processor", false},
		{"almost busy machine", []fake{idle, with(down, func(r *Raw) { r.CPU = 0.85 })}, "", false},
		{"busy server", []fake{idle, with(down, func(r *Raw) { r.ServerCPU = 0.9 })}, "server's busiest", false},
		{"late probes", []fake{idle, {name: PhaseDownload, rtt: always(ms20), down: 1e6, late: 1100 * time.Microsecond}}, "left late", false},
		{"skipped probes", []fake{idle, with(down, func(r *Raw) {
			r.Skips = []probe.Skip{{At: r.From.Add(time.Second), Probes: 20, Lateness: 200 * time.Millisecond}}
		})}, "left late", false},
		{"clock set", []fake{idle, with(down, func(r *Raw) { r.ClockSteps = 1 })}, "clock was set", false},
		{"no answers", []fake{idle, {name: PhaseDownload, rtt: always(ms20), down: 1e6, lost: func(int) bool { return true }}}, "answered", false},
		{"broken flow", []fake{idle, with(down, func(r *Raw) { r.Broken = []string{"flow 1: reset"} })}, "broke off", false},
		{"nothing arrived", []fake{idle, with(down, func(r *Raw) { clear(r.Down[0].Bytes) })}, "nothing arrived", true},
		{"still rising", []fake{idle, with(down, func(r *Raw) {
			for i := range r.Down[0].Bytes {
				r.Down[0].Bytes[i] = int64(i * 1000)
			}
		})}, "still rising", true},
		{"idle sender", []fake{idle, with(down, func(r *Raw) {
			for i := range r.DownSenders[0] {
				r.DownSenders[0][i].Busy /= 2
			}
		})}, "data in flight for only 50 %", true},
		{"held back, no queue", []fake{idle, with(down, held)}, "held back by their own buffers", true},
		{"held back, a queue", []fake{idle, {name: PhaseDownload, rtt: always(40 * time.Millisecond), down: 1e6, edit: func(r *Raw) {
			held(r)
			for i := range r.Samples { // the queue is in the download
				r.Samples[i].ServerReceived -= unit.Instant(ms20)
				r.Samples[i].ServerSent -= unit.Instant(ms20)
			}
		}}}, "", false},
		{"still rising on a busy machine", []fake{idle, with(down, func(r *Raw) { clear(r.Down[0].Bytes); r.CPU = 0.9 })}, "nothing arrived", false},
		{"unsteady idle", []fake{{name: PhaseIdle, rtt: func(i int) time.Duration { return ms20 + time.Duration(i%5)*ms20 }}, down}, "unsteady", false},
		{"one full direction of two", []fake{idle, with(fake{name: PhaseBoth, rtt: always(ms20), down: 1e6, up: 1e6}, held)}, "", false},
	} {
		got := judge(c.phases...)
		if got.Valid != (c.reason == "") || !strings.Contains(strings.Join(got.InvalidReasons, "\n"), c.reason) {
			t.Errorf("%s: valid %v, reasons %q, want %q", c.name, got.Valid, got.InvalidReasons, c.reason)
		}
		if got.OnlyUnsaturated() != c.unsaturated {
			t.Errorf("%s: only unsaturated: %v, want %v", c.name, got.OnlyUnsaturated(), c.unsaturated)
		}
		if !got.Valid && (got.Grade != "" || got.GradeDown != "" || !strings.Contains(got.Verdict, "not valid")) {
			t.Errorf("%s: an invalid test has grade %q and verdict %q", c.name, got.Grade, got.Verdict)
		}
	}
}

func TestGrade(t *testing.T) {
	for _, c := range []struct {
		ms   float64
		want string
	}{{-3, "A+"}, {0, "A+"}, {4.99, "A+"}, {5, "A"}, {29.99, "A"}, {30, "B"}, {59.9, "B"}, {60, "C"}, {199, "C"}, {200, "D"}, {399, "D"}, {400, "F"}, {4000, "F"}} {
		if got := Grade(unit.FromMs(c.ms)); got != c.want {
			t.Errorf("%v ms: %s, want %s", c.ms, got, c.want)
		}
	}
}

// Law: a larger increase never has a better grade, and Worse is its maximum.
func TestGradeFalls(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := rapid.Float64Range(-10, 1000).Draw(t, "a"), rapid.Float64Range(-10, 1000).Draw(t, "b")
		if got, want := Worse(Grade(unit.FromMs(a)), Grade(unit.FromMs(b))), Grade(unit.FromMs(max(a, b))); got != want {
			t.Fatalf("worse of %v and %v is %s, want %s", a, b, got, want)
		}
	})
}

// Law: the losses by direction add up to the total, and no more is received
// than was sent.
func TestLossSplits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var samples []probe.Sample
		fates := rapid.SliceOfN(rapid.SampledFrom([]probe.Fate{probe.Answered, probe.LostUp, probe.LostDown, probe.Open}), 1, 300).Draw(t, "fates")
		for i, f := range fates {
			samples = append(samples, probe.Sample{
				Seq: uint32(i), Sent: unit.Instant(i), Received: unit.Instant(i + 5), Fate: f,
				ServerReceived: unit.Instant(i + 2), ServerSent: unit.Instant(i + 2),
			})
		}
		l := EvaluateLatency(samples, Baseline{})
		if l.Received > l.Sent || l.Sent != len(fates) {
			t.Fatalf("received %d of %d", l.Received, l.Sent)
		}
		if whole := 1 - (1-l.LossUp)*(1-l.LossDown); l.LossUp < 1 && math.Abs(whole-l.Loss) > 1e-5 {
			t.Fatalf("up %v and down %v do not make %v", l.LossUp, l.LossDown, l.Loss)
		}
	})
}

// Law: splitting a window in two changes nothing, and the whole window includes
// everything.
func TestSeriesBetween(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := Series{Start: 1000, Bin: time.Duration(rapid.Int64Range(1, 1000).Draw(t, "bin"))}
		s.Bytes = rapid.SliceOfN(rapid.Int64Range(0, 1e9), 0, 50).Draw(t, "bytes")
		var total float64
		for _, b := range s.Bytes {
			total += float64(b)
		}
		end := s.Start.Add(s.Bin * time.Duration(len(s.Bytes)+1))
		cut := unit.Instant(rapid.Int64Range(0, int64(end)).Draw(t, "cut"))
		got := s.Between(0, cut) + s.Between(cut, end)
		if math.Abs(got-total) > 1e-6*max(total, 1) || math.Abs(s.Between(0, end)-total) > 1e-6*max(total, 1) {
			t.Fatalf("cut at %v: %v, whole %v, want %v", cut, got, s.Between(0, end), total)
		}
	})
}

func TestCompare(t *testing.T) {
	idle := fake{name: PhaseIdle, rtt: always(ms20)}
	with := func(d time.Duration) *Test {
		return judge(idle, fake{name: PhaseUpload, rtt: always(ms20 + d), up: 5e6})
	}
	bad := judge(idle, fake{name: PhaseUpload, rtt: always(ms20), up: 5e6, edit: func(r *Raw) { r.CPU = 1 }})
	for _, c := range []struct {
		name          string
		before, after *Test
		better        bool
		says          string
	}{
		{"cured", with(time.Second), with(10 * time.Millisecond), true, "Better"},
		{"same", with(time.Second), with(990 * time.Millisecond), false, "No difference"},
		{"worse", with(10 * time.Millisecond), with(time.Second), false, "Worse"},
		{"invalid", with(time.Second), bad, false, "Nothing can be said"},
		{"nothing in common", with(time.Second), judge(idle), false, "Nothing can be said"},
	} {
		got := Compare(c.before, c.after)
		if got.Better != c.better || !strings.Contains(got.Verdict, c.says) {
			t.Errorf("%s: better %v, %q", c.name, got.Better, got.Verdict)
		}
	}
	if got := Compare(with(time.Second), with(0)); len(got.Phases) != 1 || got.Phases[0].UpRatio != 1 || got.Phases[0].DownRatio != 0 {
		t.Errorf("%+v", got.Phases)
	}
}
