package lab

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"unbloat/testkit/await"
)

// TestStrangersKernel: no kernel is run, and no lock taken, in a directory that another
// user made or can change: not where the user has no home, and not where the cache is
// named.
func TestStrangersKernel(t *testing.T) {
	tmp := await.NobodysTmp(t)
	t.Setenv("TMPDIR", tmp)
	plant := func(cache string) {
		await.NobodyDoes(t, tmp, `mkdir -p "$1"; printf '#!/bin/sh\n' >"$1/linux"; chmod 755 "$1/linux"`, filepath.Join(cache, "unbloat/kernel/9.9-"+configHash()))
	}
	open := filepath.Join(tmp, "open")
	if err := os.Mkdir(open, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(open, 0o777); err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct{ plant, cache, says string }{
		{filepath.Join(tmp, "unbloat-cache-0"), "", "XDG_CACHE_HOME"},
		{filepath.Join(tmp, "theirs"), filepath.Join(tmp, "theirs"), "belongs to user 65534"},
		{filepath.Join(open, "cache"), filepath.Join(open, "cache"), "can be changed by others"},
	} {
		plant(x.plant)
		t.Setenv("HOME", "")
		t.Setenv("XDG_CACHE_HOME", x.cache)
		for _, e := range []Engine{Virtual, ""} {
			if k, err := FindKernel(e); err == nil && strings.HasPrefix(k.Path, tmp) || err != nil && !strings.Contains(err.Error(), x.says) {
				t.Errorf("%s: it takes %q (%v), which does not say %q", x.cache, k.Path, err, x.says)
			}
		}
		if cpu, err := takeCPU(t.Context()); err == nil {
			t.Errorf("%q: it took a lock", x.cache)
			cpu.release()
		}
	}
}
