package main

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// source writes a tarball of the files that git knows, as they are here, and of
// the modules that they are built with: Go finds them in the directory vendor, and
// needs no network.
func (r *release) source(ctx context.Context) error {
	list, err := r.output(ctx, "git", "ls-files", "-z")
	if err != nil {
		return fmt.Errorf("list the source: %w; a source tarball is made from a clone of the repository", err)
	}
	var files []file
	for name := range bytes.SplitSeq(bytes.TrimSuffix(list, []byte{0}), []byte{0}) {
		f, err := fileOf(string(name), ".")
		if err != nil {
			return err
		}
		files = append(files, f)
	}
	vendor := filepath.Join(r.work, "vendor")
	if err := r.run("go", "mod", "vendor", "-o", vendor); err != nil {
		return err
	}
	err = filepath.WalkDir(vendor, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rest, err := filepath.Rel(r.work, p)
		if err != nil {
			return err
		}
		f, err := fileOf(rest, r.work)
		files = append(files, f)
		return err
	})
	if err != nil {
		return err
	}
	name := "unbloat-" + r.plain() + "-src"
	packed, err := tarred(name, files, r.date)
	if err != nil {
		return err
	}
	return r.write(name+".tar.gz", gzipped(packed, time.Time{}))
}

// fileOf reads a file below a directory. Its mode is one of two, whatever the umask
// was when it came here.
func fileOf(name, dir string) (file, error) {
	at := filepath.Join(dir, name)
	info, err := os.Stat(at)
	if err != nil {
		return file{}, err
	}
	text, err := os.ReadFile(at)
	mode := fs.FileMode(0o644)
	if info.Mode()&0o100 != 0 && !strings.HasPrefix(name, "vendor"+string(filepath.Separator)) {
		mode = 0o755
	}
	return file{filepath.ToSlash(name), mode, text}, err
}
