package fake

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"unbloat/internal/platform/fake/verdicts"
)

// TestDnctlVerdicts runs what the real dnctl and ipfw were given, each on an
// empty kernel, and expects their exit codes and words.
func TestDnctlVerdicts(t *testing.T) {
	type vector struct {
		Command string
		Exit    int
		Output  []string
	}
	verdicts.Each(t, "freebsd-dummynet.jsonl", func(t *testing.T, _ int, v vector) {
		var d Dnctl
		exit, out := d.Run(strings.Fields(v.Command))
		if len(v.Output) == 4 { // the vectors keep four lines
			out = out[:min(4, len(out))]
		}
		if diff := cmp.Diff(v.Output, out); diff != "" || exit != v.Exit {
			t.Errorf("%s\nexit %d, want %d\n-real +fake:\n%s", v.Command, exit, v.Exit, diff)
		}
	})
}
