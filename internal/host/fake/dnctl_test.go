package fake

import (
	"bufio"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestDnctlVerdicts runs what the real dnctl and ipfw were given, each on an
// empty kernel, and expects their exit codes and words.
func TestDnctlVerdicts(t *testing.T) {
	f, err := os.Open("testdata/freebsd-dummynet.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	n := 0
	for s := bufio.NewScanner(f); s.Scan(); n++ {
		var v struct {
			Command string
			Exit    int
			Output  []string
		}
		if err := json.Unmarshal(s.Bytes(), &v); err != nil {
			t.Fatal(err)
		}
		var d Dnctl
		exit, out := d.Run(strings.Fields(v.Command))
		if len(v.Output) == 4 { // the vectors keep four lines
			out = out[:min(4, len(out))]
		}
		if diff := cmp.Diff(v.Output, out); diff != "" || exit != v.Exit {
			t.Errorf("%s\nexit %d, want %d\n-real +fake:\n%s", v.Command, exit, v.Exit, diff)
		}
	}
	if n != 37 {
		t.Errorf("%d vectors, want 37", n)
	}
}
