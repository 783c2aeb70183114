package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// sweepArgs is a sweep of eight short runs.
func sweepArgs(more ...string) []string {
	return append([]string{"sim", "sweep", "seed-003", "--quiet", "--case", "before", "--vary", "up=1mbit,2mbit", "--vary", "seconds=2s,3s", "--seeds", "2"}, more...)
}

// Parts of a sweep, merged, are what the whole gives; a file that is cut is
// completed; and wrong usage ends with 2.
func TestSimSweep(t *testing.T) {
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	read := func(name string) []byte {
		b, err := os.ReadFile(file(name))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	expect := func(code int, args ...string) {
		t.Helper()
		if got := run(args); got != code {
			t.Fatalf("%v: exit code %d, want %d", args, got, code)
		}
	}
	expect(exitDone, sweepArgs("-o", file("all"), "--csv", file("all.csv"))...)
	expect(exitDone, sweepArgs("-o", file("p1"), "--shard", "1/2")...)
	expect(exitDone, sweepArgs("-o", file("p2"), "--shard", "2/2")...)
	expect(exitDone, "sim", "merge", file("p2"), file("p1"), "-o", file("merged"), "--csv", file("merged.csv"))
	if !bytes.Equal(read("all"), read("merged")) || !bytes.Equal(read("all.csv"), read("merged.csv")) {
		t.Error("the merged parts differ from the whole")
	}
	whole := read("all")
	if err := os.WriteFile(file("all"), whole[:len(whole)*2/3], 0o644); err != nil {
		t.Fatal(err)
	}
	expect(exitUsage, "sim", "merge", file("all"), "-o", file("merged"))
	expect(exitDone, sweepArgs("-o", file("all"))...)
	if !bytes.Equal(read("all"), whole) {
		t.Error("going on gave other bytes")
	}
	expect(exitUsage, sweepArgs("-o", file("p1"))...)
	expect(exitUsage, sweepArgs("--vary", "up=1")...)
	expect(exitUsage, sweepArgs("--shard", "3/2")...)
	expect(exitUsage, sweepArgs("--csv", file("x"))...)
	expect(exitUsage, "sim", "sweep", "no-such-scenario")
	expect(exitUsage, "sim", "merge")
}
