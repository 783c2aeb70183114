package follow

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"unbloat/unit"
)

var update = flag.Bool("update", false, "write the golden files anew")

// told prints a log's run: what changes of each direction's situation and rate.
func told(t *testing.T, log []byte) string {
	t.Helper()
	var out strings.Builder
	var was [2]string
	began := unit.Instant(0)
	if err := Replay(bytes.NewReader(log), func(r Replayed) {
		if began == 0 {
			began = r.Now
		}
		for d := range was {
			is := fmt.Sprintf("%-4v %-9v %9d bit/s %s", Direction(d), r.Controller.Situation(Direction(d)).Is, r.Decision.Rate[d], r.Decision.Why[d].Cause.Code())
			if is != was[d] {
				fmt.Fprintf(&out, "%7.3f %s\n", r.Now.Sub(began).Seconds(), is)
			}
			was[d] = is
		}
	}); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// A line that falls to a third and comes back, as a log: run again it gives the
// situations and the rates of the golden file.
func TestReplay(t *testing.T) {
	const log, golden = "testdata/falls.log", "testdata/falls.txt"
	if *update {
		f := newFluid(t, usual())
		var b bytes.Buffer
		f.drive = NewRecorder(f.c, f.now, &b)
		f.greedy()
		f.run(4 * time.Second)
		f.capacity = [2]float64{15e6, 3e6}
		f.run(4 * time.Second)
		f.capacity = [2]float64{50e6, 10e6}
		f.run(4 * time.Second)
		if err := errors.Join(os.WriteFile(log, b.Bytes(), 0o644), os.WriteFile(golden, []byte(told(t, b.Bytes())), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if is := told(t, text); is != string(want) {
		t.Errorf("the run is\n%s\nit was\n%s\n(go test -run TestReplay -update writes it anew)", is, want)
	}
}

// A log decides as the controller did that it was written from, whatever happened; cut
// off anywhere it is read as far as it goes.
func TestReplayDecidesTheSame(t *testing.T) {
	p := usual()
	p.Every = 70 * time.Millisecond
	f := newFluid(t, p)
	var b bytes.Buffer
	f.drive = NewRecorder(f.c, f.now, &b)
	f.greedy()
	for i := range 20 {
		f.capacity = [2]float64{50e6 / float64(1+i%4), 10e6 / float64(1+i%3)}
		f.oneWay = i%5 > 1
		f.run(time.Second)
		f.drive.Delay(Delay{At: f.now, Source: 99, Operator: 7, Passive: true, RTT: f.base})
		if i == 12 {
			f.drive.(*Recorder).NewLine(f.now)
			f.drive.(*Recorder).Wall(f.now.Add(-time.Hour))
		}
		if i == 15 {
			f.drive.Applied(f.now, Up, 4*unit.MbitPerSecond)
		}
	}
	steps, last := 0, [2]unit.Rate{}
	if err := Replay(bytes.NewReader(b.Bytes()), func(r Replayed) {
		steps++
		last = r.Decision.Rate
		if r.Decision.Rate != r.Recorded {
			t.Fatalf("at %v it decides %v, it was %v", r.Now, r.Decision.Rate, r.Recorded)
		}
	}); err != nil || steps < 300 || last != f.last.Rate {
		t.Errorf("%d steps, %v, it was %v: %v", steps, last, f.last.Rate, err)
	}
	for _, n := range []int{0, 10, b.Len() / 2, b.Len() - 3} {
		if err := Replay(bytes.NewReader(b.Bytes()[:n]), func(Replayed) {}); (err == nil) != (n > 100) {
			t.Errorf("the first %d bytes: %v", n, err)
		}
	}
}

// replays holds what a log decides against what was decided while it was written.
func replays(t *testing.T, f *fluid, run func()) {
	t.Helper()
	var b bytes.Buffer
	f.drive = NewRecorder(f.c, f.now, &b)
	run()
	steps := 0
	if err := Replay(&b, func(r Replayed) {
		steps++
		if r.Decision.Rate != r.Recorded {
			t.Fatalf("at %v it decides %v, it was %v", r.Now, r.Decision.Rate, r.Recorded)
		}
	}); err != nil || steps < 100 {
		t.Errorf("%d steps: %v", steps, err)
	}
}

// FuzzReplay: whatever a file has, the rates are within their bounds.
func FuzzReplay(f *testing.F) {
	f.Add([]byte(logHeader + "\nb 0 {\"Rates\":[{\"Least\":1,\"Usual\":2,\"Most\":3},{\"Least\":1,\"Usual\":2,\"Most\":3}]}\nc 5 1 2 3 4 5 6 7 8\ns 5 2 2\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		_ = Replay(bytes.NewReader(text), func(r Replayed) { checkBounds(t, r.Controller.p, r.Decision) })
	})
}

// A log has no address of the home's peers, nor what is made of one.
func TestLogHasNoAddresses(t *testing.T) {
	c, err := New(usual(), 0)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	r := NewRecorder(c, 0, &b)
	for i := range 2 * mostNumbers {
		id := uint32(3_000_000_000 + i%(mostNumbers+100))
		r.Delay(Delay{At: unit.Instant(i + 1e9), Source: id, Operator: ^id, Passive: true, RTT: time.Millisecond})
	}
	if strings.Contains(b.String(), " 30000") || len(r.numbers) > mostNumbers {
		t.Errorf("%d numbers; %.300s", len(r.numbers), b.String())
	}
}
