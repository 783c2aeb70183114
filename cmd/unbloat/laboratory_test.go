package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"unbloat/internal/show/cli"
)

// Nothing of the product needs the laboratory: no build of the program has a package of
// it.
func TestProductWithoutLaboratory(t *testing.T) {
	if found := has(packages(t, ""), ofLaboratory()...); len(found) > 0 {
		t.Errorf("the program has %q", found)
	}
}

// `demo`, `lab` and `sim` become the laboratory's program, which is beside this one,
// wherever links to this one are: the same process, with the same arguments, streams and
// exit code; help and completion too. Where it is missing they say how to get it.
func TestLaboratoryBeside(t *testing.T) {
	dir := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program, link := filepath.Join(dir, "unbloat"), filepath.Join(t.TempDir(), "unbloat")
	if err := os.Link(self, program); err != nil { // no copy: it is large
		t.Skipf("SKIPPED: %v", err)
	}
	if err := os.Symlink(program, link); err != nil {
		t.Fatal(err)
	}
	env := []string{asProgram + "=1"}
	for _, args := range [][]string{{"demo", "--engine", "sim"}, {"lab", "list", "--json"}, {"sim", "--help"}, {"help", "lab", "run"}} {
		code, out, errs := ran(t, env, append([]string{link}, args...)...)
		if code != cli.Precondition || !strings.Contains(errs, "there is no "+dir+"/unbloat-lab; ") || strings.Contains(out, "unbloat.error/1") != (args[0] == "lab") {
			t.Errorf("%q without the laboratory: exit code %d, %q, %q", args, code, out, errs)
		}
	}
	if code, out, _ := ran(t, env, program, "--help"); code != cli.Done || !strings.Contains(out, "\n  demo        See the whole story") {
		t.Errorf("--help: exit code %d, %q", code, out)
	}
	script := "#!/bin/sh\nprintf '%s|' $$ \"$@\"\ncat\necho errs >&2\nexit 3\n"
	if err := os.WriteFile(filepath.Join(dir, "unbloat-lab"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]string{
		"lab run x --json -o y": "lab|run|x|--json|-o|y|", "demo": "demo|", "sim frobnicate": "sim|frobnicate|", "lab --help": "lab|--help|",
		"help lab run": "lab|run|--help|", "__complete lab run see": "__complete|lab|run|see|", "__complete help lab ru": "__complete|lab|ru|",
	} {
		c := exec.Command(link, strings.Fields(args)...)
		c.Env = append(os.Environ(), env...)
		c.Stdin = strings.NewReader("typed")
		var out, errs strings.Builder
		c.Stdout, c.Stderr = &out, &errs
		_ = c.Run() // its exit code is 3
		pid, said, _ := strings.Cut(out.String(), "|")
		if c.ProcessState.ExitCode() != 3 || said != want+"typed" || errs.String() != "errs\n" || pid != strings.TrimSpace(pid) || pid == "" {
			t.Errorf("%s: exit code %d, %q, %q, want %q", args, c.ProcessState.ExitCode(), said, errs.String(), want)
		}
	}
	// A signal to the process reaches what it has become.
	if err := os.WriteFile(filepath.Join(dir, "unbloat-lab"), []byte("#!/bin/sh\ntrap 'exit 9' TERM\necho $$\nread wait\nexit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	c := exec.Command(link, "lab", "shell", "x")
	c.Env = append(os.Environ(), env...)
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 32)
	n, _ := out.Read(b)
	if pid := strings.TrimSpace(string(b[:n])); pid != strconv.Itoa(c.Process.Pid) {
		t.Errorf("it is process %s, not %d", pid, c.Process.Pid)
	}
	if err := c.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	in.Close() // sh hears its traps between commands
	_ = c.Wait()
	if code := c.ProcessState.ExitCode(); code != 9 {
		t.Errorf("after SIGTERM: exit code %d", code)
	}
}
