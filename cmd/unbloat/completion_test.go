//go:build !router

package main

import (
	"bytes"
	"maps"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"unbloat/internal/cure/platform/all"
	"unbloat/internal/measure/phases"
	"unbloat/internal/show/cli"
	"unbloat/internal/show/store"
)

// completed is what a shell is given for the last of the words, without what
// explains it, and whether it may offer files too.
func completed(t *testing.T, words ...string) (values []string, files bool) {
	t.Helper()
	var out bytes.Buffer
	root := newRootCommand()
	root.SetArgs(append([]string{cobra.ShellCompRequestCmd}, words...))
	root.SetOut(&out)
	root.SetErr(&bytes.Buffer{})
	if err := root.ExecuteContext(t.Context()); err != nil {
		t.Fatalf("%q: %v", words, err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	for _, line := range lines[:len(lines)-1] {
		value, _, _ := strings.Cut(line, "\t")
		values = append(values, value)
	}
	return values, lines[len(lines)-1] == ":0"
}

// TestCompletion: the shell completes platforms, interfaces, the ids of
// results, and all that there is a list of, as the program has it.
func TestCompletion(t *testing.T) {
	file, ids := aHistory(t)
	var interfaces, kept []string
	list, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range list {
		if i.Flags&net.FlagLoopback == 0 {
			interfaces = append(interfaces, i.Name)
		}
	}
	for _, id := range ids {
		kept = append(kept, id[:16])
	}
	slices.Sort(kept)
	for _, c := range []struct {
		words string
		want  []string
		files bool
	}{
		{"plan --for ", all.Names(), false},
		{"apply --for ", all.Names(), false},
		{"servers sign --for ", nil, false}, // a duration
		{"status --wan ", interfaces, false},
		{"apply --router ssh://r --wan ", nil, false},
		{"history --store " + file + " ", kept, true},
		{"history --store " + file + " " + kept[0] + " ", nil, false},
		{"compare --store " + file + " " + kept[0] + " ", kept, true},
		{"report --store " + file + " ", kept, true},
		{"history --store " + file + "-none ", nil, true},
		{"history --kind ", store.Kinds(), false},
		{"test --lang ", languageTags(), false},
		{"test --profile ", slices.Sorted(maps.Keys(phases.Profiles())), false},
		{"plan --down ", nil, false},
		{"plan --classes ", []string{"off", "on"}, true},
		{"plan --result ", nil, true},
		{"status ", nil, false},
		{"apply ", nil, true},
	} {
		got, files := completed(t, strings.Split(c.words, " ")...)
		if slices.Sort(got); files != c.files || !slices.Equal(got, slices.Sorted(slices.Values(c.want))) {
			t.Errorf("%q: %q, files %v; not %q, %v", c.words, got, files, c.want, c.files)
		}
	}
}

// TestCompletedValuesAreTaken: what a shell is given for a flag of `plan`, `plan`
// takes, on a platform that has it.
func TestCompletedValuesAreTaken(t *testing.T) {
	with := map[string]string{"aqm sfq": "--for clearos", "side in": "--for opnsense", "ecn off": "--aqm fq_codel"}
	for _, flag := range []string{"for", "link-layer", "style", "classes", "only", "ecn", "aqm", "side"} {
		values, _ := completed(t, "plan", "--"+flag, "")
		if len(values) == 0 {
			t.Errorf("--%s: no values", flag)
		}
		for _, v := range values {
			args := append(strings.Fields("plan --down 30mbit --up 5mbit --"+flag+" "+v), strings.Fields(with[flag+" "+v])...)
			if out, code := commanded(t, "", args...); code != cli.Done {
				t.Errorf("%q: %s", args, out)
			}
		}
	}
}
