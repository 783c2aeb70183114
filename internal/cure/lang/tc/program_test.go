package tc_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"unbloat/internal/cure/lang/tc"
)

// What tc(8) 6.1 lists of the programs on CAKE, with what the kernel says of them, is
// what was attached; a program with other instructions, and one that is not ours, are not.
func TestProgramFilters(t *testing.T) {
	const listed = `[{"protocol":"all","pref":45322,"kind":"bpf","chain":0},
{"protocol":"all","pref":45322,"kind":"bpf","chain":0,"options":{"handle":"0x1","bpf_name":"up:[*fsobj]","not_in_hw":true,"prog":{"id":3,"name":"up_0123456789","tag":"91faad77de4b71a6","jited":0,"load_time":4801807104,"created_by_uid":0,"btf_id":20}}},
{"protocol":"all","pref":45323,"kind":"bpf","chain":0},
{"protocol":"all","pref":45323,"kind":"bpf","chain":0,"options":{"handle":"0x1","bpf_name":"out:[*fsobj]","direct-action":true,"not_in_hw":true,"prog":{"id":6,"name":"out_0123456789","tag":"614b434cd8324ecc","jited":0,"load_time":4801809408,"created_by_uid":0,"btf_id":23}}}]`
	up := tc.Attached{Parent: tc.OurRoot, Pref: 45322, Handle: "0x1", Name: "up_0123456789", Tag: "91faad77de4b71a6", AsBuilt: true}
	out := tc.Attached{Parent: tc.OurRoot, Pref: 45323, Handle: "0x1", Name: "out_0123456789", Tag: "614b434cd8324ecc", Acts: true, AsBuilt: true}
	read := func(known ...tc.Attached) tc.Tree {
		t.Helper()
		filters, err := tc.ParseFilters([]byte(listed), tc.OurRoot)
		if err != nil {
			t.Fatal(err)
		}
		tree := tc.Tree{Filters: filters}
		tree.KnowPrograms(known)
		return tree
	}
	want := []tc.Filter{tc.Program(tc.OurRoot, "up", "0123456789", 0, false), tc.Program(tc.OurRoot, "out", "0123456789", 1, true)}
	got := read(up, out)
	if d := cmp.Diff(want, got.Filters); d != "" {
		t.Errorf("they are not what was attached: %s", d)
	}
	if left := got.Unrebuildable(); left != nil {
		t.Errorf("they cannot be attached again: %q", left)
	}
	other := up
	other.AsBuilt = false
	if cmp.Equal(want, read(other, out).Filters) {
		t.Error("other instructions count as ours")
	}
	foreign := up
	foreign.Name = "theirs"
	if left := read(foreign, out).Unrebuildable(); len(left) != 1 {
		t.Errorf("a foreign program could be attached again: %q", left)
	}
	if left := read().Unrebuildable(); len(left) != 2 {
		t.Errorf("programs of which nothing is known could be attached again: %q", left)
	}
	var text []string
	for _, c := range (tc.Tree{Filters: want}).Build("wan") {
		text = append(text, c.String())
	}
	if d := cmp.Diff([]string{
		"unbloat classifier attach wan b10a: 45322 /sys/fs/bpf/unbloat/0123456789/up",
		"unbloat classifier attach wan b10a: 45323 /sys/fs/bpf/unbloat/0123456789/out direct-action",
	}, text); d != "" {
		t.Error(d)
	}
}

// What tc(8) 6.1 lists of programs that it loaded from an object's file is what it was told to
// attach; with other instructions, or of another's file, it is not.
func TestObjectFilters(t *testing.T) {
	const listed = `[{"protocol":"all","pref":45323,"kind":"bpf","chain":0},
{"protocol":"all","pref":45323,"kind":"bpf","chain":0,"options":{"handle":"0x1","bpf_name":"0123456789.o:[tc/out]","direct-action":true,"not_in_hw":true,"prog":{"id":6,"name":"out","tag":"614b434cd8324ecc","jited":0}}}]`
	want := tc.Program(tc.OurRoot, "out", "0123456789", 1, true).ByTC()
	read := func(text string, known bool) tc.Filter {
		t.Helper()
		filters, err := tc.ParseFilters([]byte(text), tc.OurRoot)
		if err != nil || len(filters) != 1 {
			t.Fatal(filters, err)
		}
		tree := tc.Tree{Filters: filters}
		tree.KnowObjects(func(what, tag string) bool { return known && what == "out" && tag == "614b434cd8324ecc" })
		return tree.Filters[0]
	}
	if d := cmp.Diff(want, read(listed, true)); d != "" {
		t.Errorf("it is not what was attached: %s", d)
	}
	if cmp.Equal(want, read(listed, false)) {
		t.Error("other instructions count as ours")
	}
	if f := read(strings.Replace(listed, "0123456789.o", "theirs.o", 1), true); f.Opaque == "" {
		t.Errorf("another's could be attached again: %+v", f)
	}
	const says = "env TC_BPF_MNT=/sys/fs/bpf/unbloat/0123456789 tc filter add dev wan parent b10a: protocol all pref 45323 handle 0x1 bpf object-file /var/run/unbloat-bpf/0123456789/0123456789.o section tc/out direct-action"
	if got := (tc.Tree{Filters: []tc.Filter{want}}).Build("wan"); len(got) != 1 || got[0].String() != says {
		t.Errorf("%q", got)
	}
}
