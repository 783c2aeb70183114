package tc_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"unbloat/internal/mechanism/tc"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// golden compares what was computed with the archive's files of these names.
func golden(t *testing.T, path string, ar *txtar.Archive, files map[string]string) {
	t.Helper()
	for _, name := range slices.Sorted(mapKeys(files)) {
		i := slices.IndexFunc(ar.Files, func(f txtar.File) bool { return f.Name == name })
		if *update {
			if i < 0 {
				ar.Files = append(ar.Files, txtar.File{Name: name})
				i = len(ar.Files) - 1
			}
			ar.Files[i].Data = []byte(files[name])
			continue
		}
		if i < 0 || string(ar.Files[i].Data) != files[name] {
			t.Errorf("%s: %s is now\n%s(run with -update if that is right)", path, name, files[name])
		}
	}
	if *update {
		if err := os.WriteFile(path, txtar.Format(ar), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func mapKeys(m map[string]string) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// readArchive reads a tree from what `tc -j -d …` printed on kernel 7.3 with iproute2 6.1.
func readArchive(t *testing.T, ar *txtar.Archive) tc.Tree {
	t.Helper()
	tree, err := tc.ReadTree("wan", func(args ...string) ([]byte, error) {
		name := "tc -j -d " + strings.Join(args, " ")
		for _, f := range ar.Files {
			if f.Name == name {
				return f.Data, nil
			}
		}
		if args[0] == "filter" {
			return []byte("[]"), nil
		}
		return nil, fmt.Errorf("the archive has no %q", name)
	})
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

// TestShow: what the real tools printed, as a tree, and the commands that would
// make it again.
func TestShow(t *testing.T) {
	paths, err := filepath.Glob("testdata/show/*.txtar")
	if err != nil || len(paths) == 0 {
		t.Fatal("no golden files", err)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) {
			ar, err := txtar.ParseFile(path)
			if err != nil {
				t.Fatal(err)
			}
			tree := readArchive(t, ar)
			b, err := json.MarshalIndent(tree, "", " ")
			if err != nil {
				t.Fatal(err)
			}
			var build strings.Builder
			if lost := tree.Unrebuildable(); lost != nil {
				build.WriteString("# can't be rebuilt: " + strings.Join(lost, "; ") + "\n")
			} else {
				for _, c := range tree.Build("wan") {
					build.WriteString(c.String() + "\n")
				}
			}
			golden(t, path, ar, map[string]string{"tree.json": string(b) + "\n", "build": build.String()})
			if diffs := tree.Differences(tree); diffs != nil {
				t.Errorf("the tree differs from itself: %v", diffs)
			}
			var back tc.Tree
			if err := json.Unmarshal(b, &back); err != nil {
				t.Fatal(err)
			}
			if diffs := tree.Differences(back); diffs != nil {
				t.Errorf("the journal would change it: %v", diffs)
			}
		})
	}
}
