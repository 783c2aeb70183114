package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"unbloat/internal/measure/verdict"
	"unbloat/internal/show/cli"
	"unbloat/testkit/await"
)

// TestResultOnBadDisk: on a disk that is full, or read-only, `unbloat test` still shows
// its result. What could not be kept is named, with where, why, and what to do. What was
// in the file named by -o stays, and nothing else is left. Where it can be known before,
// nothing is measured. The test needs a file system of its own, which an unprivileged
// user gets in a user namespace.
func TestResultOnBadDisk(t *testing.T) {
	await.NotShort(t)
	server := serveHere(t)
	const full = "head -c 100000000 /dev/zero >fill 2>&1; true"
	for _, x := range []struct {
		name  string
		disk  string // what makes the disk bad, in its folder
		args  []string
		codes []int
		says  []string
		shown bool // the result
	}{
		{"full, -o", full, []string{"--no-store", "-o", "old.json"}, []int{cli.Failed},
			[]string{"test: -o: write old.json: ", "no space left on device", "nothing was written; make room there, or name another file; the result itself is printed above"}, true},
		{"full, kept", full, []string{"--store", "new.db"}, []int{cli.Done, cli.Invalid},
			[]string{"warning: this result is not kept: ", "the results in new.db: ", "no space", "make room, or name a file elsewhere with --store"}, true},
		{"read-only, kept", "mount -o remount,ro .", []string{"--store", "new.db"}, []int{cli.Done, cli.Invalid},
			[]string{"warning: this result is not kept: ", "new.db: read-only file system", "name another one with --store"}, true},
		{"read-only, -o", "mount -o remount,ro .", []string{"--no-store", "-o", "old.json"}, []int{cli.Usage},
			[]string{"test: -o: write old.json: ", "read-only file system", "name a file where you may write"}, false},
	} {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			script := `mount -t tmpfs -o size=64k none "$1" && cd "$1" || exit 77
echo before >old.json
` + x.disk + `
shift; "$@"; code=$?
cat old.json >&2; ls -A >&2; exit $code`
			args := append([]string{"-Urm", "sh", "-c", script, "sh", dir, os.Args[0], "test", "--server", server, "--idle", "1", "--seconds", "1", "--flows", "1", "--json", "--quiet"}, x.args...)
			c := exec.Command("unshare", args...)
			var out, errs bytes.Buffer
			c.Env, c.Stdout, c.Stderr = append(os.Environ(), asProgram+"=1", "UNBLOAT_STATE_DIR="+filepath.Join(dir, "none")), &out, &errs
			err := c.Run()
			if c.ProcessState == nil || c.ProcessState.ExitCode() == 77 || strings.Contains(errs.String(), "Operation not permitted") {
				t.Skipf("SKIPPED: no user namespaces here: %v: %s", err, errs.String())
			}
			if code := c.ProcessState.ExitCode(); !slices.Contains(x.codes, code) {
				t.Errorf("exit code %d", code)
			}
			for _, says := range x.says {
				if !strings.Contains(errs.String(), says) {
					t.Errorf("it does not say %q", says)
				}
			}
			var got verdict.Test
			if err := json.Unmarshal(out.Bytes(), &got); (err == nil && got.Download != nil && got.Upload != nil) != x.shown {
				t.Errorf("its result is shown: %v, not %v (%v)", !x.shown, x.shown, err)
			}
			_, left, _ := strings.Cut(errs.String(), "before\n")
			for name := range strings.Lines(left) {
				if name = strings.TrimSpace(name); name != "fill" && name != "old.json" && name != "new.db" {
					t.Errorf("%q is left over", name)
				}
			}
			if t.Failed() {
				t.Logf("it said\n%s%.300s", errs.String(), out.String())
			}
		})
	}
}
