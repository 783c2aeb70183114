package main

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"
)

// apps makes what shows the program in routers' own web interfaces: tarballs for
// OPNsense and pfSense, and ClearOS's app as RPM packages. They fit any processor.
func (r *release) apps(ctx context.Context) error {
	service, err := os.ReadFile("contrib/ports/freebsd/files/unbloatd.in")
	if err != nil {
		return err
	}
	service = []byte(strings.ReplaceAll(string(service), "%%PREFIX%%", "/usr/local"))
	for _, a := range []struct{ from, service string }{
		{"contrib/apps/opnsense/src", "etc/rc.d/unbloatd"},            // below /usr/local
		{"contrib/apps/pfsense/files", "usr/local/etc/rc.d/unbloatd"}, // below /
	} {
		files, err := r.tree(a.from)
		if err != nil {
			return err
		}
		name := "unbloat-" + path.Base(path.Dir(a.from)) + "-" + r.plain()
		packed, err := tarred(name, append(files, file{a.service, 0o755, service}), r.date)
		if err != nil {
			return err
		}
		if err := r.write(name+".tar.gz", gzipped(packed, time.Time{})); err != nil {
			return err
		}
	}
	for _, p := range []struct{ name, config string }{{"app-unbloat-core", "core"}, {"app-unbloat", "app"}} {
		config := path.Join("contrib/apps/clearos/packaging", p.config+".yaml")
		if err := r.nfpm(ctx, makeRPM, config, r.work, "noarch", fmt.Sprintf("%s-%s-1.noarch.rpm", p.name, r.ordered())); err != nil {
			return err
		}
	}
	return nil
}

// tree returns the files below a directory, with modes that do not depend on who
// checked them out, and with the version where they name it. Scripts of packages are
// no files of the router.
func (r *release) tree(dir string) (files []file, err error) {
	err = filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		text, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, p)
		if err != nil || strings.HasSuffix(name, ".in") {
			return err
		}
		mode := fs.FileMode(0o644)
		if info.Mode()&0o100 != 0 {
			mode = 0o755
		}
		files = append(files, file{filepath.ToSlash(name), mode, []byte(strings.ReplaceAll(string(text), "%%PKGVERSION%%", r.plain()))})
		return nil
	})
	return files, err
}
