package serve_test

import (
	"context"
	"encoding/json"
	"io"
	"log"
	"math"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"unbloat/internal/measure/phases"
	"unbloat/internal/measure/verdict"
	"unbloat/internal/serve"
	"unbloat/reason"
	"unbloat/testkit/await"
	"unbloat/testkit/labtest"
	"unbloat/unit"
)

// options are the options of web/test/browser.mjs.
type options struct {
	Width  int    `json:"width"`
	Height int    `json:"height"`
	Scheme string `json:"scheme"`
	Motion string `json:"motion"`
	Both   bool   `json:"both"`
	Shots  string `json:"shots"`
	Hide   bool   `json:"hide"` // the tab, for a while
	Stop   bool   `json:"stop"` // a first test
	TLS    bool   `json:"tls"`
	// Language is the browser's; "": American English.
	Language string `json:"language,omitempty"`
	// Blocked says that datagrams will not get through.
	Blocked bool `json:"blocked"`
}

// found is what web/test/browser.mjs observed.
type found struct {
	Errors         []string
	Spills         []string
	Faint          []string
	Unnamed        []string
	Said           []string
	Stopped        string
	Isolated       bool
	Language       string
	Grade          string
	Sentence       string
	StoredSentence string
	Path           string
	Focus          string
	WhatNow        string   // what it says to do about a bad line
	Certain        []string // title and advice of an invalid result, with and without a certain grade
	Test           verdict.Test
}

// visit runs a test in a headless Chromium behind a shaped line. With
// UNBLOAT_SHOTS=DIR it writes screenshots there.
func visit(t *testing.T, line shape, o options) found {
	t.Helper()
	h := serve.NewPage(serve.PageOptions{Name: "shaped"})
	server := httptest.NewUnstartedServer(h)
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // the browser's first attempt comes before its exception for the certificate
	scheme := "http"
	if o.TLS {
		scheme, server.EnableHTTP2 = "https", true
		server.StartTLS()
	} else {
		server.Start()
	}
	t.Cleanup(func() { h.Close(); server.Close() })
	if _, err := h.ListenDatagrams(server.Listener.Addr().String()); err != nil {
		t.Fatal(err)
	}
	address := line.proxy(t, server.Listener.Addr().String())
	o.Blocked = line.noUDP
	o.Shots = os.Getenv("UNBLOAT_SHOTS")
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	var f found
	if err := json.Unmarshal(await.WebScript(t, 3*time.Minute, "browser", scheme+"://"+address+"/", string(text)), &f); err != nil {
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
	if f.StoredSentence != f.Sentence || !strings.HasPrefix(f.Path, "/r/") {
		t.Errorf("the stored result at %q differs from the one shown: %q, %q", f.Path, f.StoredSentence, f.Sentence)
	}
	way := "as datagrams (WebTransport)"
	if line.noUDP {
		way = "over TCP (WebSocket)"
	}
	if !slices.ContainsFunc(f.Test.Notes, func(n string) bool { return strings.Contains(n, way) }) {
		t.Errorf("probes did not travel %s: %q", way, f.Test.Notes)
	}
	f.Said = slices.DeleteFunc(slices.Compact(f.Said), func(s string) bool { return s == "" })
	if n := len(f.Said); n > 12 { // a stopped test, and one of three loads, has one sentence per step
		t.Errorf("a screen reader was told %d times: %q", n, f.Said)
	}
	bad := f.Test.Grade == verdict.GradeD || f.Test.Grade == verdict.GradeF
	if !f.Test.Valid {
		bad = f.Test.Certain() != nil
	}
	if f.Focus != "go" {
		t.Errorf("the focus went to %q", f.Focus)
	}
	steps, language := []string{"idle line", "while downloading", "while uploading"}, reason.English()
	whatNow, invalid := "What now?", "This measurement is not valid."
	if o.Language != "" {
		steps, language = []string{"ohne Last", "beim Download", "beim Upload"}, reason.Choose(o.Language)
		whatNow, invalid = "Und jetzt?", "Diese Messung ist nicht gültig."
	}
	if strings.HasPrefix(f.WhatNow, whatNow) != bad || (f.WhatNow != "") != bad {
		t.Errorf("of grade %q, valid %v, it says what to do: %q", f.Test.Grade, f.Test.Valid, f.WhatNow)
	}
	if want := []string{"F for certain. | " + whatNow, invalid}; !slices.Equal(f.Certain, want) {
		t.Errorf("of an invalid result, with and without a certain grade, it says %q, want %q", f.Certain, want)
	}
	if f.Language != language.Tag || f.Test.Valid && f.Sentence != f.Test.VerdictIn(language, reason.Page) {
		t.Errorf("a browser of %q is shown a page in %s: %s", o.Language, f.Language, f.Sentence)
	}
	for _, want := range steps {
		if !slices.ContainsFunc(f.Said, func(s string) bool { return strings.Contains(s, want) }) {
			t.Errorf("a screen reader was not told of %q: %q", want, f.Said)
		}
	}
	return f
}

// near fails unless a phase's median round trip time is within 5 ms of the
// line's.
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

// In a real browser, behind a line with exactly known queues, the page measures
// p50 within 5 ms, as `unbloat test` does, and gives the right grade.
func TestBrowserAlone(t *testing.T) {
	labtest.NeedSeccomp(t)
	await.Quiet(t)
	for _, c := range []struct {
		name string
		line shape
		o    options
	}{
		{"bloated", shape{rtt: 20 * time.Millisecond, down: 20 * unit.MbitPerSecond, up: 8 * unit.MbitPerSecond, windowDown: 72 * 1024, windowUp: 72 * 1024, noUDP: true},
			options{Width: 1280, Height: 900, Scheme: "light", Motion: "no-preference", Both: true}},
		{"good", shape{rtt: 30 * time.Millisecond, down: 20 * unit.MbitPerSecond, up: 8 * unit.MbitPerSecond, windowDown: 10 * 1024, windowUp: 4 * 1024},
			options{Width: 360, Height: 740, Scheme: "dark", Motion: "reduce", Stop: true, Language: "de-AT"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.name == "bloated" && !labtest.Long() {
				t.Skip("SKIPPED: a minute of a quiet machine; UNBLOAT_LONG=1 runs it")
			}
			c.line.late = &lateness{}
			f := visit(t, c.line, c.o)
			if !f.Test.Valid {
				busy(t, f.Test)
			}
			c.line.late.punctual(t)
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
			if c.o.Stop != (strings.Contains(f.Stopped, "was stopped") || strings.Contains(f.Stopped, "wurde angehalten")) {
				t.Errorf("on the stop button the page said %q", f.Stopped)
			}
			if c.o.Both != (f.Test.Both != nil) {
				t.Errorf("both directions at once: %v", f.Test.Both)
			}
			sameAsTest(t, f, l)
		})
	}
}

// A test is invalid, and says so, if the page was in the background.
func TestBrowserHidden(t *testing.T) {
	if !labtest.Long() {
		t.Skip("SKIPPED: TestJudge judges it without a browser; UNBLOAT_LONG=1 runs it")
	}
	labtest.NeedSeccomp(t)
	line := shape{rtt: 20 * time.Millisecond, down: 20 * unit.MbitPerSecond, up: 8 * unit.MbitPerSecond, windowDown: 10 * 1024, windowUp: 4 * 1024}
	f := visit(t, line, options{Width: 360, Height: 740, Scheme: "light", Motion: "no-preference", Both: true, Hide: true})
	if f.Test.Valid || f.Test.Grade != "" || !strings.Contains(f.Test.Verdict, "not in front") {
		t.Errorf("valid %v, grade %q: %s", f.Test.Valid, f.Test.Grade, f.Test.Verdict)
	}
}

// sameAsTest holds the page's medians to within 5 ms of those of `unbloat test` on the same
// line, and its grades to the same.
func sameAsTest(t *testing.T, f found, line shape) {
	t.Helper()
	server, err := serve.Listen(serve.Options{Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- server.Serve(ctx) }()
	defer func() { cancel(); <-served }()
	line.noUDP = false // by which it probes
	client, err := phases.Dial(t.Context(), line.proxy(t, server.Addr().String()), phases.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	var raws []verdict.Raw
	for _, spec := range phases.Phases(2*time.Second, 3*time.Second, 4, 4)[:3] { // not both directions at once
		raw, err := client.Phase(t.Context(), spec)
		if err != nil {
			t.Fatal(err)
		}
		raws = append(raws, *raw)
	}
	native := client.Judge("", raws)
	t.Logf("unbloat test: %s %s %q", native.GradeDown, native.GradeUp, native.InvalidReasons)
	for _, p := range native.Phases() {
		t.Logf("%-8s p50 %6.1f p95 %6.1f added p95 %6.1f", p.Name, p.Latency.RTTMs.P50, p.Latency.RTTMs.P95, p.Latency.IncreaseMs.P95)
	}
	line.late.punctual(t)
	near(t, "idle", f.Test.Idle, unit.FromMs(native.Idle.Latency.RTTMs.P50))
	near(t, "download", f.Test.Download, unit.FromMs(native.Download.Latency.RTTMs.P50))
	near(t, "upload", f.Test.Upload, unit.FromMs(native.Upload.Latency.RTTMs.P50))
	// On a busy machine the native test becomes invalid long before its p95 is
	// wrong.
	if a, b := f.Test.GradeDown, verdict.GradeOf(native.Download); a != b {
		t.Errorf("grade of the download: page %s, unbloat test %s", a, b)
	}
	if a, b := f.Test.GradeUp, verdict.GradeOf(native.Upload); a != b {
		t.Errorf("grade of the upload: page %s, unbloat test %s", a, b)
	}
}

// busy ends a test whose measurement is invalid: SKIPPED if the page found that
// this machine was too busy.
func busy(t *testing.T, got verdict.Test) {
	t.Helper()
	for _, r := range got.InvalidReasons {
		if strings.Contains(r, "left late") {
			t.Skipf("SKIPPED: this machine is too busy to measure: %q", got.InvalidReasons)
		}
	}
	t.Fatalf("not valid: %q", got.InvalidReasons)
}

// Over TLS a browser uses HTTP/2: all loads share one connection, and the
// result says so. Probes are separate datagrams, so losses on the line are
// losses of probes, without retransmissions.
func TestBrowserHTTP2Alone(t *testing.T) {
	if !labtest.Long() {
		t.Skip("SKIPPED: TestBrowserAlone measures another line; UNBLOAT_LONG=1 runs it")
	}
	labtest.NeedSeccomp(t)
	await.Quiet(t)
	line := shape{rtt: 20 * time.Millisecond, down: 20 * unit.MbitPerSecond, up: 8 * unit.MbitPerSecond, windowDown: 200 * 1024, windowUp: 100 * 1024, loseEvery: 40, late: &lateness{}}
	f := visit(t, line, options{Width: 360, Height: 740, Scheme: "light", Motion: "no-preference", TLS: true})
	if !slices.ContainsFunc(f.Test.Notes, func(n string) bool { return strings.Contains(n, "one connection (h2)") }) {
		t.Errorf("notes: %q", f.Test.Notes)
	}
	if !f.Test.Valid {
		busy(t, f.Test)
	}
	line.late.punctual(t)
	// Probes are lost, or acknowledgements of answers, at random: of some 700
	// probes 18 ± 3.
	var sent, received int
	for _, p := range f.Test.Phases() {
		sent, received = sent+p.Latency.Sent, received+p.Latency.Received
	}
	if l := 1 - float64(received)/float64(sent); l < 0.005 || l > 0.05 {
		t.Errorf("of %d probes %.1f %% were lost, the line loses 2.5 %% of the datagrams", sent, 100*l)
	}
	near(t, "download", f.Test.Download, line.rtt+added(1, line.windowDown, line.down))
	near(t, "upload", f.Test.Upload, line.rtt+added(1, line.windowUp, line.up))
}
