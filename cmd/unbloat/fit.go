package main

import (
	"bytes"
	"io"
	"strings"
	"unicode/utf8"
)

// narrowest is the width below which text is no longer fitted: words would stand
// alone.
const narrowest = 40

// fit returns a writer that breaks long lines between words where a terminal
// would break them anywhere. What continues a line is indented deeper than its
// beginning. A width of 0 is no terminal, and nothing is broken. Flush writes a
// last line that has no end.
func fit(w io.Writer, width int) *fitted { return &fitted{w: w, width: width, hang: 2} }

type fitted struct {
	w     io.Writer
	width int
	hang  int // how much deeper
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

// Flush writes what has no end of line yet.
func (f *fitted) Flush() error {
	_, err := io.WriteString(f.w, brokenLine(f.line.String(), f.width, f.hang))
	f.line.Reset()
	return err
}

// brokenLine breaks a line into lines of at most width columns, the next ones
// indented deeper by hang. A word that is longer stays whole, so that it can be
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
