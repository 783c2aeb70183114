package main

import (
	"bytes"
	"io"
	"strings"
	"unicode/utf8"
)

// narrowest is the width below which text is not wrapped, as there would be one
// word per line.
const narrowest = 40

// fit returns a writer that wraps long lines between words. Continued lines are
// indented by two more columns. A width of 0 means no terminal: nothing is
// wrapped. Flush writes a last line without a line end.
func fit(w io.Writer, width int) *fitted { return &fitted{w: w, width: width, hang: 2} }

type fitted struct {
	w     io.Writer
	width int
	hang  int // additional indent of continued lines
	line  bytes.Buffer
}

func (f *fitted) Write(b []byte) (int, error) {
	if f.width < narrowest {
		return f.w.Write(b)
	}
	f.line.Write(b)
	for {
		i := bytes.IndexByte(f.line.Bytes(), '\n')
		if i < 0 {
			return len(b), nil
		}
		if _, err := io.WriteString(f.w, brokenLine(string(f.line.Next(i+1)), f.width, f.hang)); err != nil {
			return len(b), err
		}
	}
}

// Flush writes a last line without a line end.
func (f *fitted) Flush() error {
	_, err := io.WriteString(f.w, brokenLine(f.line.String(), f.width, f.hang))
	f.line.Reset()
	return err
}

// brokenLine wraps a line at width columns, with hang columns of additional
// indent. A word that is longer than a line stays whole, so that it can be
// copied.
func brokenLine(line string, width, hang int) string {
	if width < narrowest || utf8.RuneCountInString(strings.TrimRight(line, "\n")) <= width {
		return line
	}
	text := strings.TrimLeft(line, " ")
	indent := strings.Repeat(" ", min(len(line)-len(text)+hang, width/3))
	var b strings.Builder
	b.WriteString(line[:len(line)-len(text)])
	col, empty := len(line)-len(text), true
	for _, word := range strings.SplitAfter(text, " ") {
		n := utf8.RuneCountInString(strings.TrimRight(word, " \n"))
		if !empty && col+n > width {
			out := strings.TrimRight(b.String(), " ")
			b.Reset()
			b.WriteString(out + "\n" + indent)
			col = len(indent)
		}
		b.WriteString(word)
		col += utf8.RuneCountInString(word)
		empty = false
	}
	return b.String()
}
