package platform

import (
	"context"
	"errors"
	"io/fs"
	"strconv"
	"strings"

	"unbloat/guard"
)

// TrustedDir returns where a directory of the router really is, if nobody but root and
// the user uid, by which the commands run, can change it.
func TrustedDir(ctx context.Context, r Runner, dir string, uid int) (string, error) {
	return guard.ResolveTrusted(dir, uid, looking(ctx, r))
}

// ReadTrusted reads a file of the router, if it is a regular one that not just anybody
// can have put there. The error is fs.ErrNotExist if there is none.
func ReadTrusted(ctx context.Context, r Runner, file string) ([]byte, error) {
	const root = 0
	at, err := guard.TrustedFile(file, root, looking(ctx, r))
	if err != nil {
		return nil, err
	}
	return Output(ctx, r, "cat", at)
}

// looking is the Look of a router. ls(1) is on all of them, as stat(1) is not.
func looking(ctx context.Context, r Runner) guard.Look {
	return func(paths ...string) (map[string]guard.Entry, error) {
		out, err := Output(ctx, r, append([]string{"ls", "-ldn"}, paths...)...)
		var some *CommandError // of several it prints those that are there
		if err != nil && !errors.As(err, &some) {
			return nil, err
		}
		entries := map[string]guard.Entry{}
		for line := range strings.Lines(string(out)) {
			listed(strings.TrimSuffix(line, "\n"), paths, entries)
		}
		return entries, nil
	}
}

// listed reads a line of `ls -ldn`: mode, links, user, group, size, time, path, and where
// a link leads. Of a line that is none nothing is known.
func listed(line string, paths []string, into map[string]guard.Entry) {
	w := strings.Fields(line)
	if len(w) < 4 {
		return
	}
	mode, ok := modeOf(w[0])
	uid, errUID := strconv.Atoi(w[2])
	gid, errGID := strconv.Atoi(w[3])
	if !ok || errUID != nil || errGID != nil {
		return
	}
	e := guard.Entry{Mode: mode, UID: uid, GID: gid}
	name := line
	if mode&fs.ModeSymlink != 0 {
		name, e.Link, _ = strings.Cut(line, " -> ")
	}
	for _, p := range paths {
		if strings.HasSuffix(name, " "+p) {
			into[p] = e
		}
	}
}

// modeOf reads a mode as ls(1) writes it: drwxr-xr-x, with a sign for further access
// lists behind it.
func modeOf(s string) (fs.FileMode, bool) {
	const letters = "rwxrwxrwx"
	kinds := map[byte]fs.FileMode{'-': 0, 'd': fs.ModeDir, 'l': fs.ModeSymlink, 'p': fs.ModeNamedPipe, 's': fs.ModeSocket,
		'b': fs.ModeDevice, 'c': fs.ModeDevice | fs.ModeCharDevice}
	if len(s) < 1+len(letters) {
		return 0, false
	}
	mode, ok := kinds[s[0]]
	for i := range letters {
		switch c, bit := s[1+i], fs.FileMode(1)<<(len(letters)-1-i); {
		case c == letters[i]:
			mode |= bit
		case c == 's' && (i == 2 || i == 5):
			mode |= bit
		case c == 't' && i == 8:
			mode |= bit | fs.ModeSticky
		case c == 'T' && i == 8:
			mode |= fs.ModeSticky
		case c != '-' && !(c == 'S' && (i == 2 || i == 5)):
			ok = false
		}
	}
	return mode, ok
}
