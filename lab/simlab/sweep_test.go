package simlab

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"unbloat/lab/scenario"
)

// small is a sweep of 24 short runs.
func small(t *testing.T) *SweepSpec {
	t.Helper()
	text, err := os.ReadFile("../../scenarios/seed-003.toml")
	if err != nil {
		t.Fatal(err)
	}
	s, err := scenario.Parse("seed-003", text)
	if err != nil {
		t.Fatal(err)
	}
	s.Cases = s.Cases[:2]
	s.Test.Seconds, s.Test.Idle = 4e9, 1e9
	var axes []Axis
	for _, v := range []string{"up=1mbit, 2mbit", "router.target=5ms,15ms"} {
		a, err := ParseAxis(v)
		if err != nil {
			t.Fatal(err)
		}
		axes = append(axes, a)
	}
	spec, err := NewSweep(s, "", axes, 3)
	if err != nil {
		t.Fatal(err)
	}
	if spec.Runs != 24 {
		t.Fatalf("%d runs, want 24", spec.Runs)
	}
	return spec
}

// do runs a shard from the start.
func do(t *testing.T, s *SweepSpec, shard Shard, cores int) []byte {
	t.Helper()
	header, err := s.Header(shard)
	if err != nil {
		t.Fatal(err)
	}
	out := bytes.NewBuffer(header)
	if err := Sweep(t.Context(), s, shard, 0, cores, out, nil); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestMergedEqualsUnsplit(t *testing.T) {
	s := small(t)
	whole := do(t, s, Shard{1, 1}, 2)
	if again := do(t, s, Shard{1, 1}, 5); !bytes.Equal(whole, again) {
		t.Fatal("five cores gave other bytes than two")
	}
	for _, of := range []int{2, 5, 24, 30} {
		var parts []io.Reader
		for k := of; k >= 1; k-- { // in any order
			parts = append(parts, bytes.NewReader(do(t, s, Shard{k, of}, 2)))
		}
		var merged bytes.Buffer
		if err := MergeSweeps(&merged, parts...); err != nil {
			t.Fatalf("%d shards: %v", of, err)
		}
		if !bytes.Equal(merged.Bytes(), whole) {
			t.Errorf("%d shards merged differ from the unsplit run", of)
		}
	}
}

// A file that was cut off anywhere is completed with the same bytes.
func TestResume(t *testing.T) {
	s := small(t)
	shard := Shard{2, 2}
	whole := do(t, s, shard, 2)
	for cut := 0; cut <= len(whole); cut += len(whole)/17 + 1 {
		complete, at, err := s.Resume(shard, bytes.NewReader(whole[:cut]))
		if err != nil {
			t.Fatalf("cut at %d: %v", cut, err)
		}
		out := bytes.NewBuffer(bytes.Clone(whole[:at]))
		if at == 0 {
			header, _ := s.Header(shard)
			out.Write(header)
		}
		if err := Sweep(t.Context(), s, shard, complete, 2, out, nil); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(out.Bytes(), whole) {
			t.Fatalf("cut at %d: going on gave other bytes", cut)
		}
	}
	if _, _, err := s.Resume(Shard{1, 2}, bytes.NewReader(whole)); !errors.Is(err, ErrOtherSweep) {
		t.Errorf("another shard's file: %v", err)
	}
	other := *s
	other.Seeds++
	if _, _, err := other.Resume(shard, bytes.NewReader(whole)); !errors.Is(err, ErrOtherSweep) {
		t.Errorf("another sweep's file: %v", err)
	}
}

// A sweep that is stopped leaves only whole lines.
func TestStopped(t *testing.T) {
	s := small(t)
	ctx, cancel := context.WithCancel(t.Context())
	var out bytes.Buffer
	err := Sweep(ctx, s, Shard{1, 1}, 0, 2, &out, func(complete, _ int) {
		if complete == 5 {
			cancel()
		}
	})
	if err == nil {
		t.Fatal("it was stopped, but says nothing")
	}
	if n := bytes.Count(out.Bytes(), []byte("\n")); n < 5 || n == s.Runs || !bytes.HasSuffix(out.Bytes(), []byte("\n")) {
		t.Errorf("%d lines, the last one whole: %v", n, bytes.HasSuffix(out.Bytes(), []byte("\n")))
	}
}

func TestMergeRefuses(t *testing.T) {
	s := small(t)
	a, b := do(t, s, Shard{1, 2}, 2), do(t, s, Shard{2, 2}, 2)
	r := func(b []byte) io.Reader { return bytes.NewReader(b) }
	other := *s
	other.Seeds, other.Runs = 6, 48
	for name, files := range map[string][]io.Reader{
		"nothing":      nil,
		"a part":       {r(a)},
		"twice":        {r(a), r(a)},
		"no header":    {r(b[bytes.IndexByte(b, '\n')+1:])},
		"empty":        {r(a), r(nil)},
		"cut":          {r(a), r(b[:len(b)-9])},
		"other sweeps": {r(a), r(do(t, &other, Shard{2, 2}, 2))},
	} {
		if err := MergeSweeps(io.Discard, files...); err == nil {
			t.Errorf("%s: merged", name)
		}
	}
}

func TestCSV(t *testing.T) {
	s := small(t)
	var out strings.Builder
	if err := SweepCSV(&out, bytes.NewReader(do(t, s, Shard{1, 1}, 2))); err != nil {
		t.Fatal(err)
	}
	rows := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(rows) != 1+2*s.Runs { // idle and loaded
		t.Errorf("%d rows, want %d", len(rows), 1+2*s.Runs)
	}
	if !strings.HasPrefix(rows[0], "index,case,seed,up,router.target,valid,grade,error,phase,") {
		t.Errorf("the table begins with %s", rows[0])
	}
}

// Shards split every sweep into parts that do not overlap and leave nothing
// out, and every index is a different run.
func TestShardsPartition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		runs, of := rapid.IntRange(0, 200).Draw(t, "runs"), rapid.IntRange(1, 70).Draw(t, "of")
		seen := map[int]bool{}
		for k := 1; k <= of; k++ {
			for _, i := range (Shard{k, of}).indices(runs) {
				if seen[i] || i < 0 || i >= runs {
					t.Fatalf("run %d in shard %d", i, k)
				}
				seen[i] = true
			}
		}
		if len(seen) != runs {
			t.Fatalf("%d of %d runs", len(seen), runs)
		}
	})
}

func TestRunsDiffer(t *testing.T) {
	s := small(t)
	seen := map[string]int{}
	for i := range s.Runs {
		r := s.Run(i)
		key := r.Case + r.Params["up"] + r.Params["router.target"] + string(rune(r.Seed))
		if j, twice := seen[key]; twice {
			t.Errorf("runs %d and %d are the same", i, j)
		}
		seen[key] = i
	}
}

func TestParseRefuses(t *testing.T) {
	for _, v := range []string{"", "up", "up=", "up=1", "up=1mbit,,2mbit", "nothing=1", "router.limit=0", "loss=2", "rtt=-1ms", "flows=x", "router.ecn=perhaps"} {
		if a, err := ParseAxis(v); err == nil {
			t.Errorf("%q was read as %+v", v, a)
		}
	}
	for _, v := range []string{"", "1", "0/3", "4/3", "a/b", "1/0", "-1/2"} {
		if s, err := ParseShard(v); err == nil {
			t.Errorf("shard %q was read as %v", v, s)
		}
	}
	for _, k := range SweepKeys() {
		if _, err := setter(k); err != nil {
			t.Error(err)
		}
	}
}
