// Package metrics writes what unbloat does in Prometheus's text format, and keeps
// a day of it in memory. It is pure: figures and instants come in.
package metrics

import (
	"io"
	"math"
	"strconv"

	"unbloat/guard"
)

// ContentType is that of the text format.
const ContentType = "text/plain; version=0.0.4; charset=utf-8"

// Kinds of metrics.
const (
	Gauge   = "gauge"
	Counter = "counter"
	Hist    = "histogram"
)

// A Text writes metrics in the text format. Whether the reader hears it to its end
// does not matter, so errors of writing end nothing.
type Text struct {
	w   io.Writer
	buf []byte
}

// NewText returns a Text that writes to w.
func NewText(w io.Writer) *Text { return &Text{w: w} }

// Head begins a metric: its name, its kind and what it is.
func (t *Text) Head(name, kind, help string) {
	t.buf = append(append(append(append(t.buf[:0], "# HELP "...), name...), ' '), help...)
	t.buf = append(append(append(t.buf, "\n# TYPE "...), name...), ' ')
	t.buf = append(append(t.buf, kind...), '\n')
	t.flush()
}

// Value writes one value. labels are names and values in turn.
func (t *Text) Value(name string, value float64, labels ...string) {
	t.buf = append(t.buf[:0], name...)
	for i := 0; i+1 < len(labels); i += 2 {
		separator := byte(',')
		if i == 0 {
			separator = '{'
		}
		t.buf = append(append(append(t.buf, separator), labels[i]...), '=', '"')
		t.buf = append(appendEscaped(t.buf, labels[i+1]), '"')
	}
	if len(labels) > 1 {
		t.buf = append(t.buf, '}')
	}
	t.buf = append(appendNumber(append(t.buf, ' '), value), '\n')
	t.flush()
}

func (t *Text) flush() { _, _ = t.w.Write(t.buf) }

// appendEscaped appends a label's value, made visible, as the format wants it: with
// backslash, quote and the end of a line escaped.
func appendEscaped(b []byte, s string) []byte {
	s = guard.Visible(s)
	for i := range len(s) {
		switch c := s[i]; c {
		case '\\', '"':
			b = append(b, '\\', c)
		case '\n':
			b = append(b, '\\', 'n')
		default:
			b = append(b, c)
		}
	}
	return b
}

// appendNumber appends a value: whole numbers without a fraction or an exponent.
func appendNumber(b []byte, v float64) []byte {
	const exact = 1 << 53
	switch {
	case math.IsInf(v, 1):
		return append(b, "+Inf"...)
	case math.IsInf(v, -1):
		return append(b, "-Inf"...)
	case v == math.Trunc(v) && math.Abs(v) < exact:
		return strconv.AppendInt(b, int64(v), 10)
	}
	return strconv.AppendFloat(b, v, 'g', -1, 64)
}
