package page

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"unbloat/internal/verdict"
	"unbloat/unit"
)

// script runs scripts/web; the test is skipped if that lacks something.
func script(t *testing.T, limit time.Duration, args ...string) []byte {
	t.Helper()
	if testing.Short() {
		t.Skip("SKIPPED: -short")
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join("..", "..", "scripts", "web"), args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	cmd.WaitDelay = 5 * time.Second
	err := cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 5 {
		t.Skipf("SKIPPED: %s", strings.TrimSpace(errs.String()))
	}
	if err != nil {
		t.Fatalf("scripts/web %s: %v\n%s%s", strings.Join(args, " "), err, out.String(), errs.String())
	}
	return out.Bytes()
}

// What is embedded is what the sources make.
func TestDistMatchesSources(t *testing.T) { script(t, 2*time.Minute, "check") }

// The page and the server judge alike.
func TestPageJudgesAlike(t *testing.T) { script(t, 2*time.Minute, "vectors") }

// options are those of web/test/browser.mjs.
type options struct {
	Width  int    `json:"width"`
	Height int    `json:"height"`
	Scheme string `json:"scheme"`
	Motion string `json:"motion"`
	Both   bool   `json:"both"`
	Shots  string `json:"shots"`
	Hide   bool   `json:"hide"`
}

// found is what web/test/browser.mjs saw.
type found struct {
	Errors         []string
	Spills         []string
	Faint          []string
	Unnamed        []string
	Said           []string
	Isolated       bool
	Agrees         bool
	Grade          string
	Sentence       string
	StoredSentence string
	Path           string
	Focus          string
	Test           verdict.Test
}

// visit runs a test in a headless Chromium behind a shaped line. With
// UNBLOAT_SHOTS=DIR it leaves pictures there.
func visit(t *testing.T, line shape, o options) found {
	t.Helper()
	h := New(Options{Name: "shaped"})
	server := httptest.NewServer(h)
	t.Cleanup(func() { h.Close(); server.Close() })
	address := line.proxy(t, server.Listener.Addr().String())
	o.Shots = os.Getenv("UNBLOAT_SHOTS")
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	var f found
	if err := json.Unmarshal(script(t, 3*time.Minute, "browser", "http://"+address+"/", string(text)), &f); err != nil {
		t.Fatal(err)
	}
	for _, p := range f.Test.Phases() {
		t.Logf("%-8s p50 %6.1f p95 %6.1f added p95 %6.1f (up %5.1f down %5.1f) late p99 %4.1f down %5.2f up %5.2f Mbit/s, %d of %d", p.Name,
			p.Latency.RTTMs.P50, p.Latency.RTTMs.P95, p.Latency.IncreaseMs.P95, p.Latency.UpMs.P95, p.Latency.DownMs.P95,
			p.ProbeLatenessMs.P99, p.GoodputDownBps/1e6, p.GoodputUpBps/1e6, p.Latency.Received, p.Latency.Sent)
	}
	t.Logf("grade %s (%s, %s): %s %q", f.Test.Grade, f.Test.GradeDown, f.Test.GradeUp, f.Test.Verdict, f.Test.InvalidReasons)
	if len(f.Errors)+len(f.Spills)+len(f.Faint)+len(f.Unnamed) > 0 {
		t.Errorf("the page complains: %q\nis wider than the window: %q\nhas faint text: %q\nhas controls without a name: %q", f.Errors, f.Spills, f.Faint, f.Unnamed)
	}
	if !f.Isolated {
		t.Error("the page is not isolated, so its clock is coarse")
	}
	if !f.Agrees || f.StoredSentence != f.Sentence || !strings.HasPrefix(f.Path, "/r/") {
		t.Errorf("the stored result at %q differs from the one shown: %q, %q; agrees: %v", f.Path, f.StoredSentence, f.Sentence, f.Agrees)
	}
	if f.Focus != "go" {
		t.Errorf("the focus went to %q", f.Focus)
	}
	for _, want := range []string{"idle line", "while downloading", "while uploading"} {
		if !slices.ContainsFunc(f.Said, func(s string) bool { return strings.Contains(s, want) }) {
			t.Errorf("a screen reader was not told of %q: %q", want, f.Said)
		}
	}
	return f
}

// near fails unless a phase's median round trip is within 5 ms of what the line
// makes it.
func near(t *testing.T, name string, p *verdict.Phase, want time.Duration) {
	t.Helper()
	if p == nil {
		t.Errorf("%s was not measured", name)
	} else if got := p.Latency.RTTMs.P50; math.Abs(got-unit.Ms(want)) > 5 {
		t.Errorf("%s: p50 %.1f ms, but the line makes it %.1f ms", name, got, unit.Ms(want))
	}
}

func rateNear(t *testing.T, name string, got float64, want unit.Rate) {
	t.Helper()
	if math.Abs(got/float64(want)-1) > 0.05 {
		t.Errorf("%s: %.2f Mbit/s, but the line has %.2f", name, got/1e6, want.Mbit())
	}
}

// In a real browser, behind a line whose queues are known to the byte, the page
// measures p50 within 5 ms, and grades as the line deserves.
func TestBrowser(t *testing.T) {
	for _, c := range []struct {
		name string
		line shape
		o    options
	}{
		{"bloated", shape{rtt: 20 * time.Millisecond, down: 20 * unit.MbitPerSecond, up: 8 * unit.MbitPerSecond, windowDown: 72 * 1024, windowUp: 72 * 1024},
			options{Width: 1280, Height: 900, Scheme: "light", Motion: "no-preference", Both: true}},
		{"good", shape{rtt: 30 * time.Millisecond, down: 20 * unit.MbitPerSecond, up: 8 * unit.MbitPerSecond, windowDown: 10 * 1024, windowUp: 4 * 1024},
			options{Width: 375, Height: 760, Scheme: "dark", Motion: "reduce"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := visit(t, c.line, c.o)
			if !f.Test.Valid {
				t.Fatalf("not valid: %q", f.Test.InvalidReasons)
			}
			l := c.line
			down, up := added(4, l.windowDown, l.down), added(4, l.windowUp, l.up)
			near(t, "idle", f.Test.Idle, l.rtt)
			near(t, "download", f.Test.Download, l.rtt+down)
			near(t, "upload", f.Test.Upload, l.rtt+up)
			if g := verdict.Grade(down); f.Test.GradeDown != g {
				t.Errorf("grade of the download %s, want %s", f.Test.GradeDown, g)
			}
			if g := verdict.Grade(up); f.Test.GradeUp != g {
				t.Errorf("grade of the upload %s, want %s", f.Test.GradeUp, g)
			}
			if f.Grade != f.Test.Grade && !strings.Contains(f.Grade, f.Test.Grade) {
				t.Errorf("the page shows grade %q", f.Grade)
			}
			rateNear(t, "download", f.Test.Download.GoodputDownBps, l.down)
			rateNear(t, "upload", f.Test.Upload.GoodputUpBps, l.up)
			if c.o.Both != (f.Test.Both != nil) {
				t.Errorf("both directions at once: %v", f.Test.Both)
			}
		})
	}
}

// A test during which the page was not in front is invalid, and says so.
func TestBrowserHidden(t *testing.T) {
	line := shape{rtt: 20 * time.Millisecond, down: 20 * unit.MbitPerSecond, up: 8 * unit.MbitPerSecond, windowDown: 10 * 1024, windowUp: 4 * 1024}
	f := visit(t, line, options{Width: 390, Height: 844, Scheme: "light", Motion: "no-preference", Hide: true})
	if f.Test.Valid || f.Test.Grade != "" || !strings.Contains(f.Test.Verdict, "not in front") {
		t.Errorf("valid %v, grade %q: %s", f.Test.Valid, f.Test.Grade, f.Test.Verdict)
	}
}
