package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"unbloat/testkit/labtest"
)

func read(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// systemd judges how exposed the units are, of 10: the server's at most 1.8, the
// daemon's, which changes the network, at most 2.5.
func TestExposure(t *testing.T) {
	program, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skipf("SKIPPED: %v", err)
	}
	for unit, most := range map[string]float64{"server/unbloat-serve.service": 1.8, "daemon/unbloatd.service": 2.5} {
		out, err := exec.CommandContext(t.Context(), program, "security", "--offline=true", "--no-pager", unit).CombinedOutput()
		if err != nil && !bytes.Contains(out, []byte("exposure level")) {
			t.Skipf("SKIPPED: %v: %s", err, out)
		}
		m := regexp.MustCompile(`Overall exposure level for ` + regexp.QuoteMeta(filepath.Base(unit)) + `: ([0-9.]+)`).FindSubmatch(out)
		if m == nil {
			t.Fatalf("no judgement in %s", out)
		}
		level, err := strconv.ParseFloat(string(m[1]), 64)
		if err != nil || level > most {
			t.Errorf("%s: exposed %s\n%s", unit, m[1], out)
		}
	}
}

// TestUnit: systemd finds nothing wrong with the daemon's unit, whose program is
// one that is here.
func TestUnit(t *testing.T) {
	program, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skipf("SKIPPED: %v", err)
	}
	unit := filepath.Join(t.TempDir(), "unbloatd.service")
	text := strings.ReplaceAll(read(t, "daemon/unbloatd.service"), "ExecStart=/usr/bin/unbloat ", "ExecStart=/bin/sh ")
	if err := os.WriteFile(unit, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), program, "verify", "--man=no", unit).CombinedOutput()
	if err != nil || bytes.Contains(out, []byte("unbloatd")) {
		t.Errorf("%v: %s", err, out)
	}
	// One with a word that there is not is noticed.
	if err := os.WriteFile(unit, []byte(strings.ReplaceAll(text, "ProtectClock=", "ProtectClocks=")), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, _ := exec.CommandContext(t.Context(), program, "verify", "--man=no", unit).CombinedOutput(); !bytes.Contains(out, []byte("ProtectClocks")) {
		t.Errorf("systemd-analyze finds nothing in a wrong unit: %s", out)
	}
}

// TestDaemonConfiguration: the daemon takes the configuration that the package
// brings, once its lines are written; before, it says what is missing.
func TestDaemonConfiguration(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: it builds the program")
	}
	text := read(t, "daemon/unbloat.toml")
	written := regexp.MustCompile(`(?m)^#(\[\[|[a-z])`).ReplaceAllString(text, "$1")
	t.Chdir(filepath.Join("..", ".."))
	program := small(t)
	for name, c := range map[string]struct {
		text string
		code int
		says string
	}{"as it comes": {text, 2, "there is no [[wan]]"}, "written": {written, 0, "eth0"}} {
		file := filepath.Join(t.TempDir(), "unbloat.toml")
		if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), program, "daemon", "--check", "--config", file)
		out, _ := cmd.CombinedOutput()
		if code := cmd.ProcessState.ExitCode(); code != c.code || !strings.Contains(string(out), c.says) {
			t.Errorf("%s: exit code %d, not %d with %q: %s", name, code, c.code, c.says, out)
		}
	}
}

// The sockets that systemd opens are those of the command's defaults.
func TestSockets(t *testing.T) {
	var stream, datagram []string
	for line := range strings.Lines(read(t, "server/unbloat-serve.socket")) {
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

// The maintainer's scripts and install.sh are sound shell.
func TestScripts(t *testing.T) {
	for _, name := range []string{"server/postinst", "server/prerm", "server/postrm", "daemon/postinst", "daemon/prerm", "daemon/postrm", "daemon/rpm-post", "daemon/rpm-preun", "daemon/rpm-postun", "install.sh", "../apps/clearos/packaging/core-post", "../apps/clearos/packaging/core-preun", "../apps/clearos/app/deploy/install", "../apps/clearos/app/deploy/upgrade", "../apps/clearos/app/deploy/uninstall", "../apps/pfsense/files/pkg-install.in", "../apps/pfsense/files/pkg-deinstall.in"} {
		if out, err := exec.CommandContext(t.Context(), "sh", "-n", name).CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", name, err, out)
		}
	}
}

// TestOrdered: versions as Debian and RPM order them.
func TestOrdered(t *testing.T) {
	for version, want := range map[string]string{
		"v1.2.3": "1.2.3", "v1.2.3-4-gabcdef0": "1.2.3+4+gabcdef0", "v1.2.3-dirty": "1.2.3+dirty", "v1.2.3-rc1": "1.2.3~rc1", "v1.2.3-rc1-4-gabcdef0": "1.2.3~rc1+4+gabcdef0", "abcdef0": "0~20231114221320.abcdef0", "7abcdef-dirty": "0~20231114221320.7abcdef+dirty", "unknown": "0~20231114221320.unknown",
	} {
		if got := (&release{version: version, date: time.Unix(1700000000, 0).UTC()}).ordered(); got != want {
			t.Errorf("%s: %s, not %s", version, got, want)
		}
	}
}

// TestArchives: the order in which files come changes nothing, and each directory
// stands before what is in it.
func TestArchives(t *testing.T) {
	files := []file{{"bin/x", 0o755, []byte("program")}, {"share/a/b", 0o644, []byte("page")}, {"share/a.txt", 0o644, nil}}
	date := time.Unix(1700000000, 0).UTC()
	one, err := tarred("top", files, date)
	if err != nil {
		t.Fatal(err)
	}
	other := zipped("top", files, date)
	slices.Reverse(files)
	if again, err := tarred("top", files, date); err != nil || !bytes.Equal(one, again) || !bytes.Equal(other, zipped("top", files, date)) {
		t.Error("another order gives another archive")
	}
	if _, err := tarred("top", []file{{strings.Repeat("long", 100), 0o644, nil}}, date); err == nil {
		t.Error("a name that the format can't hold is cut")
	}
	var got []string
	for r := tar.NewReader(bytes.NewReader(one)); ; {
		h, err := r.Next()
		if err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		got = append(got, fmt.Sprintf("%s %o %d", h.Name, h.Mode, h.ModTime.Unix()))
	}
	if want := []string{"top/ 755 1700000000", "top/bin/ 755 1700000000", "top/bin/x 755 1700000000", "top/share/ 755 1700000000", "top/share/a.txt 644 1700000000", "top/share/a/ 755 1700000000", "top/share/a/b 644 1700000000"}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

// small builds a program that is quickly linked and packed: that of routers, as
// cmd/unbloat's TestBuildForRouters compiles it.
func small(t *testing.T) string {
	t.Helper()
	labtest.Tracks(t)
	program := filepath.Join(t.TempDir(), "unbloat")
	tags, err := exec.CommandContext(t.Context(), "scripts/router", "tags").Output()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-buildvcs=false", "-tags", strings.TrimSpace(string(tags)), "-ldflags", "-s -w -X main.version=v1.2.3", "-o", program, "./cmd/unbloat")
	c.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return program
}

// made makes a release in a directory of its own.
func made(t *testing.T, r release) release {
	t.Helper()
	if r.version == "" {
		r.version = "v1.2.3"
	}
	r.date, r.out, r.host, r.ca = time.Unix(1700000000, 0).UTC(), t.TempDir(), target{runtime.GOOS, runtime.GOARCH}, filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(r.ca, []byte("authorities"), 0o600); err != nil {
		t.Fatal(err)
	}
	if r.targets == nil {
		r.targets = []target{r.host}
	}
	if err := r.all(t.Context()); err != nil {
		t.Fatal(err)
	}
	return r
}

// same compares two directories, file by file.
func same(t *testing.T, one, two string) {
	t.Helper()
	n := 0
	err := filepath.WalkDir(one, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		n++
		rest, err := filepath.Rel(one, p)
		if err != nil {
			return err
		}
		a, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		if b, err := os.ReadFile(filepath.Join(two, rest)); err != nil || !bytes.Equal(a, b) {
			t.Errorf("%s is another one the second time: %v", rest, err)
		}
		return nil
	})
	if err != nil || n == 0 {
		t.Fatal(n, err)
	}
}

// TestPackages: a release that is made twice is the same bytes. Its packages hold
// what they ought to, its bill of materials names what the program was built from,
// and install.sh installs it, if it is what was signed.
func TestPackages(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: it builds the program")
	}
	if runtime.GOOS != "linux" {
		t.Skip("SKIPPED: packages are made on Linux")
	}
	t.Chdir(filepath.Join("..", ".."))
	r := release{make: []string{makeTar, makeDeb, makeServer, makeApps, makeWRT}, program: small(t)}
	// A laboratory that is described, and does nothing.
	r.lab = programOf(t, "package main\n\nimport \"os\"\n\nfunc main() {\n\tif err := os.WriteFile(os.Args[2]+\"/unbloat-lab.1\", []byte(\".TH UNBLOAT-LAB 1\\n\"), 0o644); err != nil {\n\t\tpanic(err)\n\t}\n}\n")
	if os.Getenv("UNBLOAT_LONG") != "" {
		r.make = append(r.make, makeRPM)
	}
	r.router = r.program
	if _, err := exec.LookPath("minisign"); err != nil {
		t.Logf("signatures: SKIPPED: %v", err)
	} else {
		dir := t.TempDir()
		r.key = filepath.Join(dir, "secret")
		if out, err := exec.CommandContext(t.Context(), "minisign", "-G", "-W", "-p", filepath.Join(dir, "key.pub"), "-s", r.key).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	one := made(t, r)
	t.Run("twice", func(t *testing.T) {
		t.Setenv("TMPDIR", t.TempDir())
		t.Setenv("LC_ALL", "de_DE.UTF-8")
		t.Setenv("HOME", os.Getenv("HOME")+"/.")
		same(t, one.out, made(t, r).out)
	})
	t.Run("deb", func(t *testing.T) { holdsDeb(t, one) })
	t.Run("dpkg", func(t *testing.T) { livesWithDpkg(t, one) })
	t.Run("openwrt", func(t *testing.T) { holdsOpenWrt(t, one) })
	t.Run("opkg", func(t *testing.T) { livesWithOpkg(t, one) })
	t.Run("apk", func(t *testing.T) { livesWithAPK(t, one) })
	t.Run("materials", func(t *testing.T) { namesMaterials(t, one) })
	t.Run("install", func(t *testing.T) { installs(t, one) })
	t.Run("apps", func(t *testing.T) { holdsApps(t, one) })
	if os.Getenv("UNBLOAT_LONG") != "" {
		t.Run("rpm", func(t *testing.T) { holdsRPM(t, one) })
	}
}

// TestReleaseLong: what TestPackages says of one program, of whole programs for
// several systems, built twice.
func TestReleaseLong(t *testing.T) {
	if os.Getenv("UNBLOAT_LONG") == "" {
		t.Skip("SKIPPED: it builds the program six times; UNBLOAT_LONG=1 runs it")
	}
	t.Chdir(filepath.Join("..", ".."))
	r := release{make: []string{makeSource, makeTar, makeDeb, makeRPM}, targets: []target{{"linux", "arm64"}, {"openbsd", "amd64"}, {"windows", "amd64"}}}
	one := made(t, r)
	same(t, one.out, made(t, r).out)
	for _, name := range []string{"unbloat-1.2.3-linux-arm64.tar.gz", "unbloat-1.2.3-1.aarch64.rpm", "unbloat_1.2.3_arm64.deb", "unbloat-1.2.3-openbsd-amd64.tar.gz", "unbloat-1.2.3-windows-amd64.zip"} {
		if _, err := os.Stat(filepath.Join(one.out, name)); err != nil {
			t.Error(err)
		}
	}
	buildsAlone(t, one)
}

// buildsAlone builds the source tarball with nothing but what is in it.
func buildsAlone(t *testing.T, r release) {
	labtest.Tracks(t)
	dir := t.TempDir()
	if out, err := exec.CommandContext(t.Context(), "tar", "xzf", filepath.Join(r.out, "unbloat-1.2.3-src.tar.gz"), "-C", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	c := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(dir, "unbloat"), "./cmd/unbloat")
	c.Dir = filepath.Join(dir, "unbloat-1.2.3-src")
	c.Env = append(os.Environ(), "GOPROXY=off", "GOMODCACHE="+filepath.Join(dir, "none"), "CGO_ENABLED=0")
	if out, err := c.CombinedOutput(); err != nil {
		t.Errorf("the source does not build: %v: %s", err, out)
	}
}

// holdsDeb looks into the Debian packages. lintian finds nothing, where it is here.
func holdsDeb(t *testing.T, r release) {
	if _, err := exec.LookPath("dpkg-deb"); err != nil {
		t.Skipf("SKIPPED: %v", err)
	}
	for pattern, c := range map[string]struct {
		files     []string
		conffiles string
	}{
		"unbloat_1.2.3_*.deb": {[]string{"./usr/bin/unbloat", "./usr/bin/unbloat-lab", "./usr/share/man/man1/unbloat.1.gz", "./usr/share/man/man1/unbloat-plan.1.gz", "./usr/share/bash-completion/completions/unbloat",
			"./usr/share/zsh/vendor-completions/_unbloat", "./usr/share/fish/vendor_completions.d/unbloat.fish", "./usr/share/doc/unbloat/copyright", "./usr/share/doc/unbloat/changelog.gz", "./usr/share/doc/unbloat/THIRD-PARTY-NOTICES.gz", "./usr/share/doc/unbloat/docs/classes.md", "./usr/share/doc/unbloat/docs/daemon.md",
			"./usr/lib/systemd/system/unbloatd.service", "./etc/unbloat/unbloat.toml"}, "/etc/unbloat/unbloat.toml"},
		"unbloat-serve_1.2.3_*.deb": {[]string{"./usr/lib/unbloat-serve/unbloat", "./usr/lib/systemd/system/unbloat-serve.service", "./usr/lib/systemd/system/unbloat-serve.socket", "./etc/unbloat/serve.env",
			"./usr/share/doc/unbloat-serve/copyright", "./usr/share/doc/unbloat-serve/THIRD-PARTY-NOTICES.gz"}, "/etc/unbloat/serve.env"},
	} {
		debs, err := filepath.Glob(filepath.Join(r.out, pattern))
		if err != nil || len(debs) != 1 {
			t.Fatalf("%s: %q, %v", pattern, debs, err)
		}
		list, err := exec.CommandContext(t.Context(), "dpkg-deb", "-c", debs[0]).Output()
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range c.files {
			if !strings.Contains(string(list), " "+want+"\n") {
				t.Errorf("%s: no %s in\n%s", pattern, want, list)
			}
		}
		for line := range strings.Lines(string(list)) {
			if f := strings.Fields(line); f[1] != "root/root" || f[3] != "2023-11-14" && f[3] != "2023-11-15" {
				t.Errorf("%s: %s", pattern, line)
			}
		}
		if files, err := exec.CommandContext(t.Context(), "dpkg-deb", "-I", debs[0], "conffiles").CombinedOutput(); c.conffiles != "" && (err != nil || strings.TrimSpace(string(files)) != c.conffiles) {
			t.Errorf("%s: conffiles %q, %v", pattern, files, err)
		}
		if lintian, err := exec.LookPath("lintian"); err != nil {
			t.Logf("lintian: SKIPPED: %v", err)
		} else if out, err := exec.CommandContext(t.Context(), lintian, "--no-cfg", "--allow-root", "--fail-on", "error,warning", debs[0]).CombinedOutput(); err != nil {
			t.Errorf("lintian: %v: %s", err, out)
		}
	}
}

// livesWithDpkg installs the Debian packages into a directory, installs them again
// over a configuration that somebody has changed, removes and purges them.
func livesWithDpkg(t *testing.T, r release) {
	if _, err := exec.LookPath("dpkg"); err != nil || os.Getuid() != 0 {
		t.Skipf("SKIPPED: it takes dpkg (%v) and root", err)
	}
	for name, c := range map[string]struct{ program, conffile string }{
		"unbloat":       {"usr/bin/unbloat", "etc/unbloat/unbloat.toml"},
		"unbloat-serve": {"usr/lib/unbloat-serve/unbloat", "etc/unbloat/serve.env"},
	} {
		debs, err := filepath.Glob(filepath.Join(r.out, name+"_1.2.3_*.deb"))
		if err != nil || len(debs) != 1 {
			t.Fatalf("%q, %v", debs, err)
		}
		root := t.TempDir()
		for _, f := range []string{"updates", "info", "triggers"} {
			if err := os.MkdirAll(filepath.Join(root, "var/lib/dpkg", f), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(filepath.Join(root, "var/lib/dpkg/status"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		dpkg := func(args ...string) {
			t.Helper()
			argv := append([]string{"--root=" + root, "--log=/dev/null", "--force-script-chrootless", "--force-depends", "--force-architecture", "--force-confold"}, args...)
			if out, err := exec.CommandContext(t.Context(), "dpkg", argv...).CombinedOutput(); err != nil {
				t.Fatalf("%s: dpkg %q: %v: %s", name, args, err, out)
			}
		}
		dpkg("--install", debs[0])
		if read(t, filepath.Join(root, c.program)) != read(t, r.program) {
			t.Errorf("%s: another program is installed", name)
		}
		if c.conffile != "" {
			if err := os.WriteFile(filepath.Join(root, c.conffile), []byte("changed"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		dpkg("--install", debs[0])
		dpkg("--remove", name)
		if _, err := os.Stat(filepath.Join(root, c.program)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: the program is there after the removal: %v", name, err)
		}
		if c.conffile != "" && read(t, filepath.Join(root, c.conffile)) != "changed" {
			t.Errorf("%s: the configuration is lost", name)
		}
		dpkg("--purge", name)
		for _, dir := range []string{"etc", "usr", "lib"} {
			if left := filesOf(t, filepath.Join(root, dir)); len(left) > 0 {
				t.Errorf("%s: %q stays after it is purged", name, left)
			}
		}
	}
}

// holdsApps looks into what routers' web interfaces show.
func holdsApps(t *testing.T, r release) {
	for name, want := range map[string][]string{
		"opnsense": {"etc/rc.d/unbloatd", "etc/inc/plugins.inc.d/unbloat.inc", "opnsense/service/templates/OPNsense/Unbloat/+TARGETS", "opnsense/mvc/app/models/OPNsense/Unbloat/Unbloat.xml"},
		"pfsense":  {"usr/local/etc/rc.d/unbloatd", "usr/local/etc/rc.d/unbloatd.sh", "usr/local/pkg/unbloat.xml", "etc/inc/priv/unbloat.priv.inc"},
	} {
		dir := t.TempDir()
		top := "unbloat-" + name + "-1.2.3"
		if out, err := exec.CommandContext(t.Context(), "tar", "xzf", filepath.Join(r.out, top+".tar.gz"), "-C", dir).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		for _, f := range want {
			text := read(t, filepath.Join(dir, top, f))
			if strings.Contains(text, "%%") {
				t.Errorf("%s: %s has words that the ports tree replaces", name, f)
			}
		}
		script := filepath.Join(dir, top, want[0])
		if st, err := os.Stat(script); err != nil || st.Mode().Perm() != 0o755 {
			t.Errorf("%s: %v %v", script, st, err)
		}
		if out, err := exec.CommandContext(t.Context(), "sh", "-n", script).CombinedOutput(); err != nil {
			t.Errorf("%s: %s", name, out)
		}
	}
	if _, err := exec.LookPath("rpm"); err != nil {
		t.Skipf("ClearOS: SKIPPED: %v", err)
	}
	rpm := func(args ...string) string {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), "rpm", args...).Output()
		if err != nil {
			t.Fatalf("rpm %q: %v", args, err)
		}
		return string(out)
	}
	core, app := filepath.Join(r.out, "app-unbloat-core-1.2.3-1.noarch.rpm"), filepath.Join(r.out, "app-unbloat-1.2.3-1.noarch.rpm")
	files := rpm("-qpl", core) + rpm("-qpl", app)
	for _, want := range []string{"/usr/clearos/apps/unbloat/deploy/info.php", "/usr/clearos/apps/unbloat/libraries/Unbloat.php", "/usr/clearos/apps/unbloat/views/lines.php", "/usr/clearos/apps/unbloat/controllers/lines.php",
		"/var/clearos/base/daemon/unbloatd.php", "/etc/sudoers.d/app-unbloat", "/usr/lib/systemd/system/unbloatd.service.d/clearos.conf"} {
		if !strings.Contains(files, want+"\n") {
			t.Errorf("no %s in\n%s", want, files)
		}
	}
	if needs := rpm("-qpR", app); !strings.Contains(needs, "app-unbloat-core = 1.2.3-1\n") {
		t.Error(needs)
	}
	if needs := rpm("-qpR", core); !strings.Contains(needs, "app-qos-core\n") || !strings.Contains(needs, "unbloat\n") {
		t.Error(needs)
	}
	if modes := rpm("-qp", "--qf", "[%{FILEMODES:perms} %{FILENAMES}\n]", core); !strings.Contains(modes, "-r--r----- /etc/sudoers.d/app-unbloat\n") || !strings.Contains(modes, "-rwxr-xr-x /usr/clearos/apps/unbloat/deploy/uninstall\n") {
		t.Error(modes)
	}
}

// holdsRPM: rpmlint finds nothing, where it is here.
func holdsRPM(t *testing.T, r release) {
	rpmlint, err := exec.LookPath("rpmlint")
	if err != nil {
		t.Skipf("SKIPPED: %v", err)
	}
	rpms, err := filepath.Glob(filepath.Join(r.out, "unbloat-1.2.3-1.*.rpm"))
	if err != nil || len(rpms) != 1 {
		t.Fatalf("%q, %v", rpms, err)
	}
	out, err := exec.CommandContext(t.Context(), rpmlint, "-c", "contrib/package/rpmlint.toml", rpms[0]).CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("0 errors, 0 warnings")) {
		t.Errorf("%v: %s", err, out)
	}
	list, err := exec.CommandContext(t.Context(), "rpm", "-qpl", rpms[0]).Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"/usr/bin/unbloat", "/usr/share/man/man1/unbloat.1.gz", "/usr/share/licenses/unbloat/LICENSE", "/usr/share/zsh/site-functions/_unbloat"} {
		if !strings.Contains(string(list), want+"\n") {
			t.Errorf("no %s in\n%s", want, list)
		}
	}
}

// namesMaterials: the bill has each module that Go noted in the program, once, and
// each has a notice.
func namesMaterials(t *testing.T, r release) {
	info, err := buildinfo.ReadFile(r.program)
	if err != nil {
		t.Fatal(err)
	}
	var b bom
	if err := json.Unmarshal([]byte(read(t, filepath.Join(r.out, "unbloat-1.2.3-"+r.host.os+"-"+r.host.arch+".cdx.json"))), &b); err != nil {
		t.Fatal(err)
	}
	if b.Format != "CycloneDX" || !regexp.MustCompile(`^urn:uuid:[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`).MatchString(b.Serial) {
		t.Errorf("%s %s", b.Format, b.Serial)
	}
	if sum := sha256.Sum256([]byte(read(t, r.program))); b.Metadata.Component.Hashes[0].Content != fmt.Sprintf("%x", sum) {
		t.Errorf("the program's hash is %x, not %s", sum, b.Metadata.Component.Hashes[0].Content)
	}
	refs := map[string]bool{}
	for _, c := range b.Components {
		if refs[c.Ref] {
			t.Errorf("%s is in it twice", c.Ref)
		}
		refs[c.Ref] = true
	}
	for _, d := range b.Dependencies[0].DependsOn {
		if !refs[d] {
			t.Errorf("it depends on %s, which is not in it", d)
		}
	}
	tree := unpacked(t, r)
	notices := read(t, filepath.Join(tree, "share/doc/unbloat/THIRD-PARTY-NOTICES"))
	for _, m := range info.Deps {
		if !refs["pkg:golang/"+strings.ToLower(m.Path)+"@"+m.Version] {
			t.Errorf("it does not have %s %s", m.Path, m.Version)
		}
		if !strings.Contains(notices, "======== "+m.Path+": ") {
			t.Errorf("no notice of %s", m.Path)
		}
	}
	if len(info.Deps) == 0 || len(b.Components) != len(info.Deps)+2 {
		t.Errorf("%d components of %d modules, Go and the plotter", len(b.Components), len(info.Deps))
	}
}

// unpacked is the directory of what is in the host's tarball.
func unpacked(t *testing.T, r release) string {
	t.Helper()
	dir := t.TempDir()
	name := "unbloat-1.2.3-" + r.host.os + "-" + r.host.arch
	if out, err := exec.CommandContext(t.Context(), "tar", "xzf", filepath.Join(r.out, name+".tar.gz"), "-C", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return filepath.Join(dir, name)
}

// installs runs install.sh in each shell that is here.
func installs(t *testing.T, r release) {
	tree := unpacked(t, r)
	for _, shell := range [][]string{{"sh"}, {"busybox", "sh"}, {"bash"}, {"mksh"}} {
		if _, err := exec.LookPath(shell[0]); err != nil {
			t.Logf("%s: SKIPPED: %v", shell, err)
			continue
		}
		prefix := filepath.Join(t.TempDir(), "with a space")
		run := func(args ...string) (string, int) {
			argv := append(append(slices.Clone(shell), filepath.Join(r.out, "install.sh"), "--prefix", prefix), args...)
			c := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
			out, err := c.CombinedOutput()
			if c.ProcessState == nil {
				t.Fatal(err)
			}
			return string(out), c.ProcessState.ExitCode()
		}
		if out, code := run(); code != 0 || !strings.Contains(out, "would install "+prefix+"/bin/unbloat\n") || !strings.Contains(out, "Nothing was changed") {
			t.Errorf("%s: %d %s", shell, code, out)
		}
		if _, err := os.Stat(prefix); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: it changed something without --yes: %v", shell, err)
		}
		for range 2 { // installed, and replaced
			if out, code := run("--yes"); code != 0 || !strings.Contains(out, "installed: unbloat version v1.2.3") {
				t.Errorf("%s: %d %s", shell, code, out)
			}
		}
		same(t, tree, prefix)
		if out, code := run("--remove"); code != 0 || !strings.Contains(out, "would run: rm -f "+prefix+"/bin/unbloat\n") {
			t.Errorf("%s: %d %s", shell, code, out)
		}
		same(t, tree, prefix)
		if out, code := run("--remove", "--yes"); code != 0 || len(filesOf(t, prefix)) > 0 {
			t.Errorf("%s: %d %s%q", shell, code, out, filesOf(t, prefix))
		}
		if out, code := run("--remove", "--yes"); code != 5 {
			t.Errorf("%s: nothing is there: %d %s", shell, code, out)
		}
	}
	refused(t, r)
}

// refused: what is damaged, not signed, or mistyped is not installed.
func refused(t *testing.T, r release) {
	tarball := "unbloat-1.2.3-" + r.host.os + "-" + r.host.arch + ".tar.gz"
	key := filepath.Join(filepath.Dir(r.key), "key.pub")
	for name, c := range map[string]struct {
		spoil func(dir string) error
		args  []string
		code  int
		says  string
		signs bool // needs minisign
	}{
		"good":       {func(string) error { return nil }, []string{"--key", key}, 0, "signature: good", true},
		"tarball":    {func(d string) error { return appended(filepath.Join(d, tarball)) }, nil, 1, "damaged or exchanged", false},
		"sums":       {func(d string) error { return appended(filepath.Join(d, "SHA256SUMS")) }, []string{"--key", key}, 1, "not signed with that key", true},
		"unsigned":   {func(d string) error { return os.Remove(filepath.Join(d, "SHA256SUMS.minisig")) }, []string{"--key", key}, 1, "the release is not signed", true},
		"other key":  {func(string) error { return nil }, []string{"--key", "RWQf6LRCGA9i53mlYecO4IzT51TGPpvWucNSCh1CBM0QTaLn73Y7GFO3"}, 1, "not signed with that key", true},
		"no sums":    {func(d string) error { return os.Remove(filepath.Join(d, "SHA256SUMS")) }, nil, 5, "has no SHA256SUMS", false},
		"no tarball": {func(d string) error { return os.Remove(filepath.Join(d, tarball)) }, nil, 5, "has no unbloat-VERSION", false},
		"not named": {func(d string) error {
			return os.WriteFile(filepath.Join(d, "SHA256SUMS"), []byte("00  other\n"), 0o600)
		}, nil, 1, "does not name", false},
		"two": {func(d string) error {
			return os.WriteFile(filepath.Join(d, strings.Replace(tarball, "1.2.3", "1.2.4", 1)), nil, 0o600)
		}, nil, 5, "several releases", false},
		"mistyped": {func(string) error { return nil }, []string{"--yse"}, 2, "--yse is not known", false},
		"relative": {func(string) error { return nil }, []string{"--prefix", "here"}, 2, "must begin with /", false},
	} {
		if c.signs && r.key == "" {
			continue
		}
		dir, prefix := t.TempDir(), filepath.Join(t.TempDir(), "prefix")
		for _, f := range []string{"install.sh", "SHA256SUMS", "SHA256SUMS.minisig", tarball} {
			text, err := os.ReadFile(filepath.Join(r.out, f))
			if errors.Is(err, fs.ErrNotExist) && r.key == "" {
				continue
			} else if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, f), text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.spoil(dir); err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), "sh", append([]string{filepath.Join(dir, "install.sh"), "--yes", "--prefix", prefix}, c.args...)...)
		out, _ := cmd.CombinedOutput()
		if code := cmd.ProcessState.ExitCode(); code != c.code || !strings.Contains(string(out), c.says) {
			t.Errorf("%s: exit code %d, not %d with %q: %s", name, code, c.code, c.says, out)
		}
		if c.code != 0 && len(filesOf(t, prefix)) > 0 {
			t.Errorf("%s: it is installed: %q", name, filesOf(t, prefix))
		}
	}
}

// TestMachines: install.sh asks for the tarball of the machine it runs on. The
// last of these has this machine's order of bytes.
func TestMachines(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "uname"), []byte("#!/bin/sh\n[ \"$1\" = -s ] && echo \"$SYSTEM\" || echo \"$MACHINE\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for machine, want := range map[string]string{
		"Linux x86_64": "linux-amd64", "Linux aarch64": "linux-arm64", "Linux armv7l": "linux-arm", "Linux riscv64": "linux-riscv64", "Linux mipsel": "linux-mipsle",
		"FreeBSD amd64": "freebsd-amd64", "OpenBSD amd64": "openbsd-amd64", "Darwin arm64": "darwin-arm64",
		"Linux armv6l": "the processor armv6l", "Plan9 amd64": "no tarball for Plan9",
		"Linux mips": map[bool]string{true: "linux-mipsle", false: "linux-mips."}[binary.NativeEndian.Uint16([]byte{1, 0}) == 1],
	} {
		system, processor, _ := strings.Cut(machine, " ")
		c := exec.CommandContext(t.Context(), "sh", "install.sh", "--from", dir)
		c.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "SYSTEM="+system, "MACHINE="+processor)
		if out, err := c.CombinedOutput(); err == nil || c.ProcessState.ExitCode() != 5 || !strings.Contains(string(out), want) {
			t.Errorf("%s: %v, not %s: %s", machine, err, want, out)
		}
	}
}

// appended spoils a file.
func appended(name string) error {
	f, err := os.OpenFile(name, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString("x")
	return errors.Join(err, f.Close())
}

// filesOf are the files below a directory, which need not be there.
func filesOf(t *testing.T, dir string) (files []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			files = append(files, p)
		}
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return files
}
