package ui_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"unbloat/internal/cure/classify"
)

// Whatever the doctor of any platform may find has German words on the page.
func TestGermanFindings(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("src", "words", "findings.de.ts"))
	if err != nil {
		t.Fatal(err)
	}
	var known []string
	for _, m := range regexp.MustCompile(`(?m)^  "?([a-z0-9-]+)"?: \{`).FindAllStringSubmatch(string(text), -1) {
		known = append(known, m[1])
	}
	found := map[string]bool{}
	root := filepath.Join("..", "..", "internal", "cure", "platform")
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() && d.Name() == "testdata" {
			if err == nil {
				err = filepath.SkipDir
			}
			return err
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(f, func(n ast.Node) bool {
			lit, ok := n.(*ast.CompositeLit)
			if !ok || !isFinding(lit.Type) {
				return true
			}
			for _, e := range lit.Elts {
				if kv, ok := e.(*ast.KeyValueExpr); ok && kv.Key.(*ast.Ident).Name == "ID" {
					code := codeOf(kv.Value)
					if code == "" {
						t.Errorf("%s: the code of a finding is not plain to see", path)
					}
					found[code] = true
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(found) < 20 {
		t.Errorf("only %d codes of findings are in the sources", len(found))
	}
	for code := range found {
		if !slices.Contains(known, code) {
			t.Errorf("%s has no German words; add them to web/ui/src/words/findings.de.ts", code)
		}
	}
	for _, code := range known {
		if !found[code] {
			t.Errorf("nothing finds %s any more; remove its words", code)
		}
	}
}

// Every reason of a class has words on the page, in both languages, and no words
// are left of one that is gone.
func TestReasonsOfClasses(t *testing.T) {
	for _, name := range []string{"en.ts", "de.ts"} {
		text, err := os.ReadFile(filepath.Join("src", "words", name))
		if err != nil {
			t.Fatal(err)
		}
		_, words, _ := strings.Cut(string(text), "whyClass: {")
		words, _, _ = strings.Cut(words, "\n  }")
		var known []string
		for _, m := range regexp.MustCompile(`(?m)^    ([a-z_]+): "`).FindAllStringSubmatch(words, -1) {
			known = append(known, m[1])
		}
		var codes []string
		for _, c := range classify.Codes() {
			codes = append(codes, c.Name())
		}
		slices.Sort(known)
		slices.Sort(codes)
		if !slices.Equal(known, codes) {
			t.Errorf("%s has words for %q; the reasons are %q", name, known, codes)
		}
	}
}

// isFinding reports whether a literal is a platform.Finding.
func isFinding(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name == "Finding"
	case *ast.SelectorExpr:
		return e.Sel.Name == "Finding"
	}
	return false
}

// codeOf is a text, or of one that is joined the part before its first "-".
func codeOf(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		s, _ := strconv.Unquote(e.Value)
		return s
	case *ast.BinaryExpr:
		return strings.TrimSuffix(codeOf(e.X), "-")
	}
	return ""
}
