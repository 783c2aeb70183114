// This file tells the places of a file system that only root, or the user who runs
// this, can have made from those that anybody may make. What unbloat runs, locks or
// believes is in the former alone. ResolveTrusted and TrustedFile are the rules, for what this machine or
// a router elsewhere says of its files; TrustedDir, OpenTrusted and OpenOwn ask this machine.

package guard

import (
	"fmt"
	"io/fs"
	"path"
	"strings"
)

// An Entry is what a path is, without following a link.
type Entry struct {
	Mode     fs.FileMode
	UID, GID int
	Link     string // where it leads, if it is a link
}

// A Look returns the entries of paths. One that is not there is not in the map.
type Look func(paths ...string) (map[string]Entry, error)

// An UntrustedError says which part of a path is not to be trusted, and why.
type UntrustedError struct {
	Path, At string // At is the part: Path, a directory above it, or where a link leads
	Why      string
	Err      error // fs.ErrNotExist if it is not there
}

func (e *UntrustedError) Error() string {
	at := ""
	if e.At != e.Path {
		at = e.At + " "
	}
	return fmt.Sprintf("trust %s: %s%s", e.Path, at, e.Why)
}

// Unwrap returns Err.
func (e *UntrustedError) Unwrap() error { return e.Err }

const (
	root      = 0
	mostLinks = 40 // of one path, as in Linux
)

// ResolveTrusted returns the directory to which an absolute path leads, without links, if nobody
// but root and the user uid can change it, or put another in its place: every part is
// theirs and can be written by nobody else. A directory above may be sticky, as /tmp is:
// nobody replaces what is root's there.
func ResolveTrusted(dir string, uid int, look Look) (string, error) {
	at := path.Clean(dir)
	for range mostLinks {
		parts := parts(at)
		entries, err := look(parts...)
		if err != nil {
			return "", err
		}
		next := at
		for _, part := range parts {
			e, is := entries[part]
			if err := e.check(dir, part, uid, is, part == at); err != nil {
				return "", err
			}
			if e.Mode&fs.ModeSymlink != 0 {
				next = follow(part, e.Link) + strings.TrimPrefix(at, part)
				break
			}
		}
		if next == at {
			return at, nil
		}
		at = path.Clean(next)
	}
	return "", &UntrustedError{Path: dir, At: dir, Why: "has too many links"}
}

// parts are the directories of a path, from the root.
func parts(at string) []string {
	out := []string{"/"}
	for i := 1; i < len(at); i++ {
		if at[i] == '/' {
			out = append(out, at[:i])
		}
	}
	if at != "/" {
		out = append(out, at)
	}
	return out
}

// follow returns where the link at a path leads.
func follow(at, link string) string {
	if path.IsAbs(link) {
		return link
	}
	return path.Join(path.Dir(at), link)
}

// check is the rule for one part of the path dir. A link is as good as who made it.
func (e Entry) check(dir, part string, uid int, is, last bool) error {
	bad := func(why string, err error) error { return &UntrustedError{Path: dir, At: part, Why: why, Err: err} }
	switch sticky := e.Mode&fs.ModeSticky != 0; {
	case !is:
		return bad("is not there", fs.ErrNotExist)
	case !e.owned(uid):
		return bad(fmt.Sprintf("belongs to user %d, who could change it", e.UID), nil)
	case e.Mode&fs.ModeSymlink != 0:
		return nil
	case !e.Mode.IsDir():
		return bad("is no directory", nil)
	case e.othersWrite() && (last || !sticky):
		return bad(fmt.Sprintf("can be changed by others (mode %o); take that away with chmod go-w", e.Mode.Perm()), nil)
	}
	return nil
}

func (e Entry) owned(uid int) bool { return e.UID == root || e.UID == uid }

// othersWrite reports whether others than the owner may write. A group with the owner's
// number is his own (on BSD, root's is of those who may become root).
func (e Entry) othersWrite() bool {
	return e.Mode&0o002 != 0 || e.Mode&0o020 != 0 && e.GID != e.UID
}

// TrustedFile returns the file to which a path leads, if it is a regular one, which can't hold up
// its reader, and not one that just anybody can have put there. A service may own it and
// its directory: its files say what it knows. Links are followed that root or the user uid
// made.
func TrustedFile(file string, uid int, look Look) (string, error) {
	at := path.Clean(file)
	for range mostLinks {
		dir := path.Dir(at) + "/." // and not a link to it
		entries, err := look(dir, at)
		if err != nil {
			return "", err
		}
		e, is := entries[at]
		if !is {
			return "", &UntrustedError{Path: file, At: at, Why: "is not there", Err: fs.ErrNotExist}
		}
		if e.Mode&fs.ModeSymlink == 0 || !e.owned(uid) {
			if err := e.readable(file, at, uid, entries[dir]); err != nil {
				return "", err
			}
			return at, nil
		}
		at = path.Clean(follow(at, e.Link))
	}
	return "", &UntrustedError{Path: file, At: file, Why: "has too many links"}
}

// readable is the rule for a file in a directory.
func (e Entry) readable(file, at string, uid int, dir Entry) error {
	bad := func(why string) error { return &UntrustedError{Path: file, At: at, Why: why} }
	switch {
	case !e.Mode.IsRegular():
		return bad("is no regular file")
	case e.Mode&0o002 != 0:
		return bad("can be changed by anybody")
	case dir.Mode&0o002 != 0 && (dir.Mode&fs.ModeSticky == 0 || !e.owned(uid)):
		return bad(fmt.Sprintf("is where anybody may make files, and belongs to user %d", e.UID))
	}
	return nil
}
