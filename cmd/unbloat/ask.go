package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"unbloat/internal/show/cli"
)

// errNobody says that nobody is there to answer: standard input has ended.
var errNobody = errors.New("nobody answers")

// mostAnswer is the longest line that is read as an answer.
const mostAnswer = 1000

// ask prints a question and returns the answer; an empty line is the usual one. A
// signal is no answer, and never yes: cli.ErrInterrupted. It takes no more of in than the
// answer, so that the next question has the next line.
func ask(in io.Reader, out io.Writer, question string, usual bool) (bool, error) {
	fmt.Fprintf(out, "%s %s ", question, map[bool]string{true: "[Y/n]", false: "[y/N]"}[usual])
	for {
		if f, is := out.(interface{ Flush() error }); is {
			if err := f.Flush(); err != nil {
				return false, err
			}
		}
		line, err := readAnswer(in)
		if err != nil {
			fmt.Fprintln(out)
			if !errors.Is(err, cli.ErrInterrupted) {
				err = errNobody
			}
			return false, err
		}
		switch strings.ToLower(strings.TrimSpace(line)) {
		case "y", "yes":
			return true, nil
		case "n", "no", "q", "quit":
			return false, nil
		case "":
			return usual, nil
		}
		fmt.Fprint(out, "Please answer y or n: ")
	}
}

// readAnswer reads a line, byte by byte.
func readAnswer(in io.Reader) (string, error) {
	var line []byte
	for b := []byte{0}; len(line) < mostAnswer; {
		if _, err := io.ReadFull(in, b); err != nil && (err != io.EOF || len(line) == 0) {
			return "", err
		} else if err != nil {
			break
		}
		if b[0] == '\n' {
			break
		}
		line = append(line, b[0])
	}
	return string(line), nil
}
