package guard

import (
	"errors"
	"io/fs"
	"testing"
)

// us is the user of these tests, them another.
const us, them = 1000, 65534

func dir(mode fs.FileMode, uid int) Entry {
	return Entry{Mode: fs.ModeDir | mode, UID: uid, GID: uid}
}
func link(to string, uid int) Entry {
	return Entry{Mode: fs.ModeSymlink | 0o777, UID: uid, GID: uid, Link: to}
}
func file(mode fs.FileMode, uid int) Entry { return Entry{Mode: mode, UID: uid, GID: uid} }

// system is what a system has beside further entries.
func system(more map[string]Entry) Look {
	all := map[string]Entry{
		"/": dir(0o755, 0), "/etc": dir(0o755, 0), "/run": dir(0o755, 0), "/tmp": dir(fs.ModeSticky|0o777, 0),
		"/home": dir(0o755, 0), "/home/us": dir(0o700, us), "/home/them": dir(0o755, them),
	}
	for p, e := range more {
		all[p] = e
	}
	return func(paths ...string) (map[string]Entry, error) {
		out := map[string]Entry{}
		for _, p := range paths {
			e, is := all[p]
			if n := len(p); !is && n > 1 && p[n-2:] == "/." {
				e, is = all[p[:n-2]]
			}
			if is {
				out[p] = e
			}
		}
		return out, nil
	}
}

// TestResolve: a directory is where its path leads, if every part is root's or ours and
// nobody else can write it; a sticky one may be above. A link is as good as who made it.
func TestResolve(t *testing.T) {
	openwrt := map[string]Entry{"/var": link("tmp", 0), "/tmp/run": dir(0o755, 0)}
	for _, x := range []struct {
		name, dir string
		more      map[string]Entry
		want      string // "": refused at
		at        string
	}{
		{"Debian", "/var/run", map[string]Entry{"/var": dir(0o755, 0), "/var/run": link("/run", 0)}, "/run", ""},
		{"BSD", "/var/run", map[string]Entry{"/var": dir(0o755, 0), "/var/run": {Mode: fs.ModeDir | 0o775}}, "/var/run", ""},
		{"OpenWrt", "/var/run", openwrt, "/tmp/run", ""},
		{"the root", "/", nil, "/", ""},
		{"ours at home", "/home/us/.cache/x/", map[string]Entry{"/home/us/.cache": dir(0o775, us), "/home/us/.cache/x": dir(0o755, us)}, "/home/us/.cache/x", ""},
		{"ours in /tmp", "/tmp/x/y", map[string]Entry{"/tmp/x": dir(0o755, us), "/tmp/x/y": dir(0o700, us)}, "/tmp/x/y", ""},
		{"a relative link up", "/tmp/x/y", map[string]Entry{"/tmp/x": dir(0o755, 0), "/tmp/x/y": link("../../run", 0)}, "/run", ""},
		{"/tmp itself", "/tmp", nil, "", "/tmp"},
		{"theirs in /tmp", "/tmp/run", map[string]Entry{"/tmp/run": dir(0o755, them)}, "", "/tmp/run"},
		{"theirs above", "/tmp/x/y", map[string]Entry{"/tmp/x": dir(0o755, them), "/tmp/x/y": dir(0o700, 0)}, "", "/tmp/x"},
		{"their link to root's", "/tmp/x", map[string]Entry{"/tmp/x": link("/etc", them)}, "", "/tmp/x"},
		{"our link to theirs", "/tmp/x", map[string]Entry{"/tmp/x": link("/home/them", us)}, "", "/home/them"},
		{"a group of others", "/run/x", map[string]Entry{"/run/x": {Mode: fs.ModeDir | 0o775, GID: 100}}, "", "/run/x"},
		{"everybody's above", "/srv/x", map[string]Entry{"/srv": dir(0o777, 0), "/srv/x": dir(0o755, 0)}, "", "/srv"},
		{"sticky at the end", "/run/x", map[string]Entry{"/run/x": dir(fs.ModeSticky|0o777, 0)}, "", "/run/x"},
		{"a FIFO", "/run/x", map[string]Entry{"/run/x": {Mode: fs.ModeNamedPipe | 0o644}}, "", "/run/x"},
		{"a file", "/run/x", map[string]Entry{"/run/x": file(0o644, 0)}, "", "/run/x"},
		{"nothing", "/var/run", nil, "", "/var"},
		{"links in a circle", "/run/x", map[string]Entry{"/run/x": link("/run/y", 0), "/run/y": link("x", 0)}, "", "/run/x"},
	} {
		got, err := ResolveTrusted(x.dir, us, system(x.more))
		var e *UntrustedError
		switch {
		case x.want != "" && (err != nil || got != x.want):
			t.Errorf("%s: %s leads to %q (%v), want %s", x.name, x.dir, got, err, x.want)
		case x.want == "" && (!errors.As(err, &e) || e.At != x.at || got != ""):
			t.Errorf("%s: %s leads to %q (%v), want a refusal of %s", x.name, x.dir, got, err, x.at)
		case x.name == "nothing" && !errors.Is(err, fs.ErrNotExist):
			t.Errorf("%s: %v", x.name, err)
		}
	}
}

// TestFile: a file is read that is a regular one and not one that just anybody can have
// put there; a service may own it.
func TestFile(t *testing.T) {
	for _, x := range []struct {
		name string
		more map[string]Entry
		want string // "": refused
	}{
		{"root's in /tmp", map[string]Entry{"/tmp/f": file(0o644, 0)}, "/tmp/f"},
		{"ours in /tmp", map[string]Entry{"/tmp/f": file(0o600, us)}, "/tmp/f"},
		{"root's link", map[string]Entry{"/tmp/f": link("../run/f", 0), "/run/f": file(0o644, 7)}, "/run/f"},
		{"theirs in /tmp", map[string]Entry{"/tmp/f": file(0o644, them)}, ""},
		{"their link", map[string]Entry{"/tmp/f": link("/run/f", them), "/run/f": file(0o644, 0)}, ""},
		{"root's link to theirs", map[string]Entry{"/tmp/f": link("/tmp/g", 0), "/tmp/g": file(0o644, them)}, ""},
		{"everybody's", map[string]Entry{"/tmp/f": file(0o666, 0)}, ""},
		{"a FIFO", map[string]Entry{"/tmp/f": {Mode: fs.ModeNamedPipe | 0o644}}, ""},
		{"a directory", map[string]Entry{"/tmp/f": dir(0o755, 0)}, ""},
		{"/tmp is not sticky", map[string]Entry{"/tmp": dir(0o777, 0), "/tmp/f": file(0o644, 0)}, ""},
		{"nothing", nil, ""},
	} {
		got, err := TrustedFile("/tmp/f", us, system(x.more))
		var e *UntrustedError
		if x.want != got && x.want != "" || (x.want == "") != errors.As(err, &e) {
			t.Errorf("%s: %q (%v), want %q", x.name, got, err, x.want)
		}
		if is := errors.Is(err, fs.ErrNotExist); is != (x.name == "nothing") {
			t.Errorf("%s: it is not there: %v", x.name, is)
		}
	}
	kea := map[string]Entry{"/var/lib/kea": dir(0o750, 7), "/var/lib/kea/leases": file(0o640, 7)}
	if got, err := TrustedFile("/var/lib/kea/leases", 0, system(kea)); err != nil || got != "/var/lib/kea/leases" {
		t.Errorf("a service's: %q, %v", got, err)
	}
}
