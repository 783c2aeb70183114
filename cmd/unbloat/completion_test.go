//go:build !router

package main

import (
	"maps"
	"net"
	"slices"
	"strings"
	"testing"

	"unbloat/internal/cure/platform/all"
	"unbloat/internal/measure/phases"
	"unbloat/internal/show/cli"
	"unbloat/internal/show/store"
	"unbloat/testkit/conform"
)

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
		got, files := conform.Completed(t, newRootCommand(), strings.Split(c.words, " ")...)
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
		values, _ := conform.Completed(t, newRootCommand(), "plan", "--"+flag, "")
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
