package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// packaged are the processors that packages are made for: Go's names, and those
// of Debian and RPM.
func packaged() map[string]names {
	return map[string]names{
		"amd64":   {"amd64", "x86_64"},
		"arm64":   {"arm64", "aarch64"},
		"arm":     {"armhf", "armv7hl"},
		"riscv64": {"riscv64", "riscv64"},
	}
}

// names are what Debian and RPM call a processor.
type names struct{ deb, rpm string }

// system makes the Debian or the RPM package of the programs.
func (r *release) system(ctx context.Context, kind string, arch names, p programs) error {
	zsh, is, name := "share/zsh/site-functions", arch.rpm, fmt.Sprintf("unbloat-%s-1.%s.rpm", r.ordered(), arch.rpm)
	if kind == makeDeb {
		zsh, is, name = "share/zsh/vendor-completions", arch.deb, fmt.Sprintf("unbloat_%s_%s.deb", r.ordered(), arch.deb)
	}
	files, err := r.shared(zsh, true)
	if err != nil {
		return err
	}
	_, notices, err := r.materials(ctx, target{}, p.all()...)
	if err != nil {
		return err
	}
	files = append(files, file{"share/doc/unbloat/THIRD-PARTY-NOTICES.gz", 0o644, gzipped(notices, time.Time{})})
	more := map[string]string{"contrib/package/daemon/unbloatd.service": "lib/systemd/system/unbloatd.service"}
	if kind == makeRPM {
		more["CHANGELOG.md"] = "share/doc/unbloat/CHANGELOG.md"
	} else {
		more["contrib/package/copyright"], more["contrib/package/lintian-overrides"] = "share/doc/unbloat/copyright", "share/lintian/overrides/unbloat"
		files = append(files, r.changelog("unbloat"))
	}
	pages, err := filepath.Glob("docs/*.md")
	if err != nil {
		return err
	}
	for _, page := range pages { // help names them
		more[page] = "share/doc/unbloat/" + page
	}
	for from, to := range more {
		text, err := os.ReadFile(from)
		if err != nil {
			return err
		}
		files = append(files, file{to, 0o644, text})
	}
	root := filepath.Join(r.work, kind+"-"+is)
	var docs []string // as entries of the package's description
	for i, f := range files {
		files[i].name = "usr/" + f.name
		if kind == makeRPM && (strings.HasPrefix(f.name, "share/man/") || strings.HasPrefix(f.name, "share/doc/")) {
			files[i].name = "doc/" + f.name
			docs = append(docs, fmt.Sprintf("  - {src: %q, dst: %q, type: doc}\n", filepath.Join(root, files[i].name), "/usr/"+f.name))
		}
	}
	if err := lay(root, files); err != nil {
		return err
	}
	for i, program := range p.all() {
		if err := copied(filepath.Join(root, []string{"usr/bin/unbloat", "usr/bin/unbloat-lab"}[i]), program, 0o755); err != nil {
			return err
		}
	}
	text, err := os.ReadFile("contrib/package/package.yaml")
	if err != nil {
		return err
	}
	config := filepath.Join(r.work, kind+"-"+is+".yaml")
	if err := os.WriteFile(config, []byte(string(text)+strings.Join(docs, "")), 0o600); err != nil {
		return err
	}
	return r.nfpm(ctx, kind, config, root, is, name)
}

// server makes the Debian package and the image of the test server.
func (r *release) server(ctx context.Context, t target, arch names, program string) error {
	_, notices, err := r.materials(ctx, t, program)
	if err != nil {
		return err
	}
	files := []file{r.changelog("unbloat-serve"), {"share/doc/unbloat-serve/THIRD-PARTY-NOTICES.gz", 0o644, gzipped(notices, time.Time{})}}
	for from, to := range map[string]string{
		"contrib/package/copyright":                    "share/doc/unbloat-serve/copyright",
		"docs/running-a-server-packages.md":            "share/doc/unbloat-serve/running-a-server-packages.md",
		"contrib/package/server/lintian-overrides":     "share/lintian/overrides/unbloat-serve",
		"contrib/package/server/unbloat-serve.service": "lib/systemd/system/unbloat-serve.service",
		"contrib/package/server/unbloat-serve.socket":  "lib/systemd/system/unbloat-serve.socket",
	} {
		text, err := os.ReadFile(from)
		if err != nil {
			return err
		}
		files = append(files, file{to, 0o644, text})
	}
	root := filepath.Join(r.work, "server-"+arch.deb)
	if err := lay(filepath.Join(root, "usr"), files); err != nil {
		return err
	}
	if err := copied(filepath.Join(root, "usr/lib/unbloat-serve/unbloat"), program, 0o755); err != nil {
		return err
	}
	if err := r.nfpm(ctx, makeDeb, "contrib/package/server/package.yaml", root, arch.deb, fmt.Sprintf("unbloat-serve_%s_%s.deb", r.ordered(), arch.deb)); err != nil {
		return err
	}
	layout := filepath.Join(r.out, "unbloat-serve-image-"+t.arch)
	if err := os.RemoveAll(layout); err != nil {
		return err
	}
	return image{program: program, ca: r.ca, on: t, version: r.version, created: r.date.UTC()}.write(layout)
}

// nfpm writes a package of the files below a directory.
func (r *release) nfpm(ctx context.Context, kind, config, root, arch, name string) error {
	out := filepath.Join(r.out, name)
	if err := r.command(ctx, []string{"PACKAGE_ROOT=" + root, "PACKAGE_VERSION=" + r.ordered(), "PACKAGE_ARCH=" + arch},
		"go", "run", nfpm, "package", "-f", config, "-p", kind, "-t", out); err != nil {
		return err
	}
	r.written = append(r.written, out)
	return nil
}

// changelog is what Debian wants to be told of each version.
func (r *release) changelog(name string) file {
	text := fmt.Sprintf("%s (%s) unstable; urgency=medium\n\n  * See CHANGELOG.md of the source.\n\n -- unbloat <unbloat@localhost>  %s\n", name, r.ordered(), r.date.Format(time.RFC1123Z))
	return file{"share/doc/" + name + "/changelog.gz", 0o644, gzipped([]byte(text), time.Time{})}
}
