//go:build unix

package guard

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// TrustedDir returns a directory of this machine without links, if nobody but root and this user
// can change it, or can have led to it.
func TrustedDir(dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	return ResolveTrusted(dir, os.Geteuid(), here)
}

// OpenTrusted opens a file of this machine to be read, if TrustedFile takes it. It waits for nothing.
func OpenTrusted(file string) (*os.File, error) {
	uid := os.Geteuid()
	at, err := TrustedFile(file, uid, here)
	if err != nil {
		return nil, err
	}
	f, err := openRegular(at, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	// Again, of what is open: by now it may be another one.
	dir := filepath.Dir(at) + "/."
	entries, err := here(dir)
	if err == nil {
		var info fs.FileInfo
		if info, err = f.Stat(); err == nil {
			err = entry(info).readable(file, at, uid, entries[dir])
		}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// OpenOwn opens a file in a directory that TrustedDir trusts, and makes it if flag says so. It
// waits for nothing, and follows no link to the file.
func OpenOwn(file string, flag int) (*os.File, error) {
	dir, err := TrustedDir(filepath.Dir(file))
	if err != nil {
		return nil, err
	}
	return openRegular(filepath.Join(dir, filepath.Base(file)), flag)
}

// openRegular opens a regular file; a new one is for its owner alone.
func openRegular(file string, flag int) (*os.File, error) {
	f, err := os.OpenFile(file, flag|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = &UntrustedError{Path: file, At: file, Why: "is no regular file"}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// here is the Look of this machine.
func here(paths ...string) (map[string]Entry, error) {
	out := map[string]Entry{}
	for _, p := range paths {
		info, err := os.Lstat(p)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("look whose %s is: %w", p, err)
		}
		e := entry(info)
		if e.Mode&fs.ModeSymlink != 0 {
			if e.Link, err = os.Readlink(p); err != nil {
				return nil, err
			}
		}
		out[p] = e
	}
	return out, nil
}

func entry(info fs.FileInfo) Entry {
	e := Entry{Mode: info.Mode(), UID: -1, GID: -1}
	if s, is := info.Sys().(*syscall.Stat_t); is {
		e.UID, e.GID = int(s.Uid), int(s.Gid)
	}
	return e
}
