package cli

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// Narrowest is the width below which text is not wrapped, as there would be one
// word per line.
const Narrowest = 40

// A Fitted wraps long lines between words. Width 0 is no terminal: nothing is wrapped.
// Flush writes a last line without a line end.
type Fitted struct {
	Width int
	Hang  int // additional indent of continued lines
	w     io.Writer
	line  bytes.Buffer
}

// Fit wraps for the terminal w, if it is one; what wraps already goes on.
func Fit(w io.Writer) *Fitted {
	if f, is := w.(*Fitted); is {
		return f
	}
	return FitTo(w, TerminalWidth(w))
}

// FitTo wraps at a width.
func FitTo(w io.Writer, width int) *Fitted { return &Fitted{Width: width, Hang: 2, w: w} }

// Say prints lines for people, wrapped for the terminal w, if it is one.
func Say(w io.Writer, format string, args ...any) {
	f := Fit(w)
	fmt.Fprintf(f, format+"\n", args...)
	_ = f.Flush() // standard error keeps its errors
}

func (f *Fitted) Write(b []byte) (int, error) {
	if f.Width < Narrowest {
		return f.w.Write(b)
	}
	f.line.Write(b)
	for {
		i := bytes.IndexByte(f.line.Bytes(), '\n')
		if i < 0 {
			return len(b), nil
		}
		if _, err := io.WriteString(f.w, Broken(string(f.line.Next(i+1)), f.Width, f.Hang)); err != nil {
			return len(b), err
		}
	}
}

// Flush writes a last line without a line end.
func (f *Fitted) Flush() error {
	_, err := io.WriteString(f.w, Broken(f.line.String(), f.Width, f.Hang))
	f.line.Reset()
	return err
}

// Broken wraps a line at width columns, with hang columns of additional
// indent. A word that is longer than a line stays whole, so that it can be
// copied.
func Broken(line string, width, hang int) string {
	if width < Narrowest || utf8.RuneCountInString(strings.TrimRight(line, "\n")) <= width {
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

// Columns prints rows of cells below each other, the first of a row being its name, and the
// first row the names of the columns. Where they are wider than the terminal, each column
// stands alone, below its name.
func Columns(w io.Writer, width int, rows [][]string) {
	wide := make([]int, len(rows[0]))
	total := -columnGap
	for i := range wide {
		for _, row := range rows {
			wide[i] = max(wide[i], utf8.RuneCountInString(row[i]))
		}
		total += wide[i] + columnGap
	}
	print := func(indent string, row []string, of ...int) {
		var b strings.Builder
		for _, i := range of {
			fmt.Fprintf(&b, "%-*s", wide[i]+columnGap, row[i])
		}
		fmt.Fprintln(w, indent+strings.TrimRight(b.String(), " "))
	}
	if width < Narrowest || total <= width {
		of := make([]int, len(wide))
		for i := range of {
			of[i] = i
		}
		for _, row := range rows {
			print("", row, of...)
		}
		return
	}
	for i := 1; i < len(wide); i++ {
		fmt.Fprintln(w, rows[0][i])
		for _, row := range rows[1:] {
			print("  ", row, 0, i)
		}
	}
}

// columnGap is between two columns.
const columnGap = 2
