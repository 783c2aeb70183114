package lab

import (
	"bufio"
	"context"
	_ "embed"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// objects is about how many files the build compiles, for the progress line.
const objects = 1370

//go:embed kernelcc.sh
var kernelCompiler []byte

// BuildKernel builds the virtual engine's kernel into the user's cache, unless
// it is there already: the newest linux-source-7.* of Debian's backports, found
// through this machine's own apt configuration, which stays as it is. progress
// receives a line for each step and about one every five seconds in between.
func BuildKernel(ctx context.Context, progress func(string)) (Kernel, error) {
	if k, err := builtKernel(); err == nil {
		return k, nil
	}
	cache, err := cacheDir()
	if err != nil {
		return Kernel{}, err
	}
	if err := buildTools(cache); err != nil {
		return Kernel{}, err
	}
	_, lock, err := takeLock(ctx, []string{"build.lock"}, func() { progress("another process builds the kernel; waiting for it") })
	if err != nil {
		return Kernel{}, fmt.Errorf("build the lab's kernel: %w", err)
	}
	defer lock.Unlock()
	if k, err := builtKernel(); err == nil {
		return k, nil
	}
	scratch, err := os.MkdirTemp(cache, "building-")
	if err != nil {
		return Kernel{}, fmt.Errorf("build the lab's kernel: %w", err)
	}
	defer os.RemoveAll(scratch)
	b := &builder{cache: cache, dir: scratch, progress: progress}
	if err := b.build(ctx); err != nil {
		return Kernel{}, fmt.Errorf("build the lab's kernel: %w", err)
	}
	return builtKernel()
}

// buildTools checks that what the build calls is installed, and that there is room.
func buildTools(cache string) error {
	var missing []string
	for tool, pkg := range map[string]string{
		"flex": "flex", "bison": "bison", "bc": "bc", "gcc": "gcc", "make": "make",
		"xz": "xz-utils", "dpkg": "dpkg", "apt-get": "apt", "strip": "binutils",
	} {
		if _, err := exec.LookPath(tool); err != nil {
			missing = append(missing, pkg)
		}
	}
	if _, err := os.Stat("/usr/include/gelf.h"); err != nil {
		missing = append(missing, "libelf-dev")
	}
	if len(missing) > 0 {
		slices.Sort(missing)
		return &MissingError{"what building the lab's kernel needs (" + strings.Join(missing, ", ") + ")",
			"apt-get install " + strings.Join(missing, " ")}
	}
	var st unix.Statfs_t
	base := filepath.Dir(filepath.Dir(cache))
	if unix.Statfs(base, &st) == nil && st.Bavail*uint64(st.Bsize) < 3<<30 {
		return &MissingError{"3 GB of free space under " + base, "free some, or point XDG_CACHE_HOME elsewhere"}
	}
	return nil
}

type builder struct {
	cache    string
	dir      string // within it
	progress func(string)
}

func (b *builder) build(ctx context.Context) error {
	source, err := b.fetch(ctx)
	if err != nil {
		return err
	}
	b.progress("unpacking " + filepath.Base(source))
	// Two files of three are of other machines, or for people.
	argv := []string{"tar", "xf", source}
	for _, path := range []string{"arch/[!ux]*/*.[chdS]*", "drivers/[ghims]*/*.[ch]", "drivers/net/ethernet/*.[ch]", "drivers/net/wireless/*.[ch]", "sound/*.[ch]", "tools/perf/*", "tools/testing/*", "Documentation/*/*"} {
		argv = append(argv, "--exclude=*/"+path)
	}
	if err := b.run(ctx, b.dir, argv...); err != nil {
		return err
	}
	trees, _ := filepath.Glob(filepath.Join(b.dir, "linux-source-*"))
	trees = slices.DeleteFunc(trees, func(p string) bool { st, err := os.Stat(p); return err != nil || !st.IsDir() })
	if len(trees) != 1 {
		return fmt.Errorf("the source package holds %d source trees, not one", len(trees))
	}
	tree := trees[0]
	fragment := filepath.Join(b.dir, "uml.config")
	if err := os.WriteFile(fragment, kernelConfig, 0o644); err != nil {
		return err
	}
	if err := changeSource(tree); err != nil {
		return err
	}
	b.progress("configuring")
	for _, argv := range [][]string{
		{"make", "ARCH=um", "tinyconfig"},
		{"scripts/kconfig/merge_config.sh", "-m", ".config", fragment},
		{"make", "ARCH=um", "olddefconfig"},
	} {
		if err := b.run(ctx, tree, argv...); err != nil {
			return err
		}
	}
	if err := b.compile(ctx, tree); err != nil {
		return err
	}
	return b.install(ctx, tree)
}

var sourcePackage = regexp.MustCompile(`^linux-source-7\.[0-9]+$`)

// fetch downloads and unpacks the newest source package through a copy of the
// machine's apt sources that names the backports suite, in a scratch folder.
func (b *builder) fetch(ctx context.Context) (string, error) {
	sources, err := backportsSources()
	if err != nil {
		return "", err
	}
	list := filepath.Join(b.dir, "backports.sources")
	if err := os.WriteFile(list, []byte(sources), 0o644); err != nil {
		return "", err
	}
	for _, d := range []string{"lists/partial", "cache/archives/partial"} {
		if err := os.MkdirAll(filepath.Join(b.dir, d), 0o755); err != nil {
			return "", err
		}
	}
	options := []string{
		"-o", "Dir::Etc::sourcelist=" + list, "-o", "Dir::Etc::sourceparts=/dev/null",
		"-o", "Dir::State::lists=" + filepath.Join(b.dir, "lists"), "-o", "Dir::Cache=" + filepath.Join(b.dir, "cache"),
		"-o", "APT::Sandbox::User=root", "-q",
	}
	b.progress("asking Debian's backports for the newest linux-source-7")
	if err := b.run(ctx, b.dir, append(append([]string{"apt-get"}, options...), "update")...); err != nil {
		return "", err
	}
	out, err := exec.CommandContext(ctx, "apt-cache", append(options, "pkgnames", "linux-source-7")...).Output()
	if err != nil {
		return "", fmt.Errorf("list source packages: %w", err)
	}
	names := slices.DeleteFunc(strings.Fields(string(out)), func(n string) bool { return !sourcePackage.MatchString(n) })
	if len(names) == 0 {
		return "", fmt.Errorf("the apt mirror's backports suite has no linux-source-7 package; the realtime engine (package user-mode-linux) needs none")
	}
	newest := slices.MaxFunc(names, func(x, y string) int {
		return compareVersions(strings.TrimPrefix(x, "linux-source-"), strings.TrimPrefix(y, "linux-source-"))
	})
	b.progress("downloading " + newest + " (about 170 MB)")
	if err := b.run(ctx, b.dir, append(append([]string{"apt-get"}, options...), "download", newest)...); err != nil {
		return "", err
	}
	debs, _ := filepath.Glob(filepath.Join(b.dir, "linux-source-*.deb"))
	if len(debs) != 1 {
		return "", fmt.Errorf("download %s: apt-get left %d packages, not one", newest, len(debs))
	}
	if err := b.run(ctx, b.dir, "dpkg", "-x", debs[0], filepath.Join(b.dir, "package")); err != nil {
		return "", err
	}
	tars, _ := filepath.Glob(filepath.Join(b.dir, "package/usr/src/linux-source-*.tar.xz"))
	if len(tars) != 1 {
		return "", fmt.Errorf("package %s holds %d source archives, not one", newest, len(tars))
	}
	return tars[0], nil
}

// compile runs make and turns its output into progress.
func (b *builder) compile(ctx context.Context, tree string) error {
	compiler := filepath.Join(b.dir, "compiler", "cc")
	if err := os.Mkdir(filepath.Dir(compiler), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(compiler, kernelCompiler, 0o755); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "make", "ARCH=um", "CC="+compiler, fmt.Sprintf("-j%d", runtime.NumCPU()), "linux")
	cmd.Dir = tree
	cmd.WaitDelay = 5 * time.Second
	r, w := io.Pipe()
	cmd.Stdout, cmd.Stderr = w, w
	tail := &tailWriter{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		n, last := 0, time.Now()
		for lines := bufio.NewScanner(r); lines.Scan(); {
			fmt.Fprintln(tail, lines.Text())
			if f := strings.Fields(lines.Text()); len(f) == 2 && len(f[0]) == 2 {
				n++
			}
			if time.Since(last) > 5*time.Second {
				last = time.Now()
				b.progress(fmt.Sprintf("compiling: %d of about %d files", n, max(n, objects)))
			}
		}
	}()
	b.progress("compiling the kernel (3 to 5 minutes on two cores)")
	err := cmd.Run()
	w.Close()
	<-done
	if err != nil {
		return fmt.Errorf("make: %w; its last words:\n%s", err, tail)
	}
	return nil
}

// install puts the kernel into the cache in one step.
func (b *builder) install(ctx context.Context, tree string) error {
	out, err := exec.CommandContext(ctx, "make", "-s", "-C", tree, "ARCH=um", "kernelversion").Output()
	if err != nil {
		return fmt.Errorf("ask for the kernel's version: %w", err)
	}
	version := strings.TrimSpace(string(out))
	staged := filepath.Join(b.dir, "install")
	if err := os.Mkdir(staged, 0o755); err != nil {
		return err
	}
	if err := b.run(ctx, tree, "strip", "-o", filepath.Join(staged, "linux"), "linux"); err != nil {
		return err
	}
	target := filepath.Dir(kernelPath(b.cache, version))
	if err := os.RemoveAll(target); err != nil {
		return err
	}
	return os.Rename(staged, target)
}

func (b *builder) run(ctx context.Context, dir string, argv ...string) error {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir = dir
	cmd.WaitDelay = 5 * time.Second
	cmd.Env = append(os.Environ(), "LC_ALL=C", "DEBIAN_FRONTEND=noninteractive")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", argv[0], err, lastLines(string(out), 6))
	}
	return nil
}

// backportsSources rewrites the machine's own Debian source to the backports
// suite, so that its mirror and keyring are used.
func backportsSources() (string, error) {
	files, _ := filepath.Glob("/etc/apt/sources.list.d/*.sources")
	for _, f := range append(files, "/etc/apt/sources.list", "/etc/apt/sources.list.d/debian.list") {
		text, err := os.ReadFile(f)
		if err != nil {
			continue
		}
		if s, ok := backports(string(text)); ok {
			return s, nil
		}
	}
	return "", fmt.Errorf("no Debian source found under /etc/apt; the virtual engine's kernel comes from Debian's %s", backportsSuite)
}
