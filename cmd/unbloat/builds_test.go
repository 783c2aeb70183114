package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
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

// laboratory returns the packages that a build without the laboratory must not
// have. Package aqm is allowed: drivers name the dialect of their platform.
func laboratory() []string {
	return []string{"unbloat/internal/lab", "unbloat/scenarios", "unbloat/sim", "github.com/pion"}
}

// The program builds without the laboratory, contains nothing of it, and says
// so when asked for it.
func TestBuildWithoutLaboratory(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: -short links no other program; `make test` does")
	}
	if found := has(packages(t, "omit_lab"), laboratory()...); len(found) > 0 {
		t.Errorf("a build with the tag omit_lab has %q", found)
	}
	if found := has(packages(t, ""), laboratory()...); len(found) < 5 {
		t.Errorf("the whole program has only %q of the laboratory", found)
	}
	program := filepath.Join(t.TempDir(), "unbloat")
	goTool(t, "build", "-tags", "omit_lab", "-o", program, "./cmd/unbloat")
	for _, args := range [][]string{{"demo", "--engine", "sim"}, {"lab", "list"}, {"sim", "--help"}, {"plan", "--down", "30mbit", "--up", "5mbit", "--predict"}} {
		if code, out, errs := ran(t, nil, append([]string{program}, args...)...); code != exitPrecondition || out != "" || !strings.Contains(errs, "omit_lab") {
			t.Errorf("%q: exit code %d, %q, %q", args, code, out, errs)
		}
	}
}

// The two programs for routers contain nothing for which a router has no room,
// and behave as the whole program does.
func TestBuildsForRouters(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: -short links no other program; `make test` does")
	}
	elsewhere := append(laboratory(), "net/http", "crypto/tls", "crypto/x509", "html/template", "golang.org/x/crypto/ssh", "github.com/quic-go",
		"github.com/coder/websocket", "github.com/ncruces", "charm.land", "unbloat/web",
		"unbloat/internal/serve", "unbloat/internal/webtest", "unbloat/internal/remote")
	// netio is in both: the daemon reads the line's delay with it.
	measuring := []string{"unbloat/internal/measure", "unbloat/internal/protocol", "unbloat/internal/tune", "unbloat/internal/prove",
		"unbloat/internal/path", "unbloat/internal/report", "unbloat/internal/live", "unbloat/internal/store"}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		part      string
		forbidden []string
		lacks     []string // commands
	}{
		{"control", append(measuring, elsewhere...), []string{"demo", "lab", "sim", "serve", "test", "tune", "prove", "path", "report", "history"}},
		{"measure", elsewhere, []string{"demo", "lab", "sim", "serve", "daemon"}},
	} {
		t.Run(c.part, func(t *testing.T) {
			code, out, errs := ran(t, nil, filepath.Join("..", "..", "scripts", "router"), "tags", c.part)
			tags := strings.TrimSpace(out)
			if code != 0 || !strings.Contains(tags, "omit_lab") {
				t.Fatalf("scripts/router tags %s: exit code %d, %q, %q", c.part, code, out, errs)
			}
			build := packages(t, tags)
			if !slices.Contains(build, "unbloat/internal/apply") {
				t.Fatalf("the list of packages is wrong: %q", build)
			}
			// The router's own page is in, that of the test server is not.
			build = slices.DeleteFunc(build, func(p string) bool { return p == "unbloat/web/ui" })
			if found := has(build, c.forbidden...); len(found) > 0 {
				t.Errorf("it has %q", found)
			}
			program := filepath.Join(t.TempDir(), "unbloat")
			goTool(t, "build", "-tags", tags, "-o", program, "./cmd/unbloat")
			for _, args := range [][]string{
				{"plan", "--down", "30mbit", "--up", "5mbit"},
				{"plan", "--down", "30mbit", "--up", "5mbit", "--for", "openwrt", "--wan", "pppoe-wan", "--link-layer", "ptm", "--classes", "on"},
				{"plan", "--down", "120mbit", "--up", "12mbit", "--for", "opnsense", "--json"},
				{"plan", "--down", "30"},
				{"why", "not a packet"},
			} {
				code, out, errs := ran(t, nil, append([]string{program}, args...)...)
				wantCode, wantOut, wantErrs := ran(t, []string{asProgram + "=1"}, append([]string{self}, args...)...)
				if code != wantCode || out != wantOut || errs != wantErrs {
					t.Errorf("%q: exit code %d, %q, %q\nthe whole program: %d, %q, %q", args, code, out, errs, wantCode, wantOut, wantErrs)
				}
			}
			for _, name := range []string{"apply", "confirm", "revert", "status", "doctor", "why", "plan"} {
				if code, out, errs := ran(t, nil, program, name, "--help"); code != exitDone || !strings.Contains(out, "unbloat "+name) || strings.Contains(out, "  --router") || strings.Contains(out, "  --watchdog") {
					t.Errorf("%s --help: exit code %d, %q, %q", name, code, out, errs)
				}
			}
			for _, name := range c.lacks {
				if code, out, errs := ran(t, nil, program, name, "--help"); code != exitPrecondition || out != "" || !strings.Contains(errs, "omit_") {
					t.Errorf("%s: exit code %d, %q, %q", name, code, out, errs)
				}
			}
		})
	}
}
