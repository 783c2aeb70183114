package main

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const source = "//go:build linux || !linux\n\n// Package main is short.\npackage main\n\nimport (\n\t\"os\"\n)\n\n//go:noinline\nfunc fail() {\n\tconst text = `a\n\tb\n`\n\tpanic(text + \"\\n\") /* over\nlines */\n}\n\nfunc main() {\n\tif len(os.Args) >\n\t\t1 {\n\t\tfail()\n\t}\n\tprintln(\"ok\")\n}\n"

// TestMarked: with the marks a source is what it was, but that all is on the first line.
func TestMarked(t *testing.T) {
	out := string(marked([]byte(source)))
	if strings.ReplaceAll(out, mark, "") != source {
		t.Errorf("more is changed than marks:\n%s", out)
	}
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, "p.go", out, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Ident, *ast.CallExpr, *ast.FuncDecl:
			if at := files.Position(n.Pos()); at.Line != 1 || at.Filename != "x.go" {
				t.Errorf("%T is at %v", n, at)
			}
		}
		return true
	})
}

// TestBuilt: a program of the overlay does the same, and the trace of its crash names
// functions but no lines.
func TestBuilt(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: -short links no program")
	}
	dir := t.TempDir()
	for name, text := range map[string]string{"main.go": source, "go.mod": "module x\n\ngo 1.26\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	program := filepath.Join(dir, "x")
	if err := write(dir, nil, []string{"."}); err != nil {
		t.Fatal(err)
	}
	var overlay struct{ Replace map[string]string }
	file := filepath.Join(dir, "overlay.json")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &overlay); err != nil {
		t.Fatal(err)
	}
	own := overlay.Replace[filepath.Join(dir, "main.go")]
	if own == "" || len(overlay.Replace) < 100 {
		t.Fatalf("the overlay has %d files, with %q for the program's own", len(overlay.Replace), own)
	}
	// Go's own library is left as it is: to compile it again takes long.
	if err := os.WriteFile(file, fmt.Appendf(nil, `{"Replace":{%q:%q}}`, filepath.Join(dir, "main.go"), own), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-overlay", file, "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if out, err := exec.CommandContext(t.Context(), program).CombinedOutput(); err != nil || string(out) != "ok\n" {
		t.Errorf("%v: %s", err, out)
	}
	said, err := exec.CommandContext(t.Context(), program, "x").CombinedOutput()
	if err == nil || !strings.Contains(string(said), "panic: a\n") || !strings.Contains(string(said), "main.fail(") || !strings.Contains(string(said), "x.go:1 ") || strings.Contains(string(said), "main.go") {
		t.Errorf("%v: %s", err, said)
	}
}
