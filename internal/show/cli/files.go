package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/charmbracelet/x/term"
)

// WriteFile writes a file completely or not at all: to a temporary file that is
// then renamed. If path is not a regular file, such as /dev/null or a pipe, it
// writes into that.
func WriteFile(path string, text []byte, mode fs.FileMode) error {
	if fi, err := os.Stat(path); err == nil && !fi.Mode().IsRegular() {
		return writeInto(path, text)
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".unbloat-*")
	if err != nil {
		return unwritten(path, "", err)
	}
	defer os.Remove(f.Name())
	_, err = f.Write(text)
	if err == nil {
		err = f.Chmod(mode)
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return unwritten(path, "; nothing was written", err)
	}
	return nil
}

// unwritten is the error of a file that could not be written, with what to do. came
// says what came of it.
func unwritten(path, came string, err error) error {
	remedy := ""
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		remedy = "; make room there, or name another file"
	case errors.Is(err, syscall.EROFS), errors.Is(err, fs.ErrPermission):
		remedy = "; name a file where you may write"
	}
	return fmt.Errorf("write %s: %w%s%s", path, err, came, remedy)
}

// CheckWritable refuses a path that cannot be written, before a measurement is
// made for it. It changes no existing file.
func CheckWritable(path string) error {
	fi, err := os.Stat(path)
	switch {
	case err == nil && fi.IsDir():
		return fmt.Errorf("write %s: it is a directory", path)
	case err == nil && !fi.Mode().IsRegular(): // opening a pipe would wait for its reader
		return nil
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".unbloat-*")
	if err != nil {
		return unwritten(path, "", err)
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

func writeInto(path string, text []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err == nil {
		_, err = f.Write(text)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		return unwritten(path, "", err)
	}
	return nil
}

// PrintJSON prints v as one line of JSON.
func PrintJSON(w io.Writer, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("print the result: %w", err)
	}
	_, err = fmt.Fprintf(w, "%s\n", b)
	return err
}

// IsTerminal reports whether w is a terminal.
func IsTerminal(w io.Writer) bool {
	f, ok := w.(interface{ Stat() (fs.FileInfo, error) })
	if !ok {
		return false
	}
	fi, err := f.Stat()
	return err == nil && fi.Mode()&fs.ModeCharDevice != 0
}

// TerminalWidth returns the width of the terminal w in columns; 0 if w is none.
func TerminalWidth(w io.Writer) int {
	f, ok := w.(interface{ Fd() uintptr })
	if !ok {
		return 0
	}
	width, _, err := term.GetSize(f.Fd())
	if err != nil {
		return 0
	}
	return width
}
