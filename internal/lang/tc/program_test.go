package tc_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"unbloat/internal/lang/tc"
)

// What tc(8) 6.1 lists of the programs on CAKE is what was attached, once the tags
// are known; a program with other instructions, and one that is not ours, are not.
func TestProgramFilters(t *testing.T) {
	const listed = `[{"protocol":"all","pref":45322,"kind":"bpf","chain":0},
{"protocol":"all","pref":45322,"kind":"bpf","chain":0,"options":{"handle":"0x1","bpf_name":"up:[*fsobj]","not_in_hw":true,"prog":{"id":3,"name":"up_0123456789","tag":"91faad77de4b71a6","jited":0,"load_time":4801807104,"created_by_uid":0,"btf_id":20}}},
{"protocol":"all","pref":45323,"kind":"bpf","chain":0},
{"protocol":"all","pref":45323,"kind":"bpf","chain":0,"options":{"handle":"0x1","bpf_name":"out:[*fsobj]","direct-action":true,"not_in_hw":true,"prog":{"id":6,"name":"out_0123456789","tag":"614b434cd8324ecc","jited":0,"load_time":4801809408,"created_by_uid":0,"btf_id":23}}}]`
	read := func(text string) tc.Tree {
		t.Helper()
		filters, err := tc.ParseFilters([]byte(text), tc.OurRoot)
		if err != nil {
			t.Fatal(err)
		}
		return tc.Tree{Filters: filters}
	}
	want := []tc.Filter{tc.Program(tc.OurRoot, "up", "0123456789", 0, false), tc.Program(tc.OurRoot, "out", "0123456789", 1, true)}
	got := read(listed)
	got.KnowPrograms(func(what, tag string) bool {
		return what == "up" && tag == "91faad77de4b71a6" || what == "out" && tag == "614b434cd8324ecc"
	})
	if d := cmp.Diff(want, got.Filters); d != "" {
		t.Errorf("they are not what was attached: %s", d)
	}
	if left := got.Unrebuildable(); left != nil {
		t.Errorf("they cannot be attached again: %q", left)
	}
	other := read(listed)
	other.KnowPrograms(func(what, _ string) bool { return what == "out" })
	if cmp.Equal(want, other.Filters) {
		t.Error("other instructions count as ours")
	}
	foreign := read(strings.ReplaceAll(listed, "up_0123456789", "theirs"))
	if len(foreign.Unrebuildable()) != 1 {
		t.Errorf("a foreign program could be attached again: %q", foreign.Unrebuildable())
	}
	var text []string
	for _, c := range (tc.Tree{Filters: want}).Build("wan") {
		text = append(text, c.String())
	}
	if d := cmp.Diff([]string{
		"tc filter add dev wan parent b10a: protocol all pref 45322 bpf object-pinned /sys/fs/bpf/unbloat/0123456789/up",
		"tc filter add dev wan parent b10a: protocol all pref 45323 bpf object-pinned /sys/fs/bpf/unbloat/0123456789/out direct-action",
	}, text); d != "" {
		t.Error(d)
	}
}
