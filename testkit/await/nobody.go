// This file has the stranger of tests: the user nobody, with a directory
// where anybody may make files.

package await

import (
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// Nobody is the user ID of a user who owns nothing.
const Nobody = 65534

// NobodysTmp returns a new directory that is as /tmp: everybody may make files there. It skips
// the test where there is no root, who alone can act as somebody else.
func NobodysTmp(t *testing.T) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("SKIPPED: only root can act as nobody")
	}
	dir, err := os.MkdirTemp("", "everybody") // nobody does not get into t.TempDir's
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, os.ModeSticky|0o777); err != nil {
		t.Fatal(err)
	}
	return dir
}

// NobodyDoes has nobody run a shell script in a directory, with these arguments.
func NobodyDoes(t *testing.T, dir, script string, args ...string) {
	t.Helper()
	if out, err := command(dir, script, args...).CombinedOutput(); err != nil {
		t.Fatalf("nobody: %v: %s", err, out)
	}
}

// NobodyIsKept has nobody run a script that goes on until the test ends. It returns when the
// script has printed something.
func NobodyIsKept(t *testing.T, dir, script string, args ...string) {
	t.Helper()
	cmd := command(dir, script, args...)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatalf("nobody: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL); _ = cmd.Wait() })
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatalf("nobody: it said nothing: %v", err)
	}
}

func command(dir, script string, args ...string) *exec.Cmd {
	cmd := exec.Command("sh", append([]string{"-ec", script, "sh"}, args...)...)
	cmd.Dir, cmd.Env = dir, []string{"PATH=/usr/bin:/bin"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: &syscall.Credential{Uid: Nobody, Gid: Nobody}}
	return cmd
}
