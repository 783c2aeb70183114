package source_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
)

// What the daemon calls changes, events and their fates is what the page has words for:
// the source passes these on as they are.
func TestKindsAgree(t *testing.T) {
	daemon, page := kinds(t, filepath.Join("..", "..", "daemon", "wire_page.go")), kinds(t, filepath.Join("..", "api.go"))
	for _, of := range []string{"ChangeKind", "EventKind", "Undone"} {
		if len(daemon[of]) < 3 {
			t.Errorf("the daemon has %s %q", of, daemon[of])
		}
		for _, k := range daemon[of] {
			if !slices.Contains(page[of], k) {
				t.Errorf("%s %q of the daemon is not one of the page's %q; add it to internal/ui/api.go", of, k, page[of])
			}
		}
	}
}

// kinds returns the values of a file's typed constants, by type.
func kinds(t *testing.T, file string) map[string][]string {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]string{}
	ast.Inspect(f, func(n ast.Node) bool {
		if v, ok := n.(*ast.ValueSpec); ok {
			of, typed := v.Type.(*ast.Ident)
			if lit, ok := v.Values[0].(*ast.BasicLit); ok && typed {
				if s, err := strconv.Unquote(lit.Value); err == nil {
					out[of.Name] = append(out[of.Name], s)
				}
			}
		}
		return true
	})
	return out
}
