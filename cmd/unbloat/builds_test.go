package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"unbloat/internal/show/cli"
	"unbloat/testkit/labtest"
)

// goTool runs the go command in the module's root.
func goTool(t *testing.T, args ...string) string {
	t.Helper()
	tool, err := exec.LookPath("go")
	if err != nil {
		t.Skipf("SKIPPED: %v; this test builds programs", err)
	}
	c := exec.Command(tool, args...)
	c.Dir, c.Env = filepath.Join("..", ".."), append(os.Environ(), "CGO_ENABLED=0")
	var errs strings.Builder
	c.Stderr = &errs
	out, err := c.Output()
	if err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, errs.String())
	}
	return string(out)
}

// ran runs a program and returns its exit code and what it printed.
func ran(t *testing.T, env []string, argv ...string) (code int, out, errs string) {
	t.Helper()
	c := exec.Command(argv[0], argv[1:]...)
	c.Env = append(os.Environ(), env...)
	var o, e strings.Builder
	c.Stdout, c.Stderr = &o, &e
	err := c.Run()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		code = exit.ExitCode()
	case err != nil:
		t.Fatal(err)
	}
	return code, o.String(), e.String()
}

// packages returns all packages of a build, ours and others.
func packages(t *testing.T, tags string) []string {
	return strings.Fields(goTool(t, "list", "-deps", "-tags", tags, "./cmd/unbloat"))
}

// has returns which packages of a build are among the forbidden ones, or below
// them.
func has(build []string, forbidden ...string) (found []string) {
	for _, p := range build {
		if slices.ContainsFunc(forbidden, func(f string) bool { return p == f || strings.HasPrefix(p, f+"/") }) {
			found = append(found, p)
		}
	}
	return found
}

// ofLaboratory returns packages that the product must not have.
func ofLaboratory() []string {
	return []string{"unbloat/lab", "unbloat/scenarios", "unbloat/testkit", "github.com/pion"}
}

// The program for routers contains nothing for which a router has no room, says so, and
// behaves as the whole program does. `make router` holds its size in a router's flash.
func TestBuildForRouters(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: -short links no other program; `make test` does")
	}
	forbidden := append(ofLaboratory(), "html/template", "encoding/gob", "net/http/pprof", "database/sql", "golang.org/x/crypto/ssh",
		"github.com/quic-go", "github.com/ncruces", "github.com/jackc", "charm.land", "golang.org/x/image",
		"unbloat/internal/serve.", "unbloat/internal/serve", "unbloat/internal/cure/remote", "unbloat/internal/show/store", "unbloat/internal/show/terminal")
	needed := []string{"net/http.", "unbloat/internal/cure/apply", "unbloat/internal/cure/tune", "unbloat/internal/measure/path", "unbloat/internal/measure/protocol/web",
		"unbloat/internal/keep/daemon", "unbloat/internal/keep/follow", "unbloat/internal/keep/metrics", "unbloat/internal/keep/page"}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	labtest.Tracks(t)
	code, out, errs := ran(t, nil, filepath.Join("..", "..", "scripts", "router"), "tags")
	tags := strings.TrimSpace(out)
	if code != 0 || !slices.Contains(strings.Split(tags, ","), "router") {
		t.Fatalf("scripts/router tags: exit code %d, %q, %q", code, out, errs)
	}
	program := filepath.Join(t.TempDir(), "unbloat")
	goTool(t, "build", "-tags", tags, "-o", program, "./cmd/unbloat")
	functions := linked(t, program)
	for _, p := range forbidden {
		if i := slices.IndexFunc(functions, func(f string) bool { return below(f, p) }); i >= 0 {
			t.Errorf("it has %s", functions[i])
		}
	}
	for _, p := range needed {
		if !slices.ContainsFunc(functions, func(f string) bool { return below(f, p) }) {
			t.Errorf("it has nothing of %s", p)
		}
	}
	if info, err := os.Stat(program); err == nil {
		t.Logf("%d bytes, with symbols and inlining", info.Size())
	}
	for _, args := range [][]string{
		{"plan", "--down", "30mbit", "--up", "5mbit"},
		{"plan", "--down", "30mbit", "--up", "5mbit", "--for", "openwrt", "--wan", "pppoe-wan", "--link-layer", "ptm", "--classes", "on"},
		{"plan", "--down", "120mbit", "--up", "12mbit", "--for", "opnsense", "--json"},
		{"plan", "--down", "30"},
		{"why", "not a packet"},
		{"test", "--server", "127.0.0.1:1", "--seconds", "0"},
	} {
		code, out, errs := ran(t, nil, append([]string{program}, args...)...)
		wantCode, wantOut, wantErrs := ran(t, []string{asProgram + "=1"}, append([]string{self}, args...)...)
		if code != wantCode || out != wantOut || errs != wantErrs {
			t.Errorf("%q: exit code %d, %q, %q\nthe whole program: %d, %q, %q", args, code, out, errs, wantCode, wantOut, wantErrs)
		}
	}
	for _, name := range []string{"apply", "confirm", "revert", "status", "doctor", "why", "plan", "test", "tune", "prove", "path", "daemon"} {
		if code, out, errs := ran(t, nil, program, name, "--help"); code != cli.Done || !strings.Contains(out, "unbloat "+name) || strings.Contains(out, "  --router") || strings.Contains(out, "  --watchdog") {
			t.Errorf("%s --help: exit code %d, %q, %q", name, code, out, errs)
		}
	}
	for _, args := range [][]string{{"serve", "--help"}, {"servers"}, {"report", "x.json"}, {"history"}, {"compare", "a", "b"}, {"export"}, {"import", "-"},
		{"tune", "--server", "127.0.0.1", "--report", "x.html"}} {
		if code, out, errs := ran(t, nil, append([]string{program}, args...)...); code != cli.Precondition || out != "" || !strings.Contains(errs, "(build tag router)") {
			t.Errorf("%q: exit code %d, %q, %q", args, code, out, errs)
		}
	}
}

// linked returns the functions that are linked into a program.
func linked(t *testing.T, program string) (functions []string) {
	for line := range strings.Lines(goTool(t, "tool", "nm", program)) {
		if f := strings.Fields(line); len(f) == 3 && strings.EqualFold(f[1], "t") {
			functions = append(functions, f[2])
		}
	}
	return functions
}

// below reports whether a function is one of a package or of those below it; with a dot
// behind it, of that package alone.
func below(function, p string) bool {
	rest, is := strings.CutPrefix(function, p)
	return is && (strings.HasSuffix(p, ".") || strings.HasPrefix(rest, ".") || strings.HasPrefix(rest, "/"))
}
