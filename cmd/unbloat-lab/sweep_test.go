package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"unbloat/internal/show/cli"
)

// sweepArgs is a sweep of eight short runs.
func sweepArgs(more ...string) []string {
	return append([]string{"sim", "sweep", "seed-003", "--quiet", "--case", "before", "--vary", "up=1mbit,2mbit", "--vary", "seconds=2s,3s", "--seeds", "2"}, more...)
}

// Merged parts of a sweep equal the whole sweep, a file that was cut short is
// completed, and wrong usage has exit code 2.
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
	expect(cli.Done, sweepArgs("-o", file("all"), "--csv", file("all.csv"))...)
	expect(cli.Done, sweepArgs("-o", file("p1"), "--shard", "1/2")...)
	expect(cli.Done, sweepArgs("-o", file("p2"), "--shard", "2/2")...)
	expect(cli.Done, "sim", "merge", file("p2"), file("p1"), "-o", file("merged"), "--csv", file("merged.csv"))
	if !bytes.Equal(read("all"), read("merged")) || !bytes.Equal(read("all.csv"), read("merged.csv")) {
		t.Error("the merged parts differ from the whole")
	}
	whole := read("all")
	if err := os.WriteFile(file("all"), whole[:len(whole)*2/3], 0o644); err != nil {
		t.Fatal(err)
	}
	expect(cli.Usage, "sim", "merge", file("all"), "-o", file("merged"))
	expect(cli.Done, sweepArgs("-o", file("all"))...)
	if !bytes.Equal(read("all"), whole) {
		t.Error("going on gave other bytes")
	}
	expect(cli.Usage, sweepArgs("-o", file("p1"))...)
	expect(cli.Usage, sweepArgs("--vary", "up=1")...)
	expect(cli.Usage, sweepArgs("--shard", "3/2")...)
	expect(cli.Usage, sweepArgs("--csv", file("x"))...)
	expect(cli.Usage, "sim", "sweep", "no-such-scenario")
	expect(cli.Usage, "sim", "merge")
}

// The job files of docs/sweeps.md, run as Slurm and Kubernetes would run them
// but with fewer and shorter runs, give shards that merge into the whole sweep.
func TestSweepJobFiles(t *testing.T) {
	text, err := os.ReadFile("../../docs/sweeps.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := strings.Split(string(text), "```\n")
	find := func(mark string) string {
		for _, b := range blocks {
			if strings.Contains(b, mark) {
				return b
			}
		}
		t.Fatalf("docs/sweeps.md has no job file with %s", mark)
		return ""
	}
	slurm := find("#SBATCH")
	job := find("completionMode: Indexed")
	_, args, ok := strings.Cut(job, "            - exec ")
	args, _, ok2 := strings.Cut(args, "          resources:")
	if !ok || !ok2 {
		t.Fatalf("the indexed job has no arguments:\n%s", job)
	}
	const shards = 3
	for name, c := range map[string]struct {
		script, part string
		env          func(k int) []string
	}{
		"slurm": {slurm, "part-", func(k int) []string {
			return []string{fmt.Sprintf("SLURM_ARRAY_TASK_ID=%d", k+1), "SLURM_CPUS_PER_TASK=2"}
		}},
		"kubernetes": {"exec " + strings.Join(strings.Fields(args), " "), "out/part-", func(k int) []string {
			return []string{fmt.Sprintf("JOB_COMPLETION_INDEX=%d", k)}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			small := strings.NewReplacer("--seeds 1000", "--seeds 2 --case before --vary seconds=1s", "/64", fmt.Sprintf("/%d", shards),
				`"/out/`, `"out/`, "exec unbloat", "exec ./unbloat").Replace(c.script)
			if small == c.script || !strings.Contains(small, "--seeds 2") || !strings.Contains(small, fmt.Sprintf("/%d", shards)) {
				t.Fatalf("the job file is not what this test knows:\n%s", c.script)
			}
			self, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			wrapper := fmt.Sprintf("#!/bin/sh\nexec env %s=1 %q \"$@\"\n", asProgram, self)
			for path, text := range map[string]string{"unbloat": wrapper, "job": small} {
				if err := os.WriteFile(filepath.Join(dir, path), []byte(text), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.Mkdir(filepath.Join(dir, "out"), 0o755); err != nil {
				t.Fatal(err)
			}
			for k := range shards {
				cmd := exec.CommandContext(t.Context(), "sh", "job")
				cmd.Dir, cmd.Env = dir, append(os.Environ(), c.env(k)...)
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Fatalf("task %d: %v: %s", k, err, out)
				}
			}
			parts, err := filepath.Glob(filepath.Join(dir, c.part+"*.jsonl"))
			if err != nil || len(parts) != shards {
				t.Fatalf("%v, %v; want %d parts", parts, err, shards)
			}
			merged, whole := filepath.Join(dir, "merged"), filepath.Join(dir, "whole")
			if code := run(append([]string{"sim", "merge", "-o", merged}, parts...)); code != cli.Done {
				t.Fatalf("merge: exit code %d", code)
			}
			_, options, _ := strings.Cut(strings.ReplaceAll(small, "\\\n", " "), "exec ./unbloat ")
			options, _, _ = strings.Cut(options, "--shard")
			options, cores, _ := strings.Cut(options, "--cores")
			if cores != "" {
				_, cores, _ = strings.Cut(cores, "--vary")
				options += "--vary" + cores
			}
			if code := run(append(strings.Fields(options), "-o", whole)); code != cli.Done {
				t.Fatalf("%s: exit code %d", options, code)
			}
			a, errA := os.ReadFile(merged)
			b, errB := os.ReadFile(whole)
			if errA != nil || errB != nil || len(a) == 0 || !bytes.Equal(a, b) {
				t.Errorf("the merged shards (%d bytes, %v) differ from the unsplit sweep (%d bytes, %v)", len(a), errA, len(b), errB)
			}
		})
	}
}
