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

// ask prints a question and returns the answer; an empty line is the usual one.
func ask(in io.Reader, out io.Writer, question string, usual bool) (bool, error) {
	prompt := question + map[bool]string{true: " [Y/n] ", false: " [y/N] "}[usual]
	return choose(in, out, prompt, "Please answer y or n: ",
		map[string]bool{"y": true, "yes": true, "n": false, "no": false, "q": false, "quit": false, "": usual})
}

// choose prints a question and returns what the answer stands for; another answer gets
// please. A signal is no answer, and never yes: cli.ErrInterrupted. It takes no more of in
// than the answer, so that the next question has the next line.
func choose[T any](in io.Reader, out io.Writer, question, please string, answers map[string]T) (none T, err error) {
	fmt.Fprint(out, question)
	for {
		if f, is := out.(interface{ Flush() error }); is {
			if err := f.Flush(); err != nil {
				return none, err
			}
		}
		line, err := readAnswer(in)
		if err != nil {
			fmt.Fprintln(out)
			if !errors.Is(err, cli.ErrInterrupted) {
				err = errNobody
			}
			return none, err
		}
		if answer, is := answers[strings.ToLower(strings.TrimSpace(line))]; is {
			return answer, nil
		}
		fmt.Fprint(out, please)
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
