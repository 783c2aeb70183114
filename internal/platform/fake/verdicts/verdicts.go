// Package verdicts reads recorded answers of the real routers' own programs,
// for the tests of the stand-ins. testdata/README.md names the programs.
package verdicts

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// Each calls f with every vector of a file in testdata: one JSON object a line,
// decoded into a V, which has the fields that the test needs. A file without
// vectors fails the test.
func Each[V any](t *testing.T, file string, f func(t *testing.T, line int, v V)) {
	t.Helper()
	text, err := os.ReadFile(path(t, file))
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	s := bufio.NewScanner(bytes.NewReader(text))
	for s.Buffer(nil, 16<<20); s.Scan(); {
		n++
		var v V
		if err := json.Unmarshal(s.Bytes(), &v); err != nil {
			t.Fatalf("%s:%d: %v", file, n, err)
		}
		f(t, n, v)
	}
	if err := s.Err(); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	if n == 0 {
		t.Fatalf("%s holds no vector", file)
	}
	t.Logf("%s: %d vectors", file, n)
}

// path returns the path of a file of this package, in whichever package the
// test runs.
func path(t *testing.T, file string) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return filepath.Join(dir, "internal/platform/fake/verdicts/testdata", file)
		}
		if dir == filepath.Dir(dir) {
			t.Fatal("there is no go.mod above this test")
		}
		dir = filepath.Dir(dir)
	}
}
