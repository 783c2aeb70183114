package report

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// WriteFile renders the page into the file at path, in the format its name
// asks for. The file appears whole or not at all.
func WriteFile(path string, p Page) error {
	format, err := FormatOf(path)
	if err != nil {
		return err
	}
	return writeWhole(path, func(w io.Writer) error { return Write(format, w, p) })
}

// writeWhole makes a file that appears whole or not at all: it is written beside
// path and renamed, so what was there before stays if the disk is full.
func writeWhole(path string, write func(io.Writer) error) (err error) {
	f, err := createBeside(path)
	if err != nil {
		return fmt.Errorf("write report %s: %w", path, err)
	}
	defer func() {
		if err != nil {
			f.Close()
			os.Remove(f.Name())
			err = fmt.Errorf("write report %s: %w", path, err)
		}
	}()
	if err = write(f); err != nil {
		return err
	}
	if err = f.Sync(); err != nil {
		return err
	}
	if err = f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// createBeside makes a new file in the directory of path, with the permissions
// that a file made by path's own name would get.
func createBeside(path string) (*os.File, error) {
	if fi, err := os.Stat(path); err == nil && !fi.Mode().IsRegular() {
		return nil, fmt.Errorf("not a regular file (%s)", fi.Mode().Type())
	}
	dir, name := filepath.Split(path)
	for i := 0; ; i++ {
		tmp := fmt.Sprintf("%s.%s.%d.%d.tmp", dir, name, os.Getpid(), i)
		f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
		if os.IsExist(err) && i < 100 {
			continue
		}
		return f, err
	}
}
