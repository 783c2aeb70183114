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
	"strconv"
	"strings"
	"testing"
)

// The page's API is declared once, in internal/ui/api.go: web/ui/src/api.gen.ts is
// made from it, and the page is compiled with that.
func TestTypesOfTheRouterPage(t *testing.T) {
	api, err := parser.ParseFile(token.NewFileSet(), filepath.Join("..", "..", "internal", "ui", "api.go"), nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	want, err := declarations(api)
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
		t.Errorf("%s is not what internal/ui/api.go makes; write it again with `scripts/web types`, then `scripts/web build`\n%s", file, want)
	}
}

// declarations returns TypeScript that declares the JSON of a file's types. Strings with
// constants become unions of these; a pointer may be null.
func declarations(f *ast.File) ([]byte, error) {
	var out bytes.Buffer
	out.WriteString("// Made from internal/ui/api.go by `scripts/web types`; do not edit. The fields are\n// documented there.\n\n" +
		"/** Why something is so: a code with its figures. */\nexport type Reason = { code: string; text: string; [figure: string]: unknown };\n")
	values := map[string][]string{}
	for _, d := range f.Decls {
		decl, ok := d.(*ast.GenDecl)
		if !ok || decl.Tok != token.CONST {
			continue
		}
		for _, s := range decl.Specs {
			v := s.(*ast.ValueSpec)
			if kind, ok := v.Type.(*ast.Ident); ok {
				values[kind.Name] = append(values[kind.Name], v.Values[0].(*ast.BasicLit).Value)
			}
		}
	}
	for _, d := range f.Decls {
		decl, ok := d.(*ast.GenDecl)
		if !ok || decl.Tok != token.TYPE {
			continue
		}
		for _, s := range decl.Specs {
			spec := s.(*ast.TypeSpec)
			switch kind := spec.Type.(type) {
			case *ast.Ident:
				if kind.Name != "string" || len(values[spec.Name.Name]) == 0 {
					return nil, fmt.Errorf("%s: a %s without constants", spec.Name.Name, kind.Name)
				}
				fmt.Fprintf(&out, "\nexport type %s = %s;\n", spec.Name.Name, strings.Join(values[spec.Name.Name], " | "))
			case *ast.StructType:
				fmt.Fprintf(&out, "\nexport interface %s {\n", spec.Name.Name)
				for _, field := range kind.Fields.List {
					name, options, err := tag(field)
					if err != nil {
						return nil, fmt.Errorf("%s: %w", spec.Name.Name, err)
					}
					of, err := scriptOf(field.Type)
					if err != nil {
						return nil, fmt.Errorf("%s.%s: %w", spec.Name.Name, name, err)
					}
					if options == "omitempty" {
						name += "?"
					}
					fmt.Fprintf(&out, "  %s: %s;\n", name, of)
				}
				out.WriteString("}\n")
			default:
				return nil, fmt.Errorf("%s: the page can't be given a %T", spec.Name.Name, kind)
			}
		}
	}
	return out.Bytes(), nil
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

// scriptOf returns the TypeScript of a field's type.
func scriptOf(e ast.Expr) (string, error) {
	switch e := e.(type) {
	case *ast.Ident:
		switch e.Name {
		case "string":
			return "string", nil
		case "bool":
			return "boolean", nil
		case "int", "int64", "uint64", "float64":
			return "number", nil
		}
		return e.Name, nil
	case *ast.SelectorExpr:
		switch name := e.X.(*ast.Ident).Name + "." + e.Sel.Name; name {
		case "unit.Rate", "unit.Size":
			return "number", nil
		case "reason.Reason":
			return "Reason", nil
		default:
			return "", fmt.Errorf("say how %s is in TypeScript", name)
		}
	case *ast.StarExpr:
		of, err := scriptOf(e.X)
		return of + " | null", err
	case *ast.ArrayType:
		of, err := scriptOf(e.Elt)
		return of + "[]", err
	}
	return "", fmt.Errorf("the page can't be given a %T", e)
}
