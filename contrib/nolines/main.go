// Command nolines makes programs smaller: it writes an overlay for `go build` in which
// no statement has a line number. The table of line numbers is a seventh of a program, and
// packs badly. What is lost is the line in the trace of a crash; functions and their
// offsets stay, and the same build with line numbers tells the line from these.
//
//	nolines DIRECTORY OS/PROCESSOR [go list's arguments] PACKAGES
//
// It copies the sources of these packages and of all they import to DIRECTORY, and
// writes overlay.json there. Modules of others keep their lines.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/scanner"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// mark says that what follows it is the first line. A file's own name would be as long
// as all of its lines.
const mark = "/*line x.go:1*/"

func main() {
	system, processor, is := "", "", false
	if len(os.Args) > 3 {
		system, processor, is = strings.Cut(os.Args[2], "/")
	}
	if !is {
		fmt.Fprintln(os.Stderr, "usage: nolines DIRECTORY OS/PROCESSOR [go list's arguments] PACKAGES")
		os.Exit(2)
	}
	if err := write(os.Args[1], []string{"GOOS=" + system, "GOARCH=" + processor}, os.Args[3:]); err != nil {
		fmt.Fprintln(os.Stderr, "nolines:", err)
		os.Exit(1)
	}
}

// write writes the overlay of packages to a directory. env is what differs in the
// environment.
func write(dir string, env, packages []string) error {
	list := exec.Command("go", append([]string{"list", "-deps", "-json=Dir,GoFiles,Standard,Module"}, packages...)...)
	list.Env, list.Stderr = append(os.Environ(), env...), os.Stderr
	out, err := list.Output()
	if err != nil {
		return fmt.Errorf("listing the packages of the program: %w", err)
	}
	replace := map[string]string{}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct {
			Dir      string
			GoFiles  []string
			Standard bool
			Module   *struct{ Main bool }
		}
		if err := d.Decode(&p); err == io.EOF {
			break
		} else if err != nil {
			return fmt.Errorf("reading the list of packages: %w", err)
		}
		if !p.Standard && (p.Module == nil || !p.Module.Main) {
			continue // go lets nobody replace what is in its cache of modules
		}
		for _, name := range p.GoFiles {
			from := filepath.Join(p.Dir, name)
			text, err := os.ReadFile(from)
			if err != nil {
				return err
			}
			to := filepath.Join(dir, fmt.Sprintf("nolines-%d.txt", len(replace)))
			if err := os.WriteFile(to, marked(text), 0o644); err != nil {
				return err
			}
			replace[from] = to
		}
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "overlay.json"), text, 0o644)
}

// marked returns a source with the mark before the first word of each line. A text over
// several lines has none within.
func marked(text []byte) []byte {
	var out bytes.Buffer
	var s scanner.Scanner
	files := token.NewFileSet()
	file := files.AddFile("", -1, len(text))
	s.Init(file, text, func(token.Position, string) {}, 0)
	written, line := 0, 0
	for {
		pos, t, literal := s.Scan()
		if t == token.EOF {
			break
		}
		if t == token.SEMICOLON && literal == "\n" {
			continue // it is not in the text
		}
		at := file.Offset(pos)
		if l := file.PositionFor(pos, false).Line; l != line {
			out.Write(text[written:at])
			out.WriteString(mark)
			written, line = at, l
		}
	}
	out.Write(text[written:])
	return out.Bytes()
}
