package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Kinds of OpenWrt's packages: apk since version 25, ipk before.
const (
	kindAPK = "apk"
	kindIPK = "ipk"
)

// makeWRT is OpenWrt's packages, among what can be made.
const makeWRT = "openwrt"

// openwrtDir has what only OpenWrt needs.
const openwrtDir = "contrib/openwrt"

// luci is the package of LuCI's page, and the directory of its sources, which are
// laid out as LuCI's own tree has them.
const luci = "luci-app-unbloat"

// routers are the processors of OpenWrt routers that programs are built for: Go's
// names, and patterns of OpenWrt's, which has one for each model. arm needs floating
// point in hardware, which Cortex-A have.
func routers() map[string]string {
	return map[string]string{"mips": "mips_*", "mipsle": "mipsel_*", "arm": "arm_cortex-a*", "arm64": "aarch64_*", "amd64": "x86_64"}
}

// An openwrtPackage is one package, before it is packed.
type openwrtPackage struct {
	name, processor string // processor "": it runs everywhere
	summary         string
	depends         []string
	files           []file
	conffiles       []file
	matches         string // OpenWrt's processors; "": all
	removed         string // what a shell does on the router once it is gone; "": nothing
}

// openwrt makes the packages of a processor.
func (r *release) openwrt(ctx context.Context, t target) error {
	processors, known := routers()[t.arch]
	if !known {
		return nil
	}
	program := r.router
	if program == "" {
		program = filepath.Join(r.work, "openwrt-"+t.arch, "unbloat")
		if err := r.command(ctx, []string{"VERSION=" + r.version, "COMMIT=" + r.commit}, "scripts/router", "build", t.String(), program); err != nil {
			return err
		}
	}
	text, err := os.ReadFile(program)
	if err != nil {
		return err
	}
	_, notices, err := r.materials(ctx, t, program)
	if err != nil {
		return err
	}
	p := openwrtPackage{name: "unbloat", processor: t.arch, matches: processors,
		summary: "keeps the latency of a line low: measures it, shapes it, and keeps it so",
		// tc, CAKE with what brings the download to it, and what a change is tried out in first.
		depends: []string{"tc", "ip", "unshare", "kmod-sched-core", "kmod-sched-cake", "kmod-ifb"}}
	if p.files, p.conffiles, err = openwrtFiles(); err != nil {
		return err
	}
	p.files = append(p.files, file{"usr/bin/unbloat", 0o755, text}, file{"usr/share/licenses/unbloat/NOTICES.gz", 0o644, gzipped(notices, time.Time{})})
	return r.openwrtPack(ctx, p)
}

// openwrtFiles are the files of the package of the daemon beside its program.
func openwrtFiles() (files, conffiles []file, err error) {
	for from, to := range map[string]file{
		"unbloat.config":   {"etc/config/unbloat", 0o600, nil},
		"unbloatd.init":    {"etc/init.d/unbloatd", 0o755, nil},
		"unbloat.defaults": {"etc/uci-defaults/50-unbloat", 0o644, nil},
	} {
		if to.text, err = os.ReadFile(filepath.Join(openwrtDir, from)); err != nil {
			return nil, nil, err
		}
		if from == "unbloat.config" {
			conffiles = append(conffiles, to)
		} else {
			files = append(files, to)
		}
	}
	// What sysupgrade keeps besides the configuration: which lines are off.
	return append(files, file{"lib/upgrade/keep.d/unbloat", 0o644, []byte("/etc/unbloat/\n")}), conffiles, nil
}

// openwrtEverywhere makes the packages that are the same for all processors: LuCI's page,
// and what brings the program to routers that had a second one, which measured.
func (r *release) openwrtEverywhere(ctx context.Context) error {
	p, err := luciPackage()
	if err != nil {
		return err
	}
	return errors.Join(r.openwrtPack(ctx, p), r.openwrtPack(ctx, openwrtPackage{name: "unbloat-measure",
		summary: "is empty: unbloat itself measures, and this may be removed", depends: []string{"unbloat"}}))
}

// luciPackage is the package of LuCI's page. What makes LuCI look for its pages and its
// programs again is done when it is gone, as when it comes.
func luciPackage() (openwrtPackage, error) {
	files, err := luciFiles()
	if err != nil {
		return openwrtPackage{}, err
	}
	again, err := os.ReadFile(filepath.Join(openwrtDir, "luci.defaults"))
	return openwrtPackage{name: luci, summary: "LuCI's page of unbloat: how the line is kept, its speeds, on and off", depends: []string{"luci-base", "unbloat"}, files: files, removed: string(again)}, err
}

// luciFiles are the files of LuCI's page as a router has them.
func luciFiles() ([]file, error) {
	var out []file
	src := filepath.Join(openwrtDir, luci)
	for from, to := range map[string]string{"htdocs": "www", "root": ""} {
		err := filepath.WalkDir(filepath.Join(src, from), func(p string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			rest, err := filepath.Rel(filepath.Join(src, from), p)
			if err != nil {
				return err
			}
			text, err := os.ReadFile(p)
			mode := fs.FileMode(0o644)
			if strings.Contains(p, "libexec") {
				mode = 0o755
			}
			out = append(out, file{filepath.ToSlash(filepath.Join(to, rest)), mode, text})
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	catalogues, err := filepath.Glob(filepath.Join(src, "po", "*", "*.po"))
	if err != nil {
		return nil, err
	}
	for _, c := range catalogues {
		text, err := os.ReadFile(c)
		if err != nil {
			return nil, err
		}
		lmo, err := catalogue(string(text))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c, err)
		}
		out = append(out, file{fmt.Sprintf("usr/lib/lua/luci/i18n/unbloat.%s.lmo", filepath.Base(filepath.Dir(c))), 0o644, lmo})
	}
	defaults, err := os.ReadFile(filepath.Join(openwrtDir, "luci.defaults"))
	return append(out, file{"etc/uci-defaults/60-" + luci, 0o644, defaults}), err
}

// openwrtPack writes a package in both formats. Its architecture is "all": OpenWrt has
// a name for each model of a processor, and one file serves all of a family. A script
// refuses other families.
func (r *release) openwrtPack(ctx context.Context, p openwrtPackage) error {
	for _, kind := range []string{kindAPK, kindIPK} {
		root := filepath.Join(r.work, kind, p.name+p.processor)
		files := slices.Clone(p.files)
		if kind == kindAPK {
			files = append(files, p.lists()...)
		}
		if err := errors.Join(lay(filepath.Join(root, "data"), files), lay(filepath.Join(root, "conf"), p.conffiles), lay(filepath.Join(root, "scripts"), p.scripts(kind))); err != nil {
			return err
		}
		if err := dated(root, r.date); err != nil {
			return err
		}
		if err := lay(root, []file{{"nfpm.yaml", 0o600, []byte(p.description(kind, root, r.openwrtVersion(kind), files))}}); err != nil {
			return err
		}
		name := fmt.Sprintf("%s-%s.apk", strings.TrimSuffix(p.name+"-"+p.processor, "-"), r.openwrtVersion(kind))
		if kind == kindIPK {
			name = fmt.Sprintf("%s_%s_%s.ipk", p.name, r.openwrtVersion(kind), cmp.Or(p.processor, "all"))
		}
		out := filepath.Join(r.out, name)
		if err := r.command(ctx, nil, "go", "run", nfpm, "package", "-f", filepath.Join(root, "nfpm.yaml"), "-p", kind, "-t", out); err != nil {
			return err
		}
		r.written = append(r.written, out)
	}
	return nil
}

// dated gives all below a directory the release's date.
func dated(dir string, date time.Time) error {
	return filepath.WalkDir(dir, func(p string, _ fs.DirEntry, err error) error {
		return errors.Join(err, os.Chtimes(p, date, date))
	})
}

// lists are what apk does not remember itself, and OpenWrt's scripts look for.
func (p openwrtPackage) lists() []file {
	var names, conf, sums strings.Builder
	for _, f := range sorted(slices.Concat(p.files, p.conffiles)) {
		fmt.Fprintf(&names, "/%s\n", f.name)
	}
	for _, f := range sorted(p.conffiles) {
		fmt.Fprintf(&conf, "/%s\n", f.name)
		fmt.Fprintf(&sums, "/%s %x\n", f.name, sha256.Sum256(f.text))
	}
	const dir = "lib/apk/packages/"
	out := []file{{dir + p.name + ".list", 0o644, []byte(names.String())}}
	if len(p.conffiles) > 0 {
		out = append(out, file{dir + p.name + ".conffiles", 0o644, []byte(conf.String())}, file{dir + p.name + ".conffiles_static", 0o644, []byte(sums.String())})
	}
	return out
}

// scripts are those that run on the router. OpenWrt's own functions enable and start
// services, apply uci-defaults, and stop and disable what is removed.
func (p openwrtPackage) scripts(kind string) []file {
	const functions = "[ -s \"${IPKG_INSTROOT}/lib/functions.sh\" ] || exit 0\n. \"${IPKG_INSTROOT}/lib/functions.sh\"\n"
	call := func(function string) string {
		if kind == kindIPK {
			return functions + function + " \"$0\" \"$@\"\n"
		}
		return functions + "export root=\"${IPKG_INSTROOT}\" pkgname=\"" + p.name + "\"\n" + function + "\n"
	}
	install := "[ \"${IPKG_NO_SCRIPT}\" = 1 ] && exit 0\n" + call("default_postinst")
	out := []file{{"postinst", 0o755, []byte("#!/bin/sh\n" + install)}, {"prerm", 0o755, []byte("#!/bin/sh\n" + call("default_prerm"))}}
	if kind == kindAPK {
		out = append(out, file{"postupgrade", 0o755, []byte("#!/bin/sh\nexport PKG_UPGRADE=1\n" + install)})
	}
	if p.removed != "" { // rpcd would offer what is gone until the next boot
		out = append(out, file{"postrm", 0o755, []byte("#!/bin/sh\n[ -z \"${IPKG_INSTROOT}\" ] || exit 0\n" + p.removed)})
	}
	if p.matches != "" {
		text := fmt.Sprintf(`#!/bin/sh
release="${IPKG_INSTROOT}/etc/openwrt_release"
[ -r "$release" ] || exit 0
. "$release"
case "$DISTRIB_ARCH" in
%s) exit 0 ;;
esac
echo "%s: this package is for the processors %s, and this router has $DISTRIB_ARCH" >&2
exit 1
`, p.matches, p.name, p.matches)
		out = append(out, file{"preinst", 0o755, []byte(text)})
	}
	return out
}

// description is the package as nfpm reads it.
func (p openwrtPackage) description(kind, root, version string, files []file) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	list := func(key string, of []string) {
		if len(of) > 0 {
			line("%s: [%s]", key, strings.Join(of, ", "))
		}
	}
	line("name: %s\narch: all\nplatform: linux\nversion: %s\nversion_schema: none\nsection: net\npriority: optional", p.name, version)
	line("maintainer: unbloat <unbloat@localhost>\nlicense: Apache-2.0\ndescription: %q\numask: 0o022", p.summary)
	list("depends", p.depends)
	line("scripts:\n  postinstall: %q\n  preremove: %q", filepath.Join(root, "scripts/postinst"), filepath.Join(root, "scripts/prerm"))
	if p.matches != "" {
		line("  preinstall: %q", filepath.Join(root, "scripts/preinst"))
	}
	if p.removed != "" {
		line("  postremove: %q", filepath.Join(root, "scripts/postrm"))
	}
	if kind == kindAPK {
		line("apk:\n  scripts:\n    postupgrade: %q", filepath.Join(root, "scripts/postupgrade"))
		if p.matches != "" {
			line("    preupgrade: %q", filepath.Join(root, "scripts/preinst"))
		}
	}
	line("contents:")
	for _, f := range files { // not as a tree: apk-tools can't read the modes that nfpm gives directories then
		line("  - {src: %q, dst: %q, file_info: {mode: 0%o}}", filepath.Join(root, "data", f.name), "/"+f.name, f.mode)
	}
	for _, f := range p.conffiles {
		line("  - {src: %q, dst: %q, type: config, file_info: {mode: 0%o}}", filepath.Join(root, "conf", f.name), "/"+f.name, f.mode)
	}
	return b.String()
}

// openwrtVersion is the version as apk and opkg order versions. apk takes nothing
// but numbers, and suffixes that it knows.
func (r *release) openwrtVersion(kind string) string {
	if kind == kindIPK {
		return r.ordered()
	}
	m := regexp.MustCompile(`^([0-9]+(?:\.[0-9]+)*)(?:-(alpha|beta|rc)\.?([0-9]*))?(?:-([0-9]+)-g[0-9a-f]+)?(?:-dirty)?$`).FindStringSubmatch(r.plain())
	if m == nil || !strings.Contains(m[1], ".") {
		return "0.0_git" + r.date.Format("20060102150405")
	}
	v := m[1]
	if m[2] != "" {
		v += "_" + m[2] + m[3]
	}
	if m[4] != "" {
		v += "_p" + m[4] // after it
	}
	return v + "-r0"
}
