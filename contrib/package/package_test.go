// Package packaging checks the sources of the test server's Debian package, and
// the package itself.
package packaging

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

func read(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// systemd rates the exposure of the unit at 1.8 of 10 at most.
func TestExposure(t *testing.T) {
	program, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skipf("SKIPPED: %v", err)
	}
	out, err := exec.CommandContext(t.Context(), program, "security", "--offline=true", "--no-pager", "unbloat-serve.service").CombinedOutput()
	if err != nil && !bytes.Contains(out, []byte("exposure level")) {
		t.Skipf("SKIPPED: %v: %s", err, out)
	}
	m := regexp.MustCompile(`Overall exposure level for unbloat-serve\.service: ([0-9.]+)`).FindSubmatch(out)
	if m == nil {
		t.Fatalf("no judgement in %s", out)
	}
	level, err := strconv.ParseFloat(string(m[1]), 64)
	if err != nil || level > 1.8 {
		t.Errorf("exposed %s\n%s", m[1], out)
	}
}

// The sockets of the unit are the command's default ports.
func TestSockets(t *testing.T) {
	var stream, datagram []string
	for line := range strings.Lines(read(t, "unbloat-serve.socket")) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		switch key {
		case "ListenStream":
			stream = append(stream, value)
		case "ListenDatagram":
			datagram = append(datagram, value)
		}
	}
	help := read(t, "../../cmd/unbloat/testdata/frozen/help.txtar")
	port := func(flag string) string {
		m := regexp.MustCompile(`--` + flag + ` ADDRESS .*\(default ":([0-9]+)"\)`).FindStringSubmatch(help)
		if m == nil {
			t.Fatalf("the help has no default of --%s", flag)
		}
		return m[1]
	}
	if want := []string{port("listen"), port("iperf3"), port("netperf"), port("web")}; !slices.Equal(stream, want) {
		t.Errorf("TCP ports %v, not %v", stream, want)
	}
	if want := []string{port("listen"), port("irtt"), port("web")}; !slices.Equal(datagram, want) {
		t.Errorf("UDP ports %v, not %v", datagram, want)
	}
}

// The maintainer scripts are valid shell.
func TestScripts(t *testing.T) {
	for _, name := range []string{"postinst", "prerm", "postrm"} {
		if out, err := exec.CommandContext(t.Context(), "sh", "-n", name).CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", name, err, out)
		}
	}
}

// Two builds give the same bytes of package and image. The package contains the
// right files, and lintian, if installed, finds no fault.
func TestPackage(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: it builds the program")
	}
	for _, name := range []string{"dpkg-deb", "git"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("SKIPPED: %v", err)
		}
	}
	if _, err := os.Stat("/etc/ssl/certs/ca-certificates.crt"); err != nil {
		t.Skipf("SKIPPED: %v", err)
	}
	build := func() string {
		dir := t.TempDir()
		ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, "../../scripts/package-serve")
		cmd.Env = append(os.Environ(), "OUT="+dir, "SOURCE_DATE_EPOCH=1700000000", "VERSION=v1.2.3")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return dir
	}
	one, two := build(), build()
	debs, err := filepath.Glob(filepath.Join(one, "unbloat-serve_1.2.3_*.deb"))
	if err != nil || len(debs) != 1 {
		t.Fatalf("%q, %v", debs, err)
	}
	if read(t, debs[0]) != read(t, filepath.Join(two, filepath.Base(debs[0]))) {
		t.Error("the second package is another one")
	}
	images, err := filepath.Glob(filepath.Join(one, "unbloat-serve-image-*", "index.json"))
	if err != nil || len(images) != 1 {
		t.Fatalf("%q, %v", images, err)
	}
	rest, err := filepath.Rel(one, images[0])
	if err != nil || read(t, images[0]) != read(t, filepath.Join(two, rest)) { // the index has the digests of all files
		t.Errorf("the second image is another one: %v", err)
	}
	out, err := exec.CommandContext(t.Context(), "dpkg-deb", "-c", debs[0]).Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"./usr/lib/unbloat-serve/unbloat", "./lib/systemd/system/unbloat-serve.service", "./lib/systemd/system/unbloat-serve.socket", "./etc/unbloat/serve.env", "./usr/share/doc/unbloat-serve/copyright"} {
		if !strings.Contains(string(out), want+"\n") {
			t.Errorf("no %s in\n%s", want, out)
		}
	}
	files, err := exec.CommandContext(t.Context(), "dpkg-deb", "-I", debs[0], "conffiles").Output()
	if err != nil || strings.TrimSpace(string(files)) != "/etc/unbloat/serve.env" {
		t.Errorf("conffiles %q, %v", files, err)
	}
	if lintian, err := exec.LookPath("lintian"); err != nil {
		t.Logf("lintian: SKIPPED: %v", err)
	} else if out, err := exec.CommandContext(t.Context(), lintian, "--no-cfg", "--allow-root", "--fail-on", "error,warning", debs[0]).CombinedOutput(); err != nil {
		t.Errorf("lintian: %v: %s", err, out)
	}
}
