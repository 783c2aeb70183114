package labtest

import (
	"os/exec"
	"runtime"
	"testing"
	"time"
)

// NeedSeccomp skips a test whose real programs (sshd, Chromium) install seccomp
// filters, on a host whose kernel never finishes doing so: Linux 6.18 was seen
// to deadlock between its BPF compiler and the purging of its address space,
// after which every such program hangs, unkillably, until the machine restarts.
func NeedSeccomp(t testing.TB) {
	t.Helper()
	perl, err := exec.LookPath("perl")
	if err != nil || runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		return // cannot be told here; the test itself will
	}
	// prctl(PR_SET_NO_NEW_PRIVS), then prctl(PR_SET_SECCOMP) with one instruction: allow.
	const install = `syscall(157, 38, 1, 0, 0, 0); my $f = pack("SCCL", 6, 0, 0, 0x7fff0000);` +
		`my $p = pack("Sx6P", 1, $f); exit(syscall(157, 22, 2, $p) == 0 ? 0 : 1)`
	cmd := exec.Command(perl, "-e", install)
	if err := cmd.Start(); err != nil {
		return
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	select {
	case <-done:
	case <-time.After(5 * time.Second):
		_ = cmd.Process.Kill()
		t.Skip("SKIPPED: this host's kernel hangs when a seccomp filter is installed, which this test's real program does; restart the machine")
	}
}
