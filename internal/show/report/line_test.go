package report

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

// aLine is the history of a line: an hour, with a gap.
func aLine() *Line {
	l := &Line{Schema: LineSchema, WAN: "wwan0", Step: 60}
	for m := range 60 {
		if m >= 20 && m < 30 {
			continue
		}
		l.At = append(l.At, 1795000000000+int64(m)*60_000)
		for _, w := range []*LineWay{&l.Down, &l.Up} {
			w.Rate, w.Carried = append(w.Rate, 40e6-int64(m)*1e5), append(w.Carried, 10e6)
			w.Capacity = append(w.Capacity, int64(m%2)*42e6)
			mean, most := 2.0, float64(m)
			w.Delay, w.DelayMax = append(w.Delay, &mean), append(w.DelayMax, &most)
		}
	}
	return l
}

// TestLine: the history of a line is drawn in every format that can hold it, with its
// gap, and its words are the same everywhere.
func TestLine(t *testing.T) {
	l := aLine()
	if err := l.Check(); err != nil {
		t.Fatal(err)
	}
	const says = "The download was shaped to 34.1 to 40.0 Mbit/s; queues on the line added at most 59 ms."
	for _, f := range []Format{FormatHTML, FormatSVG, FormatPNG, FormatCSV, FormatJSON} {
		var b bytes.Buffer
		if err := Write(f, &b, Page{Lines: []*Line{l}}); err != nil || b.Len() == 0 {
			t.Errorf("%s: %d bytes, %v", f, b.Len(), err)
		}
		if text := b.String(); f == FormatHTML && !strings.Contains(text, says) || f == FormatJSON && !strings.Contains(text, `"delay_max_ms"`) || f == FormatCSV && strings.Count(text, "\n") != 1+2*50 {
			t.Errorf("%s says\n%.3000s", f, text)
		}
	}
	if err := Write(FormatFlent, &bytes.Buffer{}, Page{Lines: []*Line{l}}); !errors.Is(err, ErrUnsuitable) {
		t.Errorf("as flent: %v", err)
	}
	for name, bad := range map[string]func(*Line){
		"empty": func(l *Line) { *l = Line{Step: 1} },
		"short": func(l *Line) { l.Up.Delay = l.Up.Delay[1:] },
		"order": func(l *Line) { l.At[0] = l.At[3] },
		"far":   func(l *Line) { l.At[len(l.At)-1] = 1 << 50 },
		"step":  func(l *Line) { l.Step = 0 },
	} {
		l := aLine()
		if bad(l); l.Check() == nil {
			t.Errorf("%s: not refused", name)
		}
	}
	fixed := aLine()
	for i := range fixed.At {
		for _, w := range []*LineWay{&fixed.Down, &fixed.Up} {
			w.Delay[i], w.DelayMax[i] = nil, nil
		}
	}
	for f, has := range map[Format]string{FormatHTML: "The delay was not measured", FormatCSV: ",10000000,,\n", FormatJSON: `null`} {
		var b bytes.Buffer
		if err := Write(f, &b, Page{Lines: []*Line{fixed}}); err != nil || !strings.Contains(b.String(), has) || strings.Contains(b.String(), "queues on the line added") {
			t.Errorf("fixed, as %s: %v\n%.3000s", f, err, b.String())
		}
	}
	fixed.Down.DelayMax[3] = new(float64)
	var page bytes.Buffer
	if err := Write(FormatHTML, &page, Page{Lines: []*Line{fixed}}); err != nil || !strings.Contains(page.String(), "queues on the line added at most 0 ms") || strings.Contains(page.String(), "not measured") {
		t.Errorf("measured once: %v", err)
	}
	evil := aLine()
	evil.WAN = "=<script>\x1b"
	var b bytes.Buffer
	if err := Write(FormatHTML, &b, Page{Lines: []*Line{evil}}); err != nil || strings.Contains(b.String(), "<script>") || strings.Contains(b.String(), "\x1b") {
		t.Error("a hostile name gets into the page")
	}
}
