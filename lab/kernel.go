package lab

import (
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"unbloat/guard"
)

// kernelConfig is what the lab's kernel needs beyond the smallest configuration.
//
//go:embed uml.config
var kernelConfig []byte

// A Kernel is an executable user-mode Linux.
type Kernel struct {
	Engine  Engine
	Path    string
	Version string // as in 7.3.4
}

// FindKernel returns the kernel of an engine, or the best there is for "":
// virtual if it is built, else Debian's. The error is a *MissingError with the
// remedy if there is none.
func FindKernel(e Engine) (Kernel, error) {
	if e == Virtual || e == "" {
		k, err := builtKernel()
		var missing *MissingError
		if e == Virtual || !errors.As(err, &missing) {
			return k, err
		}
	}
	path, err := exec.LookPath("linux.uml")
	if err != nil {
		return Kernel{}, &MissingError{"a user-mode Linux kernel", "run `unbloat lab kernel` (builds one, best), or install Debian's package user-mode-linux"}
	}
	out, err := exec.Command(path, "--version").Output()
	if err != nil {
		return Kernel{}, fmt.Errorf("ask %s for its version: %w", path, err)
	}
	return Kernel{Realtime, path, strings.TrimSpace(string(out))}, nil
}

// builtKernel finds the newest kernel in the cache that was built with this
// program's configuration and changes.
func builtKernel() (Kernel, error) {
	cache, err := cacheDir()
	if err != nil {
		return Kernel{}, err
	}
	missing := &MissingError{"the kernel of the virtual engine", "run `unbloat lab kernel` once (5 to 8 minutes on two cores)"}
	entries, err := os.ReadDir(cache)
	if err != nil {
		return Kernel{}, missing
	}
	var versions []string
	for _, e := range entries {
		v, ok := strings.CutSuffix(e.Name(), "-"+configHash())
		if _, err := os.Stat(filepath.Join(cache, e.Name(), "linux")); ok && err == nil {
			versions = append(versions, v)
		}
	}
	if len(versions) == 0 {
		return Kernel{}, missing
	}
	v := slices.MaxFunc(versions, compareVersions)
	dir, err := guard.TrustedDir(filepath.Dir(kernelPath(cache, v)))
	if err != nil {
		return Kernel{}, fmt.Errorf("find the lab's kernel: %w; point XDG_CACHE_HOME to a directory of your own", err)
	}
	return Kernel{Virtual, filepath.Join(dir, "linux"), v}, nil
}

// cacheDir is where built kernels are kept, outside any checkout.
func cacheDir() (string, error) {
	base, err := os.UserCacheDir()
	if err != nil || !filepath.IsAbs(base) {
		return "", &MissingError{"a directory of this user's for the lab's kernel and locks", "set HOME, or XDG_CACHE_HOME to the path of one"}
	}
	return filepath.Join(base, "unbloat", "kernel"), nil
}

func kernelPath(cache, version string) string {
	return filepath.Join(cache, version+"-"+configHash(), "linux")
}

func configHash() string {
	sum := sha256.Sum256(fmt.Append(kernelConfig[:len(kernelConfig):len(kernelConfig)], kernelChanges))
	return hex.EncodeToString(sum[:4])
}

// compareVersions orders dotted numbers.
func compareVersions(a, b string) int {
	as, bs := strings.Split(a, "."), strings.Split(b, ".")
	for i := range min(len(as), len(bs)) {
		var x, y int
		fmt.Sscan(as[i], &x)
		fmt.Sscan(bs[i], &y)
		if x != y {
			return x - y
		}
	}
	return len(as) - len(bs)
}
