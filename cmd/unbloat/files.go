package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"unbloat/guard"
	"unbloat/unit"
)

// maxResultBytes is the largest result file that is read.
const maxResultBytes = 256 * unit.MB

// readFile reads a file that may be anybody's, of at most so many bytes; "-" is
// standard input, unless that is nil.
func readFile(in io.Reader, path string, most unit.Size) ([]byte, error) {
	if path != "-" || in == nil {
		f, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		in = f
	}
	text, err := guard.Limit{Size: most}.Read(in)
	if errors.Is(err, guard.ErrLong) {
		return nil, fmt.Errorf("%s: %w; is it the right file?", path, err)
	}
	return text, err
}

// readKey reads a server's key: the first line of a file.
func readKey(file string) (string, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("read the server's key: %w", err)
	}
	line, _, _ := strings.Cut(string(b), "\n")
	if line = strings.TrimSpace(line); line == "" {
		return "", fmt.Errorf("read the server's key from %s: its first line is empty", file)
	}
	return line, nil
}
