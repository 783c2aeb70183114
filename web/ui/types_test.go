package ui_test

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// The page's API is declared once, in internal/keep/page/api.go and in the packages whose
// types it names: web/ui/src/api.gen.ts is made from them, and the page is compiled with that.
func TestTypesOfTheRouterPage(t *testing.T) {
	want, err := declarations()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join("src", "api.gen.ts")
	if *update {
		if err := os.WriteFile(file, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s is not what internal/keep/page/api.go makes; write it again with `scripts/web types`, then `scripts/web build`\n%s", file, want)
	}
}

// A writer declares in TypeScript the JSON of types of internal/keep. Strings with
// constants become unions of these; a pointer may be null.
type writer struct {
	out    bytes.Buffer
	types  map[string]*ast.TypeSpec // as in "daemon.Change"
	values map[string][]string      // constants, by type
	named  []string                 // types of other packages, in the order in which they were named
}

func declarations() ([]byte, error) {
	w := &writer{types: map[string]*ast.TypeSpec{}, values: map[string][]string{}}
	for _, dir := range []string{"page", "daemon", "supervise", "config"} {
		if err := w.read(dir); err != nil {
			return nil, err
		}
	}
	w.out.WriteString("// Made from internal/keep/page/api.go by `scripts/web types`; do not edit. The fields are\n// documented there.\n\n" +
		"/** Why something is so: a code with its figures. */\nexport type Reason = { code: string; text: string; [figure: string]: unknown };\n")
	api, err := parser.ParseFile(token.NewFileSet(), filepath.Join("..", "..", "internal", "keep", "page", "api.go"), nil, parser.SkipObjectResolution|parser.ParseComments)
	if err != nil {
		return nil, err
	}
	for _, d := range api.Decls {
		if decl, ok := d.(*ast.GenDecl); ok && decl.Tok == token.TYPE {
			for _, s := range decl.Specs {
				if err := w.declare("page." + s.(*ast.TypeSpec).Name.Name); err != nil {
					return nil, err
				}
			}
		}
	}
	for _, name := range regexp.MustCompile(`daemon\.[A-Z]\w*`).FindAllString(api.Doc.Text(), -1) { // what is answered as it is
		w.script(name)
	}
	for i := 0; i < len(w.named); i++ { // each may name more
		if err := w.declare(w.named[i]); err != nil {
			return nil, err
		}
	}
	return w.out.Bytes(), nil
}

// read takes in the types and constants of a package of internal/keep.
func (w *writer) read(pkg string) error {
	files, err := filepath.Glob(filepath.Join("..", "..", "internal", "keep", pkg, "*.go"))
	if err != nil {
		return err
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, d := range f.Decls {
			decl, ok := d.(*ast.GenDecl)
			if !ok {
				continue
			}
			for _, s := range decl.Specs {
				switch s := s.(type) {
				case *ast.TypeSpec:
					w.types[pkg+"."+s.Name.Name] = s
				case *ast.ValueSpec:
					if decl.Tok == token.CONST && s.Type != nil {
						if lit, ok := s.Values[0].(*ast.BasicLit); ok {
							kind := nameOf(pkg, s.Type)
							w.values[kind] = append(w.values[kind], lit.Value)
						}
					}
				}
			}
		}
	}
	return nil
}

// nameOf names a type that is written in a package.
func nameOf(pkg string, e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return pkg + "." + e.Name
	case *ast.SelectorExpr:
		return e.X.(*ast.Ident).Name + "." + e.Sel.Name
	}
	return ""
}

// script is a type's name in TypeScript. Those of other packages are declared in the end.
func (w *writer) script(name string) string {
	pkg, short, _ := strings.Cut(name, ".")
	if pkg == "page" {
		return short
	}
	if !slices.Contains(w.named, name) {
		w.named = append(w.named, name)
	}
	if w.types["page."+short] != nil {
		return strings.ToUpper(pkg[:1]) + pkg[1:] + short
	}
	return short
}

// declare declares a type.
func (w *writer) declare(name string) error {
	pkg, _, _ := strings.Cut(name, ".")
	short, spec := w.script(name), w.types[name]
	if spec == nil {
		return fmt.Errorf("there is no type %s", name)
	}
	switch kind := spec.Type.(type) {
	case *ast.Ident:
		if kind.Name != "string" || len(w.values[name]) == 0 {
			return fmt.Errorf("%s: a %s without constants", name, kind.Name)
		}
		fmt.Fprintf(&w.out, "\nexport type %s = %s;\n", short, strings.Join(w.values[name], " | "))
	case *ast.StructType:
		fmt.Fprintf(&w.out, "\nexport interface %s", short)
		var fields bytes.Buffer
		extends := " extends "
		for _, field := range kind.Fields.List {
			of, err := w.scriptOf(pkg, field.Type)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			if field.Names == nil {
				w.out.WriteString(extends + of)
				extends = ", "
				continue
			}
			in, options, err := tag(field)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			if options == "omitempty" {
				in += "?"
			}
			fmt.Fprintf(&fields, "  %s: %s;\n", in, of)
		}
		fmt.Fprintf(&w.out, " {\n%s}\n", &fields)
	default:
		return fmt.Errorf("%s: the page can't be given a %T", name, kind)
	}
	return nil
}

func tag(field *ast.Field) (name, options string, err error) {
	if field.Tag == nil {
		return "", "", fmt.Errorf("%v has no name in JSON", field.Names)
	}
	text, err := strconv.Unquote(field.Tag.Value)
	if err != nil {
		return "", "", err
	}
	name, options, _ = strings.Cut(reflect.StructTag(text).Get("json"), ",")
	return name, options, nil
}

// scriptOf returns the TypeScript of a type that is written in a package.
func (w *writer) scriptOf(pkg string, e ast.Expr) (string, error) {
	switch e := e.(type) {
	case *ast.Ident, *ast.SelectorExpr:
		switch name := nameOf(pkg, e); name {
		case pkg + ".string":
			return "string", nil
		case pkg + ".bool":
			return "boolean", nil
		case pkg + ".int", pkg + ".int64", pkg + ".uint64", pkg + ".float64", "unit.Rate", "unit.Size":
			return "number", nil
		case "reason.Reason":
			return "Reason", nil
		default:
			return w.script(name), nil
		}
	case *ast.StarExpr:
		of, err := w.scriptOf(pkg, e.X)
		return of + " | null", err
	case *ast.ArrayType:
		of, err := w.scriptOf(pkg, e.Elt)
		if strings.Contains(of, " ") {
			of = "(" + of + ")"
		}
		return of + "[]", err
	}
	return "", fmt.Errorf("the page can't be given a %T", e)
}
