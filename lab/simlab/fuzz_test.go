package simlab

import (
	"bytes"
	"io"
	"testing"
)

// FuzzSweep: parameters and shards are refused, or printed and read back equal.
// No file of results makes merging or tables panic.
func FuzzSweep(f *testing.F) {
	f.Add("up=1mbit,2mbit", []byte("{\"schema\":\"unbloat.sweep/1\"}\n{}\n"))
	f.Add("3/64", []byte("{\"schema\":\"unbloat.sweep/1\",\"runs\":2,\"shard\":\"1/2\"}\n{\"index\":0,\"case\":\"a\"}\n"))
	f.Add("target=5ms,-1ms", []byte("null\n[]\n"))
	f.Fuzz(func(t *testing.T, s string, file []byte) {
		if a, err := ParseAxis(s); err == nil && (a.Key == "" || len(a.Values) == 0) {
			t.Fatalf("%q: %+v", s, a)
		}
		if sh, err := ParseShard(s); err == nil {
			if back, err := ParseShard(sh.String()); err != nil || back != sh {
				t.Fatalf("%q: %v, read back as %v, %v", s, sh, back, err)
			}
		}
		if err := MergeSweeps(io.Discard, bytes.NewReader(file)); err == nil && len(file) == 0 {
			t.Fatal("nothing was merged")
		}
		_ = SweepCSV(io.Discard, bytes.NewReader(file)) // an error is fine, a panic is not
	})
}
