// Command package makes what people install: tarballs of the static program for
// every system, Debian, RPM and OpenWrt packages, the test server's package and
// container image, a bill of materials for each program, checksums and their signature. The
// same commit gives the same bytes.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// What can be made.
const (
	makeSource = "src"    // the source, with all modules, from which it is built without a network
	makeTar    = "tar"    // a tarball for each target, and its bill of materials
	makeDeb    = "deb"    // for Linux
	makeRPM    = "rpm"    // for Linux
	makeServer = "server" // the test server's Debian package and image, for Linux
	makeApps   = "apps"   // what routers' own web interfaces show: OPNsense, pfSense, ClearOS
)

// nfpm is the program that writes Debian and RPM packages.
const nfpm = "github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.45.2"

// A release says what is made, and from what.
type release struct {
	version string    // of the source, as git describes it
	commit  string    // of the source; "": unknown
	date    time.Time // of everything that is made
	out     string    // directory of what is made
	key     string    // file with minisign's secret key; "": nothing is signed
	ca      string    // file with the certificates of authorities, for the image
	make    []string  // some of the constants above
	targets []target
	host    target // this machine, whose program writes the manual pages
	program string // the host's, if it is built already
	lab     string // the host's laboratory, if it is built already
	router  string // the program for routers, if it is built already

	work    string                // directory of what is thrown away
	run     func(...string) error // runs a command in the module's root, in this machine's environment
	written []string              // files of what is made
}

// A target is a system and a processor, by Go's names.
type target struct{ os, arch string }

func (t target) String() string { return t.os + "/" + t.arch }

func parseTarget(s string) (target, error) {
	system, arch, ok := strings.Cut(s, "/")
	if !ok || system == "" || arch == "" {
		return target{}, fmt.Errorf("%q is no target; write it as linux/amd64", s)
	}
	return target{system, arch}, nil
}

func main() {
	host := target{runtime.GOOS, runtime.GOARCH}
	r := release{host: host, targets: []target{host}}
	flag.StringVar(&r.version, "version", "unknown", "of the source, as `git describe` says it")
	flag.StringVar(&r.commit, "commit", "", "of the source, in full")
	epoch := flag.String("epoch", os.Getenv("SOURCE_DATE_EPOCH"), "time of everything in `SECONDS` since 1970 (default: SOURCE_DATE_EPOCH)")
	flag.StringVar(&r.out, "out", "bin/packages", "`DIR` to write to")
	flag.StringVar(&r.key, "key", "", "sign with minisign's secret key in `FILE`")
	flag.StringVar(&r.ca, "ca", "/etc/ssl/certs/ca-certificates.crt", "`FILE` with the certificates of authorities, for the image")
	what := flag.String("make", "src,tar,deb,rpm,server,apps,openwrt", "which `KINDS`: some of src, tar, deb, rpm, server, apps, openwrt")
	flag.Usage = func() {
		fmt.Fprintln(os.Stderr, "usage: package [FLAGS] [OS/ARCH…]     in the module's root")
		flag.PrintDefaults()
	}
	flag.Parse()
	r.make = strings.Split(*what, ",")
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := r.parse(*epoch, flag.Args())
	if err == nil {
		err = r.all(ctx)
	}
	stop()
	for _, f := range r.written {
		fmt.Println(f)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "package:", err)
		os.Exit(1)
	}
}

// parse reads what flags can't.
func (r *release) parse(epoch string, targets []string) error {
	seconds, err := strconv.ParseInt(epoch, 10, 64)
	if err != nil || seconds <= 0 {
		return fmt.Errorf("-epoch %q: must be seconds since 1970, such as those of `git log -1 --format=%%ct`", epoch)
	}
	r.date = time.Unix(seconds, 0).UTC()
	for _, kind := range r.make {
		if !slices.Contains([]string{makeSource, makeTar, makeDeb, makeRPM, makeServer, makeApps, makeWRT}, kind) {
			return fmt.Errorf("-make %q: must be some of src, tar, deb, rpm, server, apps and openwrt", kind)
		}
	}
	if len(targets) > 0 {
		r.targets = nil
	}
	for _, s := range targets {
		t, err := parseTarget(s)
		if err != nil {
			return err
		}
		r.targets = append(r.targets, t)
	}
	if _, err := exec.LookPath("minisign"); r.key != "" && err != nil {
		return fmt.Errorf("-key: %w; install minisign", err)
	}
	return nil
}

// all makes everything.
func (r *release) all(ctx context.Context) (err error) {
	if r.work, err = os.MkdirTemp("", "unbloat-package-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(r.work)) }()
	if err := os.MkdirAll(r.out, 0o755); err != nil {
		return err
	}
	r.run = func(argv ...string) error { return r.command(ctx, nil, argv...) }
	if r.makes(makeSource) {
		if err := r.source(ctx); err != nil {
			return err
		}
	}
	if r.makes(makeTar) || r.makes(makeDeb) || r.makes(makeRPM) {
		if err := r.describe(ctx); err != nil {
			return err
		}
	}
	if r.makes(makeWRT) {
		if err := r.openwrtEverywhere(ctx); err != nil {
			return err
		}
	}
	if r.makes(makeApps) {
		if err := r.apps(ctx); err != nil {
			return err
		}
	}
	for _, t := range r.targets {
		if r.makes(makeWRT) && t.os == "linux" {
			if err := r.openwrt(ctx, t); err != nil {
				return fmt.Errorf("%s: %w", t, err)
			}
		}
		if !slices.ContainsFunc(r.make, func(kind string) bool { return kind != makeSource && kind != makeApps && kind != makeWRT }) {
			continue
		}
		p, err := r.programs(ctx, t)
		if err != nil {
			return err
		}
		if err := r.one(ctx, t, p); err != nil {
			return fmt.Errorf("%s: %w", t, err)
		}
	}
	if r.makes(makeTar) {
		if err := r.copyScript(); err != nil {
			return err
		}
	}
	return r.sum()
}

func (r *release) makes(kind string) bool { return slices.Contains(r.make, kind) }

// one makes what there is of one target.
func (r *release) one(ctx context.Context, t target, p programs) error {
	if r.makes(makeTar) {
		if err := r.tarball(ctx, t, p); err != nil {
			return err
		}
	}
	arch, known := packaged()[t.arch]
	if t.os != "linux" || !known {
		return nil
	}
	for _, kind := range []string{makeDeb, makeRPM} {
		if r.makes(kind) {
			if err := r.system(ctx, kind, arch, p); err != nil {
				return err
			}
		}
	}
	if r.makes(makeServer) {
		return r.server(ctx, t, arch, p.unbloat)
	}
	return nil
}

// The programs of a target.
type programs struct {
	unbloat string
	lab     string // "": the target's has none
}

// all are the paths of those that there are.
func (p programs) all() []string {
	if p.lab == "" {
		return []string{p.unbloat}
	}
	return []string{p.unbloat, p.lab}
}

// programs builds those of a target. The laboratory is for where it runs on a real kernel.
func (r *release) programs(ctx context.Context, t target) (p programs, err error) {
	p.unbloat, err = r.build(ctx, t, "unbloat", r.program)
	if err == nil && t.os == "linux" && slices.Contains([]string{"amd64", "arm64"}, t.arch) && (r.makes(makeTar) || r.makes(makeDeb) || r.makes(makeRPM)) {
		p.lab, err = r.build(ctx, t, "unbloat-lab", r.lab)
	}
	return p, err
}

// build builds one of cmd's programs for a target, once. host is the host's, if it is
// built already.
func (r *release) build(ctx context.Context, t target, name, host string) (string, error) {
	out := filepath.Join(r.work, t.os+"-"+t.arch, name)
	if t == r.host && host != "" {
		return host, nil
	}
	if _, err := os.Stat(out); err == nil {
		return out, nil
	}
	env := []string{"GOOS=" + t.os, "GOARCH=" + t.arch, "GOMIPS=softfloat", "GOARM=7"}
	err := r.command(ctx, env, "go", "build", "-buildvcs=false", "-ldflags", "-s -w -X main.version="+r.version+" -X main.commit="+r.commit, "-o", out, "./cmd/"+name)
	return out, err
}

// command runs a command in the module's root with a clean environment, env beside.
func (r *release) command(ctx context.Context, env []string, argv ...string) error {
	c := exec.CommandContext(ctx, argv[0], argv[1:]...)
	c.Env = append(environment(), fmt.Sprintf("SOURCE_DATE_EPOCH=%d", r.date.Unix()))
	c.Env = append(c.Env, env...)
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(argv, " "), err, out)
	}
	return nil
}

// environment is this process's, without what would change what is built or what
// the program says of itself. Go's flags are the Makefile's, so that what is compiled once
// is compiled for all.
func environment() []string {
	return append(slices.DeleteFunc(os.Environ(), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return strings.HasPrefix(name, "UNBLOAT_") || slices.Contains([]string{"GOOS", "GOARCH", "GOARM", "GOMIPS", "GOAMD64", "GOARM64", "GOFLAGS", "GOEXPERIMENT", "GODEBUG", "CGO_ENABLED", "LANG", "LC_ALL", "LANGUAGE"}, name)
	}), "CGO_ENABLED=0", "GOFLAGS=-trimpath -gcflags=all=-dwarf=false", "UNBLOAT_CONFIG=") // none is read
}

// plain is the version as file names and tarballs have it.
func (r *release) plain() string { return strings.TrimPrefix(r.version, "v") }

// ordered is the version as Debian and RPM order versions. They begin with a
// digit; a build without a tag is older than any release, and 1.2.0-rc1 than 1.2.0.
func (r *release) ordered() string {
	v := r.plain()
	if !regexp.MustCompile(`^[0-9]+\.`).MatchString(v) {
		v = "0~" + r.date.Format("20060102150405") + "." + v
	}
	v = regexp.MustCompile(`-(alpha|beta|rc)`).ReplaceAllString(v, "~$1")
	return strings.ReplaceAll(v, "-", "+")
}
