package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"unbloat/internal/show/cli"
)

// Errors in the use of `lab run --router-image` are reported before anything
// boots. A missing program has the exit code of preconditions, and its package
// is named.
func TestRouterImageExitCodes(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, append([]byte(text), make([]byte, 512)...), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	disk, packed, key := file("r.img", ""), file("r.img.gz", "\x1f\x8b"), file("key", "")
	for _, c := range []struct {
		want int
		says string
		args []string
	}{
		{cli.Usage, "gunzip", []string{"--router-image", packed, "--identity", key}},
		{cli.Usage, "missing.img", []string{"--router-image", filepath.Join(dir, "missing.img"), "--identity", key}},
		{cli.Usage, "--identity", []string{"--router-image", disk}}, // and no key in ~/.ssh
		{cli.Usage, "missing.key", []string{"--router-image", disk, "--identity", filepath.Join(dir, "missing.key")}},
		{cli.Usage, "--engine sim", []string{"--router-image", disk, "--identity", key, "--engine", "sim"}},
		{cli.Usage, "--api-key-file", []string{"--router-image", disk, "--for", "opnsense"}},
		{cli.Usage, "reached by SSH", []string{"--router-image", disk, "--for", "freebsd", "--api-key-file", key}},
		{cli.Usage, "beos", []string{"--router-image", disk, "--identity", key, "--for", "beos"}},
		{cli.Usage, "--router-address", []string{"--router-image", disk, "--identity", key, "--router-address", "router.lan"}},
		{cli.Usage, "1 to 99", []string{"--router-image", disk, "--identity", key, "--router-address", "192.168.1.254"}},
		{cli.Usage, "--router-wan goes with --router-image", []string{"--router-wan", "eth1"}},
		{cli.Usage, "--identity goes with --router-image", []string{"--identity", key}},
		{cli.Precondition, "qemu-system-x86", []string{"--router-image", disk, "--identity", key}},
	} {
		cmd := exec.Command(os.Args[0], append([]string{"lab", "run", "seed-003", "--case", "before", "--quiet"}, c.args...)...)
		cmd.Env = append(os.Environ(), asProgram+"=1", "PATH="+dir, "HOME="+dir)
		var said bytes.Buffer
		cmd.Stderr = &said
		err := cmd.Run()
		if cmd.ProcessState == nil {
			t.Fatal(err)
		}
		if got := cmd.ProcessState.ExitCode(); got != c.want || !strings.Contains(said.String(), c.says) {
			t.Errorf("lab run %s: exit code %d, want %d and %q:\n%s", strings.Join(c.args, " "), got, c.want, c.says, &said)
		}
	}
}
