package platform_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"unbloat/guard"
	"unbloat/internal/cure/platform"
	"unbloat/testkit/await"
)

// lister is a router whose ls(1) always prints the same.
type lister string

func (l lister) Run(context.Context, []string, []byte) (stdout, stderr []byte, err error) {
	return []byte(l), []byte("ls: some are not there"), errors.New("exit status 1")
}

// TestTrustedDirOnRouters: the place is found in what ls(1) prints on any system, and
// nothing is taken for granted of a line that is cut off or is none.
func TestTrustedDirOnRouters(t *testing.T) {
	for _, x := range []struct{ name, says, want string }{
		{"OpenBSD", "drwxr-xr-x  13 0  0  512 Oct 12 18:02 /\ndrwxr-xr-x  24 0  0  512 Oct 12 18:04 /var\ndrwxr-xr-x   4 0  0  512 Nov 27 03:01 /var/run\n", "/var/run"},
		{"BusyBox", "drwxr-xr-x    1 0        0              224 Jan  1  1970 /\nlrwxrwxrwx    1 0        0                3 Oct  9 2023 /var -> tmp\n" +
			"drwxrwxrwt   15 0        0              420 Nov 27 03:01 /tmp\ndrwxr-xr-x   10 0        0              280 Nov 27 03:01 /tmp/run\ndrwxr-xr-x   10 0        0              280 Nov 27 03:01 /var/run\n", "/tmp/run"},
		{"access lists", "drwxr-xr-x. 17 0 0 244 Oct 12 18:02 /\ndrwxr-xr-x+ 24 0 0 4096 Oct 12 18:04 /var\ndrwxr-xr-x@ 4 0 0 512 Nov 27 03:01 /var/run\n", "/var/run"},
		{"somebody's", "drwxr-xr-x 13 0 0 512 Oct 12 18:02 /\ndrwxr-xr-x 24 0 0 512 Oct 12 18:04 /var\ndrwxr-xr-x 4 1000 0 512 Nov 27 03:01 /var/run\n", ""},
		{"everybody's", "drwxr-xr-x 13 0 0 512 Oct 12 18:02 /\ndrwxr-xr-x 24 0 0 512 Oct 12 18:04 /var\ndrwxrwxrwT 4 0 0 512 Nov 27 03:01 /var/run\n", ""},
		{"a part is not told", "drwxr-xr-x 13 0 0 512 Oct 12 18:02 /\ndrwxr-xr-x 4 0 0 512 Nov 27 03:01 /var/run\n", ""},
		{"names in place of numbers", "drwxr-xr-x 13 root wheel 512 Oct 12 18:02 /\n", ""},
		{"no mode", "?????????? ? ? ? ? ? /\n", ""},
		{"cut off", "drwxr-x", ""},
		{"nothing", "", ""},
	} {
		got, err := platform.TrustedDir(t.Context(), lister(x.says), "/var/run", 0)
		var e *guard.UntrustedError
		if got != x.want || (x.want == "") != errors.As(err, &e) {
			t.Errorf("%s: %q (%v), want %q", x.name, got, err, x.want)
		}
	}
}

// TestReadTrusted: what another user made where anybody may make files is not read, and a
// FIFO is not waited for; by every ls(1) that this machine has.
func TestReadTrusted(t *testing.T) {
	tmp := await.NobodysTmp(t)
	await.NobodyDoes(t, tmp, `echo theirs >theirs; mkfifo fifo; ln -s roots link`)
	if err := os.WriteFile(filepath.Join(tmp, "roots"), []byte("roots"), 0o644); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	tried := 0
	for _, ls := range []string{"ls", "busybox"} {
		if _, err := exec.LookPath(ls); err != nil {
			continue
		}
		tried++
		r := by{ls}
		for _, name := range []string{"theirs", "fifo", "link"} {
			var e *guard.UntrustedError
			if b, err := platform.ReadTrusted(ctx, r, filepath.Join(tmp, name)); !errors.As(err, &e) {
				t.Errorf("%s: %s is read: %q (%v)", ls, name, b, err)
			}
		}
		if _, err := platform.ReadTrusted(ctx, r, filepath.Join(tmp, "nothing")); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: nothing: %v", ls, err)
		}
		if b, err := platform.ReadTrusted(ctx, r, filepath.Join(tmp, "roots")); err != nil || string(b) != "roots" {
			t.Errorf("%s: root's own: %q, %v", ls, b, err)
		}
	}
	if tried == 0 {
		t.Error("there is no ls")
	}
}

// by runs the programs of this machine, ls by another one.
type by struct{ ls string }

func (b by) Run(ctx context.Context, argv []string, stdin []byte) (stdout, stderr []byte, err error) {
	if argv[0] == "ls" && b.ls != "ls" {
		argv = append([]string{b.ls}, argv...)
	}
	return platform.Local{}.Run(ctx, argv, stdin)
}
