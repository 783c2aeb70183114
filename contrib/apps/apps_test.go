// Package apps checks the packages by which routers' own web interfaces show and
// set unbloat: OPNsense's plugin, pfSense's package and ClearOS's app.
package apps

import (
	"crypto/sha256"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"unbloat/testkit/labtest"
)

// built is the program's path.
func built(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("SKIPPED: it builds the program")
	}
	return labtest.Binary(t)
}

// run runs a command, and returns what it printed and its exit code.
func run(t *testing.T, env []string, argv ...string) (string, int) {
	t.Helper()
	c := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
	c.Env = append(os.Environ(), env...)
	out, err := c.CombinedOutput()
	if c.ProcessState == nil {
		t.Fatal(err)
	}
	return string(out), c.ProcessState.ExitCode()
}

// needs skips a test where a program is missing.
func needs(t *testing.T, programs ...string) {
	t.Helper()
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			t.Skipf("SKIPPED: %v", err)
		}
	}
}

// write writes a file below a directory.
func write(t *testing.T, dir, name, text string) string {
	t.Helper()
	file := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	return file
}

// read returns a file's text.
func read(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// sources returns the files of the trees whose names end in one of the endings.
func sources(t *testing.T, endings ...string) (files []string) {
	t.Helper()
	for _, tree := range []string{"opnsense", "pfsense", "clearos"} {
		err := filepath.WalkDir(tree, func(path string, d fs.DirEntry, err error) error {
			for _, e := range endings {
				if err == nil && !d.IsDir() && strings.HasSuffix(path, e) {
					files = append(files, path)
				}
			}
			return err
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
	}
	if len(files) == 0 {
		t.Fatalf("there are no files %q", endings)
	}
	return files
}

// TestXML: every file of XML is well formed, in xmllint's eyes too, where it is here.
func TestXML(t *testing.T) {
	files := sources(t, ".xml")
	for _, f := range files {
		d := xml.NewDecoder(strings.NewReader(read(t, f)))
		for {
			if _, err := d.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Errorf("%s: %v", f, err)
				break
			}
		}
	}
	if _, err := exec.LookPath("xmllint"); err != nil {
		t.Logf("xmllint: SKIPPED: %v", err)
	} else if out, code := run(t, nil, append([]string{"xmllint", "--noout"}, files...)...); code != 0 {
		t.Errorf("xmllint: %s", out)
	}
}

// TestSyntax: PHP, shell and JavaScript are sound.
func TestSyntax(t *testing.T) {
	check := func(files []string, argv ...string) {
		if _, err := exec.LookPath(argv[0]); err != nil {
			t.Logf("%s: SKIPPED: %v", argv[0], err)
			return
		}
		for _, f := range files {
			if out, code := run(t, nil, append(argv, f)...); code != 0 {
				t.Errorf("%s: %s", f, out)
			}
		}
	}
	check(sources(t, ".php", ".inc"), "php", "-l")
	check(sources(t, ".sh"), "sh", "-n")
	check(sources(t, ".sh"), "busybox", "sh", "-n")
	for _, f := range sources(t, ".js") {
		check([]string{write(t, t.TempDir(), "widget.mjs", read(t, f))}, "node", "--check")
	}
}

// fingerprint is the SHA-256 of a server's certificate.
func fingerprint(s *httptest.Server) string {
	return fmt.Sprintf("%x", sha256.Sum256(s.Certificate().Raw))
}
