// This part reads recorded answers of the real routers' own programs,
// for the tests of the stand-ins. testkit/verdicts/README.md names the programs.

package await

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// EachVerdict calls f with every vector of a file in testkit/verdicts: one JSON object a line,
// decoded into a V, which has the fields that the test needs. A file without
// vectors fails the test.
func EachVerdict[V any](t *testing.T, file string, f func(t *testing.T, line int, v V)) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(Root(t), "testkit", "verdicts", file))
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
