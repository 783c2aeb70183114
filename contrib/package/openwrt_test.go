package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// untarred are the files of a tar archive, or of several that are compressed one
// after the other, as in an apk.
func untarred(t *testing.T, packed []byte) map[string]string {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if err == io.EOF {
			return out
		} else if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if h.Mode > 0o777 {
			t.Errorf("%s has the mode %o, which apk-tools can't read", h.Name, h.Mode)
		}
		if h.Typeflag == tar.TypeReg {
			out[strings.TrimPrefix(h.Name, "./")] = string(text)
		}
		if !strings.HasPrefix(h.Name, ".") && !h.ModTime.Equal(time.Unix(1700000000, 0)) {
			t.Errorf("%s is of %s", h.Name, h.ModTime)
		}
	}
}

// routerFiles are a package's files, and what it says of itself and runs, by names that
// both formats share.
func routerFiles(t *testing.T, name string) (files, control map[string]string) {
	t.Helper()
	packed := untarred(t, []byte(read(t, name)))
	if filepath.Ext(name) == ".ipk" {
		if packed["debian-binary"] != "2.0\n" {
			t.Errorf("%s: debian-binary is %q", name, packed["debian-binary"])
		}
		return untarred(t, []byte(packed["data.tar.gz"])), untarred(t, []byte(packed["control.tar.gz"]))
	}
	files, control = packed, map[string]string{}
	for from, to := range map[string]string{".PKGINFO": "control", ".pre-install": "preinst", ".pre-upgrade": "preupgrade", ".post-install": "postinst", ".post-upgrade": "postupgrade", ".pre-deinstall": "prerm", ".post-deinstall": "postrm"} {
		if text, ok := files[from]; ok {
			control[to] = text
			delete(files, from)
		}
	}
	return files, control
}

// ash is busybox's shell, which OpenWrt has.
func ash(t *testing.T) []string {
	t.Helper()
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		t.Skipf("SKIPPED: %v", err)
	}
	return []string{busybox, "ash"}
}

// holdsOpenWrt looks into OpenWrt's packages, and runs their scripts.
func holdsOpenWrt(t *testing.T, r release) {
	processor := runtime.GOARCH
	matches, known := routers()[processor]
	if !known {
		t.Skipf("SKIPPED: there are no packages for %s", processor)
	}
	shell := ash(t)
	main := []string{"etc/config/unbloat", "etc/init.d/unbloatd", "etc/uci-defaults/50-unbloat", "lib/upgrade/keep.d/unbloat", "usr/bin/unbloat", "usr/share/licenses/unbloat/NOTICES.gz"}
	page := []string{"etc/uci-defaults/60-luci-app-unbloat", "usr/lib/lua/luci/i18n/unbloat.de.lmo", "usr/libexec/rpcd/luci.unbloat", "usr/share/luci/menu.d/luci-app-unbloat.json",
		"usr/share/rpcd/acl.d/luci-app-unbloat.json", "usr/share/ucitrack/luci-app-unbloat.json", "www/luci-static/resources/view/unbloat/line.js"}
	for name, c := range map[string]struct {
		files []string
		says  []string
		of    string
	}{
		"unbloat_1.2.3_" + processor + ".ipk":    {main, []string{"\nPackage: unbloat\n", "\nVersion: 1.2.3\n", "\nDepends: tc, ip, unshare, kmod-sched-core"}, "unbloat"},
		"unbloat-measure_1.2.3_all.ipk":          {nil, []string{"\nPackage: unbloat-measure\n", "\nDepends: unbloat\n"}, ""},
		"luci-app-unbloat_1.2.3_all.ipk":         {page, []string{"\nPackage: luci-app-unbloat\n", "\nDepends: luci-base, unbloat\n"}, ""},
		"unbloat-" + processor + "-1.2.3-r0.apk": {append([]string{"lib/apk/packages/unbloat.conffiles", "lib/apk/packages/unbloat.conffiles_static", "lib/apk/packages/unbloat.list"}, main...), []string{"\npkgname = unbloat\n", "\npkgver = 1.2.3-r0\n", "\ndepend = kmod-sched-cake\n"}, "unbloat"},
		"unbloat-measure-1.2.3-r0.apk":           {[]string{"lib/apk/packages/unbloat-measure.list"}, []string{"\npkgname = unbloat-measure\n", "\ndepend = unbloat\n"}, ""},
		"luci-app-unbloat-1.2.3-r0.apk":          {append([]string{"lib/apk/packages/luci-app-unbloat.list"}, page...), []string{"\npkgname = luci-app-unbloat\n", "\ndepend = luci-base\n"}, ""},
	} {
		files, control := routerFiles(t, filepath.Join(r.out, name))
		slices.Sort(c.files)
		if got := slices.Sorted(maps.Keys(files)); !slices.Equal(got, c.files) {
			t.Errorf("%s has\n%q\nnot\n%q", name, got, c.files)
		}
		apk := filepath.Ext(name) == ".apk"
		arch := map[bool]string{true: "\narch = noarch\n", false: "\nArchitecture: all\n"}[apk]
		for _, want := range append(c.says, arch, "unbloat") {
			if !strings.Contains("\n"+control["control"], want) {
				t.Errorf("%s: no %q in\n%s", name, want, control["control"])
			}
		}
		if list, want := files["lib/apk/packages/"+strings.SplitN(name, "-"+processor, 2)[0]+".list"], strings.Join(slices.DeleteFunc(slices.Clone(c.files), func(f string) bool { return strings.HasPrefix(f, "lib/apk/") }), "\n/"); apk && c.of != "" && list != "/"+want+"\n" {
			t.Errorf("%s: the list is %q, not %q", name, list, want)
		}
		if conf := strings.TrimSpace(control["conffiles"] + files["lib/apk/packages/unbloat.conffiles"]); c.of == "unbloat" && conf != "/etc/config/unbloat" || c.of != "unbloat" && conf != "" {
			t.Errorf("%s: conffiles %q", name, conf)
		}
		runsScripts(t, shell, name, control, matches, c.of)
	}
}

// runsScripts runs a package's scripts with a stand-in of OpenWrt's functions.
func runsScripts(t *testing.T, shell []string, name string, control map[string]string, matches, of string) {
	t.Helper()
	root := t.TempDir()
	functions := `default_postinst() { echo "postinst $pkgname $root ${1##*/} $PKG_UPGRADE"; }; default_prerm() { echo "prerm $pkgname $root ${1##*/}"; }; add_group_and_user() { :; }` + "\n"
	scripts := []file{{"lib/functions.sh", 0o644, []byte(functions)}}
	for n, text := range control {
		scripts = append(scripts, file{"scripts/" + n, 0o755, []byte(text)})
	}
	if err := lay(root, scripts); err != nil {
		t.Fatal(err)
	}
	run := func(script string) (string, int) {
		t.Helper()
		c := exec.CommandContext(t.Context(), shell[0], shell[1], filepath.Join(root, "scripts", script))
		c.Env = []string{"PATH=" + os.Getenv("PATH"), "IPKG_INSTROOT=" + root}
		out, err := c.CombinedOutput()
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(out)), c.ProcessState.ExitCode()
	}
	apk := filepath.Ext(name) == ".apk"
	pkg := regexp.MustCompile(`^[a-z]+(-[a-z]+)*`).FindString(strings.ReplaceAll(name, "-"+runtime.GOARCH, ""))
	wants := map[string]string{"postinst": "postinst   postinst", "prerm": "prerm   prerm"}
	if apk {
		wants = map[string]string{"postinst": fmt.Sprintf("postinst %s %s", pkg, root), "postupgrade": fmt.Sprintf("postinst %s %s  1", pkg, root), "prerm": fmt.Sprintf("prerm %s %s", pkg, root)}
	}
	for script, want := range wants {
		if out, code := run(script); code != 0 || out != want {
			t.Errorf("%s: %s: exit code %d, %q, not %q", name, script, code, out, want)
		}
	}
	if _, has := control["postrm"]; has != strings.HasPrefix(pkg, luci) {
		t.Errorf("%s: a script for when it is gone: %v", name, has)
	}
	if of == "" { // it runs everywhere
		if _, has := control["preinst"]; has {
			t.Errorf("%s refuses processors", name)
		}
		return
	}
	for arch, want := range map[string]int{strings.ReplaceAll(matches, "*", "24kc"): 0, "other_24kc": 1} {
		if err := lay(root, []file{{"etc/openwrt_release", 0o644, []byte("DISTRIB_ARCH='" + arch + "'\n")}}); err != nil {
			t.Fatal(err)
		}
		if out, code := run("preinst"); code != want || want == 1 && !strings.Contains(out, arch) {
			t.Errorf("%s on %s: exit code %d: %s", name, arch, code, out)
		}
		if _, has := control["preupgrade"]; apk && !has {
			t.Errorf("%s: another processor's package is an upgrade", name)
		}
	}
}

// livesWithOpkg installs and removes with the real opkg, where it is here.
func livesWithOpkg(t *testing.T, r release) {
	opkg, err := exec.LookPath("opkg")
	if err != nil {
		t.Skipf("SKIPPED: %v (Debian has none)", err)
	}
	root := t.TempDir()
	conf := filepath.Join(root, "opkg.conf")
	if err := os.WriteFile(conf, []byte("dest root /\narch all 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	do := func(args ...string) {
		t.Helper()
		if out, err := exec.CommandContext(t.Context(), opkg, append([]string{"--conf", conf, "--offline-root", root, "--force-depends"}, args...)...).CombinedOutput(); err != nil {
			t.Fatalf("opkg %q: %v: %s", args, err, out)
		}
	}
	do("install", filepath.Join(r.out, "unbloat_1.2.3_"+runtime.GOARCH+".ipk"))
	if _, err := os.Stat(filepath.Join(root, "usr/bin/unbloat")); err != nil {
		t.Error(err)
	}
	do("remove", "unbloat")
	if _, err := os.Stat(filepath.Join(root, "usr/bin/unbloat")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("removed, its program is there: %v", err)
	}
}

// livesWithAPK installs and removes with the real apk, where it is here: with what the
// packages depend on, in a root of its own. UNBLOAT_APK=FILE is another apk.
func livesWithAPK(t *testing.T, r release) {
	apk := os.Getenv("UNBLOAT_APK")
	if apk == "" {
		var err error
		if apk, err = exec.LookPath("apk"); err != nil {
			t.Skipf("SKIPPED: %v (Debian 12 has none); UNBLOAT_APK=FILE is one of version 3", err)
		}
	}
	dir := t.TempDir()
	root := filepath.Join(dir, "root")
	if err := os.Mkdir(root, 0o755); err != nil {
		t.Fatal(err)
	}
	do := func(args ...string) string {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), apk, args...).CombinedOutput()
		if err != nil {
			t.Fatalf("apk %q: %v: %s", args, err, out)
		}
		return string(out)
	}
	in := []string{"--root", root, "--arch", "x86_64", "--no-network", "--allow-untrusted", "--no-scripts"}
	if os.Getuid() != 0 {
		in = append(in, "--usermode")
	}
	add := append(slices.Clone(in), "add", "--initdb")
	for _, name := range []string{"tc", "ip", "unshare", "kmod-sched-core", "kmod-sched-cake", "kmod-ifb", "luci-base"} {
		file := filepath.Join(dir, name+".apk")
		argv := []string{"mkpkg", "-o", file}
		for key, value := range map[string]string{"name": name, "version": "1-r0", "arch": "noarch", "description": "x", "license": "x", "origin": "x", "url": "x", "maintainer": "x"} {
			argv = append(argv, "--info", key+":"+value)
		}
		do(argv...)
		add = append(add, file)
	}
	for _, name := range []string{"unbloat-" + runtime.GOARCH, "unbloat-measure", luci} {
		add = append(add, filepath.Join(r.out, name+"-1.2.3-r0.apk"))
	}
	do(add...)
	for _, name := range []string{"usr/bin/unbloat", "etc/config/unbloat", "lib/apk/packages/unbloat.list", "www/luci-static/resources/view/unbloat/line.js"} {
		if _, err := os.Stat(filepath.Join(root, name)); err != nil {
			t.Error(err)
		}
	}
	if out := do("--root", root, "audit", "--check-permissions"); strings.Contains(out, "unbloat") {
		t.Errorf("apk says that files are others than in the packages: %s", out)
	}
	do(append(slices.Clone(in), "del", luci, "unbloat-measure", "unbloat")...)
	if _, err := os.Stat(filepath.Join(root, "usr/bin/unbloat")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("removed, its program is there: %v", err)
	}
}

// TestOpenWrtLong: the packages of every processor, of the real programs: what they
// take of a router's flash, read back from the packages.
func TestOpenWrtLong(t *testing.T) {
	if os.Getenv("UNBLOAT_LONG") == "" {
		t.Skip("SKIPPED: it builds the program five times; UNBLOAT_LONG=1 runs it")
	}
	squash, err := exec.LookPath("mksquashfs")
	if err != nil {
		t.Skipf("SKIPPED: %v", err)
	}
	t.Chdir(filepath.Join("..", ".."))
	var targets []target
	for arch := range routers() {
		targets = append(targets, target{"linux", arch})
	}
	r := made(t, release{make: []string{makeWRT}, targets: targets})
	packages, err := filepath.Glob(filepath.Join(r.out, "*.ipk"))
	if err != nil || len(packages) != len(targets)+2 {
		t.Fatal(packages, err)
	}
	most := func(name string) int64 {
		if strings.HasPrefix(name, luci) || strings.HasPrefix(name, "unbloat-measure") {
			return 20_000
		}
		return 4_500_000
	}
	// OpenWrt's firmware has xz's filter for code on these.
	filter := func(name string) []string {
		switch {
		case strings.HasSuffix(name, "_amd64.ipk"):
			return []string{"-Xbcj", "x86"}
		case strings.HasSuffix(name, "_arm.ipk"):
			return []string{"-Xbcj", "arm"}
		}
		return nil
	}
	for _, p := range packages {
		name := filepath.Base(p)
		files, _ := routerFiles(t, p)
		apk, _ := routerFiles(t, filepath.Join(r.out, strings.NewReplacer("_1.2.3_all.ipk", "-1.2.3-r0.apk", "_1.2.3_", "-", ".ipk", "-1.2.3-r0.apk").Replace(name)))
		var laid []file
		for n, text := range files {
			laid = append(laid, file{n, 0o755, []byte(text)})
			if apk[n] != text {
				t.Errorf("%s: %s is another one in the apk", name, n)
			}
		}
		dir := t.TempDir()
		if err := lay(filepath.Join(dir, "root"), laid); err != nil {
			t.Fatal(err)
		}
		image := filepath.Join(dir, "image")
		argv := append([]string{filepath.Join(dir, "root"), image, "-comp", "xz", "-b", "256K", "-noappend", "-quiet", "-no-progress"}, filter(name)...)
		if out, err := exec.CommandContext(t.Context(), squash, argv...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		flash, err := os.Stat(image)
		if err != nil {
			t.Fatal(err)
		}
		file, err := os.Stat(p)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%-36s %8d bytes to fetch, %8d in flash", name, file.Size(), flash.Size())
		if flash.Size() > most(name) {
			t.Errorf("%s takes %d bytes of flash, more than %d", name, flash.Size(), most(name))
		}
	}
}

// TestOpenWrtVersion: versions as apk takes them. A build without a tag is older than
// any release.
func TestOpenWrtVersion(t *testing.T) {
	for version, want := range map[string]string{
		"v1.2.3": "1.2.3-r0", "v1.2.3-4-gabcdef0": "1.2.3_p4-r0", "v1.2.3-dirty": "1.2.3-r0", "v1.2.3-rc1": "1.2.3_rc1-r0", "v1.2.3-rc1-4-gabcdef0": "1.2.3_rc1_p4-r0",
		"abcdef0": "0.0_git20231114221320", "7abcdef-dirty": "0.0_git20231114221320", "1234567": "0.0_git20231114221320",
	} {
		if got := (&release{version: version, date: time.Unix(1700000000, 0).UTC()}).openwrtVersion(kindAPK); got != want {
			t.Errorf("%s: %s, not %s", version, got, want)
		}
	}
}

// TestCatalogue: a catalogue's hashes are those of LuCI's own program, and each text
// is found by its original's.
func TestCatalogue(t *testing.T) {
	for text, want := range map[string]uint32{"Why": 0x32ae2167, "Download": 0x19861e29, "Upload": 0x2d3b2e89, "Keep it": 0x068acc67, "äöx": 0xebda178e} {
		if got := messageHash(text); got != want {
			t.Errorf("%s: %08x, not %08x", text, got, want)
		}
	}
	packed, err := catalogue("msgid \"\"\nmsgstr \"Language: de\\n\"\n\n# x\nmsgid \"Why\"\nmsgstr \"\"\n\"War\"\n\"um\"\nmsgid \"Download\"\nmsgstr \"Download\"\nmsgid \"Upload\"\nmsgstr \"Hochladen\"\n")
	if err != nil {
		t.Fatal(err)
	}
	number := func(at int) int { return int(binary.BigEndian.Uint32(packed[at:])) }
	table, found := number(len(packed)-4), map[int]string{}
	for at := table; at < len(packed)-4; at += 16 {
		found[number(at)] = string(packed[number(at+8) : number(at+8)+number(at+12)])
	}
	if len(found) != 2 || found[0x32ae2167] != "Warum" || found[0x2d3b2e89] != "Hochladen" || table%4 != 0 {
		t.Errorf("%v in %q", found, packed)
	}
	for _, bad := range []string{"msgid x\n", "Why\n", "\"x\"\n"} {
		if _, err := catalogue(bad); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

// TestTranslated: the template has each text of LuCI's page, and nothing else; the
// German catalogue translates all.
func TestTranslated(t *testing.T) {
	dir := filepath.Join("..", "..", openwrtDir, luci)
	var texts []string
	err := filepath.WalkDir(filepath.Join(dir, "htdocs"), func(p string, d fs.DirEntry, err error) error {
		if err == nil && path.Ext(p) == ".js" {
			for _, m := range regexp.MustCompile(`\b_\('([^']*)'\)`).FindAllStringSubmatch(read(t, p), -1) {
				texts = append(texts, m[1])
			}
		}
		return err
	})
	if err != nil || len(texts) == 0 {
		t.Fatal(texts, err)
	}
	slices.Sort(texts)
	texts = slices.Compact(texts)
	var pot strings.Builder
	pot.WriteString("msgid \"\"\nmsgstr \"Content-Type: text/plain; charset=UTF-8\\n\"\n")
	for _, text := range texts {
		fmt.Fprintf(&pot, "\nmsgid %q\nmsgstr \"\"\n", text)
	}
	template := filepath.Join(dir, "po/templates/unbloat.pot")
	if os.Getenv("UNBLOAT_POT") != "" { // writes it
		if err := os.WriteFile(template, []byte(pot.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if read(t, template) != pot.String() {
		t.Errorf("%s is not what the page says; UNBLOAT_POT=1 go test ./contrib/package -run TestTranslated writes it", template)
	}
	german, err := messagesOf(read(t, filepath.Join(dir, "po/de/unbloat.po")))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range german {
		if i := slices.Index(texts, m.id); i >= 0 {
			texts = slices.Delete(texts, i, i+1)
			verbs := regexp.MustCompile(`%[sd]`)
			if m.text == "" || !slices.Equal(verbs.FindAllString(m.id, -1), verbs.FindAllString(m.text, -1)) {
				t.Errorf("%q is in German %q", m.id, m.text)
			}
		} else if m.id != "" {
			t.Errorf("the page does not say %q", m.id)
		}
	}
	if len(texts) > 0 {
		t.Errorf("not in German: %q", texts)
	}
}
