package report

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"image/color"
	"image/png"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"unbloat/internal/cure/plan"
	"unbloat/internal/measure/verdict"
	"unbloat/reason"
)

func render(t *testing.T, f Format, p Page) string {
	t.Helper()
	var b bytes.Buffer
	if err := Write(f, &b, p); err != nil {
		t.Fatalf("%s: %v", f, err)
	}
	return b.String()
}

// wellFormed fails the test unless s is well-formed XML.
func wellFormed(t interface{ Fatalf(string, ...any) }, s string) {
	d := xml.NewDecoder(strings.NewReader(s))
	for {
		_, err := d.Token()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatalf("SVG is not well-formed: %v\n%.400s", err, s)
		}
	}
}

// svgs returns the inline SVG elements of an HTML page.
func svgs(page string) []string {
	var out []string
	for {
		i := strings.Index(page, "<svg")
		if i < 0 {
			return out
		}
		j := strings.Index(page[i:], "</svg>") + len("</svg>")
		out = append(out, page[i:i+j])
		page = page[i+j:]
	}
}

func TestPageShowsTheTestsFigures(t *testing.T) {
	b, a := fakeTest(before()), fakeTest(after())
	page := render(t, FormatHTML, Page{Before: b, After: a})
	for _, test := range []*verdict.Test{b, a} {
		for _, p := range test.Phases() {
			q := p.Latency.RTTMs
			for what, want := range map[string]string{
				"table median": ">" + ms(q.P50) + "<", "table p95": ">" + ms(q.P95) + "<", "chart p95": ">p95 " + ms(q.P95) + "<",
				"range chart": "median " + number(q.P50) + " · p95 " + number(q.P95) + " · max " + number(q.Max),
			} {
				if !strings.Contains(page, want) {
					t.Errorf("%s, %s: page lacks the %s %q", test.Label, p.Name, what, want)
				}
			}
		}
	}
	for _, want := range []string{rate(b.Download.GoodputDownBps), rate(a.Upload.GoodputUpBps), "Before: cable, nothing set", `name="viewport"`, "prefers-color-scheme:dark"} {
		if !strings.Contains(page, want) {
			t.Errorf("page lacks %q", want)
		}
	}
	for _, bad := range []string{"http://", "https://", "<script", "src=", "@import", "url("} {
		if s := strings.ReplaceAll(page, "http://www.w3.org/2000/svg", ""); strings.Contains(s, bad) {
			t.Errorf("page is not self-contained: it has %q", bad)
		}
	}
	if n := len(svgs(page)); n != 8 {
		t.Errorf("%d charts, want 4 for wide and 4 for narrow pages", n)
	}
	for _, s := range svgs(page) {
		wellFormed(t, s)
		if !strings.Contains(s, "<title>") || !strings.Contains(s, "<desc>") {
			t.Error("a chart has no title or description")
		}
	}
}

// TestChartsDrawTheCountedSamples: figures and curves come from the same
// samples.
func TestChartsDrawTheCountedSamples(t *testing.T) {
	for _, p := range fakeTest(before()).Phases() {
		pr := probesOf(p.Phase)
		if !pr.agree || pr.to-pr.from != p.Latency.Sent {
			t.Fatalf("%s: counted %d…%d of %d, want %d probes", p.Name, pr.from, pr.to, len(pr.t), p.Latency.Sent)
		}
		if got := quantiles(pr.answers()); got != p.Latency.RTTMs {
			t.Errorf("%s: the curve's samples have %+v, the figures say %+v", p.Name, got, p.Latency.RTTMs)
		}
		lo, hi := math.Inf(1), 0.0
		sent, lost := 0, 0
		for _, c := range pr.columns(50, func(t float64) float64 { return t * 20 }) {
			lo, hi, sent, lost = min(lo, c.lo), max(hi, c.hi), sent+c.sent, lost+c.lost
		}
		all := quantiles(probes{rtt: pr.rtt, to: len(pr.rtt)}.answers())
		if lo != all.Min || hi != all.Max || sent != len(pr.t) || lost != len(pr.t)-len(probes{rtt: pr.rtt, to: len(pr.rtt)}.answers()) {
			t.Errorf("%s: columns lose samples: %g…%g of %g…%g, %d sent, %d lost", p.Name, lo, hi, all.Min, all.Max, sent, lost)
		}
	}
	broken := fakeTest(before())
	broken.Upload.Latency.RTTMs.Max *= 3
	if page := render(t, FormatHTML, Page{After: broken}); !strings.Contains(page, "do not agree") {
		t.Error("figures that contradict their series are not called out")
	}
}

func TestHostileStrings(t *testing.T) {
	const evil = "\x1b[2J</title><script>alert(1)</script>\"'&]]>\x00\u202eevil\xff"
	bad := fakeTest(after())
	bad.Label, bad.Server, bad.Time, bad.Verdict, bad.Grade, bad.GradeDown, bad.GradeUp = evil, evil, evil, evil, evil, evil, evil
	bad.Valid, bad.InvalidReasons = false, []string{evil, evil}
	b := fakeTest(before())
	b.Verdict, b.Label = evil, "=cmd()"
	for _, p := range []Page{
		{Title: evil, Before: b, After: bad, Notes: []string{evil}, Steps: []Step{{Name: evil, Outcome: evil, Test: bad}}},
		{After: bad}, {After: b, Title: evil},
		{After: bad, Plan: &plan.Plan{Platform: evil, WAN: evil, LAN: evil, AQM: evil, Reasons: []plan.Reason{{Field: evil, Value: reason.Written(evil), Why: reason.Written(evil)}}}},
	} {
		for _, f := range []Format{FormatHTML, FormatSVG, FormatCSV} {
			s := render(t, f, p)
			if strings.ContainsAny(s, "\x00\x1b\u202e") || !utf8.ValidString(s) {
				t.Errorf("%s: control characters came through", f)
			}
			if f != FormatCSV && strings.Contains(s, "<script") {
				t.Errorf("%s: markup came through", f)
			}
			if f == FormatSVG {
				wellFormed(t, s)
			}
			if f == FormatCSV && strings.Contains(s, ",=cmd") {
				t.Error("csv: a label is a formula")
			}
		}
		var text bytes.Buffer
		if err := TableOf(&text, reason.English(), p.Before, p.After, 0); err != nil {
			t.Fatal(err)
		}
		if strings.ContainsAny(text.String(), "\x00\x1b\u202e") {
			t.Error("table: control characters came through")
		}
	}
}

func TestSizes(t *testing.T) {
	long := before()
	long.seconds, long.interval = 60, 0.01 // 24 000 probes
	b := fakeTest(long)
	long.label, long.seed, long.loss = "after", 9, 0.05
	p := Page{Before: b, After: fakeTest(long)}
	if n := len(render(t, FormatHTML, p)); n > 300_000 {
		t.Errorf("page of 48 000 probes has %d bytes, more than 300 kB", n)
	}
	if n := len(render(t, FormatHTML, samplePages()["pair"])); n > 200_000 {
		t.Errorf("page has %d bytes", n)
	}
}

func TestPNGIsDrawn(t *testing.T) {
	img, err := png.Decode(strings.NewReader(render(t, FormatPNG, Page{After: fakeTest(before())})))
	if err != nil {
		t.Fatal(err)
	}
	colours := map[[3]uint32]int{}
	for y := img.Bounds().Min.Y; y < img.Bounds().Max.Y; y += 2 {
		for x := img.Bounds().Min.X; x < img.Bounds().Max.X; x += 2 {
			r, g, b, _ := img.At(x, y).RGBA()
			colours[[3]uint32{r >> 8, g >> 8, b >> 8}]++
		}
	}
	light := lightTheme()
	for _, i := range []ink{inkText, inkAfter, inkMuted, inkUpload, inkBoth} {
		c := light[i]
		if colours[[3]uint32{uint32(c.R), uint32(c.G), uint32(c.B)}] < 50 {
			t.Errorf("ink %d (%s) is hardly on the picture", i, hex(c))
		}
	}
}

// TestContrast: WCAG 2.1, 1.4.3: text has a contrast of at least 4.5.
func TestContrast(t *testing.T) {
	for name, th := range map[string]theme{"light": lightTheme(), "dark": darkTheme()} {
		for i := inkText; i < inkCount; i++ {
			if i == inkGrid || i == inkBand || i == inkPaper {
				continue
			}
			for _, ground := range []ink{inkPaper, inkBand} {
				if c := contrast(th[i], th[ground]); c < 4.5 {
					t.Errorf("%s: ink %d %s on %s: contrast %.2f", name, i, hex(th[i]), hex(th[ground]), c)
				}
			}
		}
	}
	if c := contrast(rgb(0), rgb(0xffffff)); math.Abs(c-21) > 1e-9 {
		t.Errorf("black on white: %g", c)
	}
}

func TestSentence(t *testing.T) {
	b, a := fakeTest(before()), fakeTest(after())
	got := Sentence(b, a)
	want := "While downloading and uploading, calls waited an extra " + shortMs(b.Both.Latency.IncreaseMs.P95) + " before and " + shortMs(a.Both.Latency.IncreaseMs.P95) + " after; download speed "
	if !strings.HasPrefix(got, want) {
		t.Errorf("better: %s", got)
	}
	if got := Sentence(b, b); !strings.HasPrefix(got, "Hardly any change: ") {
		t.Errorf("same: %s", got)
	}
	if got := Sentence(a, b); !strings.HasPrefix(got, "It got worse: ") || !strings.Contains(got, "Also, while uploading it rose") {
		t.Errorf("worse: %s", got)
	}
	slow := after()
	slow.down = 5
	if got := Sentence(b, fakeTest(slow)); !strings.Contains(got, "% less)") {
		t.Errorf("a lost speed is not told: %s", got)
	}
	bad := fakeTest(after())
	bad.Valid, bad.InvalidReasons = false, []string{"CPU 97 %."}
	if got, o := english().compare(b, bad); got != "No verdict: the measurement after is invalid: CPU 97 %." || o != unknown {
		t.Errorf("invalid: %s (%d)", got, o)
	}
	if page := render(t, FormatHTML, Page{Before: b, After: bad}); !strings.Contains(page, `class="alert"`) || strings.Contains(page, "× less") || strings.Contains(page, `class="tiles"`) {
		t.Error("an invalid measurement is judged all the same")
	}
	a.Both.Latency.Received = 0
	if got := Sentence(b, a); !strings.Contains(got, "no probe was answered after") {
		t.Errorf("all lost: %s", got)
	}
}

var update = flag.Bool("update", false, "rewrite the golden files")

// TestTablesGolden: the tables for a terminal match the golden files.
func TestTablesGolden(t *testing.T) {
	var got bytes.Buffer
	b, a := fakeTest(before()), fakeTest(after())
	fmt.Fprintf(&got, "-- pair --\n")
	if err := TableOf(&got, reason.English(), b, a, 0); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(&got, "-- single --\n")
	if err := TestTable(&got, b); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join("testdata", "tables.txtar")
	if *update {
		if err := os.WriteFile(path, got.Bytes(), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(want, got.Bytes()) {
		t.Errorf("tables differ from %s (rewrite with -update):\n%s", path, got.String())
	}
}

func TestTextTables(t *testing.T) {
	b, a := fakeTest(before()), fakeTest(after())
	b.Loaded = b.Both
	b.Server = strings.Repeat("long.example.", 30)
	for name, pair := range map[string][2]*verdict.Test{"pair": {b, a}, "worse": {a, b}, "one": {nil, a}, "five phases": {b, nil}} {
		var w bytes.Buffer
		if err := TableOf(&w, reason.English(), pair[0], pair[1], 0); err != nil {
			t.Fatal(err)
		}
		for _, line := range strings.Split(w.String(), "\n") {
			if n := utf8.RuneCountInString(line); n > textWidth {
				t.Errorf("%s: %d columns: %s", name, n, line)
			}
		}
		if want := number(a.Upload.Latency.RTTMs.P95); name != "five phases" && !strings.Contains(w.String(), want) {
			t.Errorf("%s: lacks %q", name, want)
		}
	}
	if err := TableOf(io.Discard, reason.English(), nil, nil, 0); !errors.Is(err, ErrNothing) {
		t.Errorf("nothing: %v", err)
	}
}

func TestCSVHoldsEverySample(t *testing.T) {
	a := fakeTest(before())
	rows, err := csv.NewReader(strings.NewReader(render(t, FormatCSV, Page{After: a}))).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	n, p95 := 0, ""
	for _, r := range rows {
		if r[3] == "upload" && r[4] == "rtt" {
			n++
		}
		if r[3] == "upload" && r[4] == "rtt_p95" {
			p95 = r[6]
		}
	}
	if n != len(a.Upload.Series.TS) || p95 != strconv.FormatFloat(a.Upload.Latency.RTTMs.P95, 'g', -1, 64) {
		t.Errorf("%d probes of %d, p95 %s", n, len(a.Upload.Series.TS), p95)
	}
}

func TestJSONIsReadBack(t *testing.T) {
	b, a := fakeTest(before()), fakeTest(after())
	p := samplePages()["pair"]
	p.Before, p.After = b, a
	s := render(t, FormatJSON, p)
	got, err := ParseResults([]byte(s))
	if err != nil {
		t.Fatal(err)
	}
	x, _ := json.Marshal([]*verdict.Test{b, a})
	if y, _ := json.Marshal(got); !bytes.Equal(x, y) {
		t.Error("the tests changed on the way through JSON")
	}
	if !strings.Contains(s, Sentence(b, a)) {
		t.Error("the verdict is missing")
	}
}

func TestWriteFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "x.html")
	if err := os.WriteFile(path, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := WriteFile(path, Page{}); !errors.Is(err, ErrNothing) {
		t.Errorf("empty page: %v", err)
	}
	if s, _ := os.ReadFile(path); string(s) != "old" {
		t.Error("a failed report destroyed the old file")
	}
	if err := WriteFile(path, Page{After: fakeTest(after()), Goal: time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	if s, _ := os.ReadFile(path); !bytes.Contains(s, []byte("Goal missed")) {
		t.Error("the report is not there")
	}
	if err := WriteFile(filepath.Join(dir, "x.doc"), Page{}); err == nil {
		t.Error(".doc was accepted")
	}
	if err := WriteFile(filepath.Join(dir, "none", "x.html"), Page{After: fakeTest(after())}); err == nil {
		t.Error("a missing directory was accepted")
	}
	if files, _ := os.ReadDir(dir); len(files) != 1 {
		t.Errorf("left behind: %v", files)
	}
}

// contrast returns the WCAG 2.1 contrast ratio of two opaque colours, 1–21.
func contrast(a, b color.RGBA) float64 {
	x, y := luminance(a), luminance(b)
	if x < y {
		x, y = y, x
	}
	return (x + 0.05) / (y + 0.05)
}

func luminance(c color.RGBA) float64 {
	lin := func(v uint8) float64 {
		s := float64(v) / 255
		if s <= 0.04045 {
			return s / 12.92
		}
		return math.Pow((s+0.055)/1.055, 2.4)
	}
	return 0.2126*lin(c.R) + 0.7152*lin(c.G) + 0.0722*lin(c.B)
}
