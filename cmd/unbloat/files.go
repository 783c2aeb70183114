package main

import (
	"fmt"
	"os"
	"path/filepath"
)

// writeFile writes a file whole or not at all: beside it first, then moved.
func writeFile(path string, text []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".unbloat-*")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	defer os.Remove(f.Name())
	_, err = f.Write(text)
	if err == nil {
		err = f.Chmod(0o644)
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w; nothing was written", path, err)
	}
	return nil
}
