package unbloat_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strings"
	"testing"

	"golang.org/x/tools/go/packages"

	"unbloat/testkit/await"
)

// TestOtherSystems checks the types of every package for the two systems whose files differ most
// from Linux's, and as routers of 32 bits get them. Nothing is compiled: this is a twentieth of the
// time. `make cross` compiles for all systems.
func TestOtherSystems(t *testing.T) {
	await.NotShort(t)
	root, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	const least = 80 // packages of ours
	for _, system := range []struct {
		os, processor, tags string
	}{{"freebsd", "amd64", ""}, {"openbsd", "amd64", ""}, {"linux", "mipsle", "router"}} {
		t.Run(system.os+"/"+system.processor, func(t *testing.T) {
			own, err := packages.Load(&packages.Config{
				Context:    t.Context(),
				Mode:       packages.NeedName | packages.NeedImports | packages.NeedDeps | packages.NeedTypes | packages.NeedTypesSizes | packages.NeedCompiledGoFiles,
				Env:        append(os.Environ(), "GOOS="+system.os, "GOARCH="+system.processor, "CGO_ENABLED=0"),
				BuildFlags: []string{"-tags=" + system.tags},
				// Of others' packages what they declare is enough.
				ParseFile: func(files *token.FileSet, name string, text []byte) (*ast.File, error) {
					f, err := parser.ParseFile(files, name, text, parser.AllErrors|parser.SkipObjectResolution)
					if f == nil || strings.HasPrefix(name, root) {
						return f, err
					}
					for _, d := range f.Decls {
						if d, ok := d.(*ast.FuncDecl); ok {
							d.Body = nil
						}
					}
					return f, err
				},
			}, "./...")
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range own {
				for _, e := range p.Errors {
					t.Errorf("%s: %v", p.PkgPath, e)
				}
			}
			if len(own) < least {
				t.Errorf("%d packages, fewer than %d", len(own), least)
			}
		})
	}
}
