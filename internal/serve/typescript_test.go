package serve

import (
	"encoding"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"unbloat/internal/measure/verdict"
	"unbloat/reason"
)

var update = flag.Bool("update", false, "write web/src/wire.gen.ts")

// The messages between page and server are declared once, in Go:
// web/src/wire.gen.ts is generated from it, and the page is compiled with that.
func TestTypesOfThePage(t *testing.T) {
	s := script{
		unions: map[string][]string{
			"PhaseName": verdict.PhaseNames(),
			"Transport": {OverWebSocket, OverWebTransport},
		},
		fields: map[string]string{
			"Submission.schema": strconv.Quote(SubmissionSchema), "Submission.transport": "Transport", "RawPhase.name": "PhaseName",
			"Test.schema": strconv.Quote(verdict.TestSchema),
		},
		types:    map[reflect.Type]string{reflect.TypeFor[reason.Reason](): "{ code: string; text: string; [figure: string]: unknown }"},
		declared: map[string]reflect.Type{},
	}
	for _, root := range []reflect.Type{
		reflect.TypeFor[Hello](), reflect.TypeFor[Submission](), reflect.TypeFor[Saved](),
	} {
		if _, err := s.name(root); err != nil {
			t.Fatal(err)
		}
	}
	for field := range s.fields {
		if !s.used[field] {
			t.Errorf("there is no field %s", field)
		}
	}
	file := filepath.Join("..", "..", "web", "src", "wire.gen.ts")
	want := s.text()
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	kept, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(kept) != want {
		t.Errorf("%s is not what the Go types make; write it anew with `scripts/web types`, then `scripts/web build`\n%s", file, want)
	}
}

// A script is TypeScript that declares the JSON of Go types.
type script struct {
	unions map[string][]string     // string types with a fixed set of values
	fields map[string]string       // types of fields that differ from Go's
	types  map[reflect.Type]string // types with their own MarshalJSON

	declared map[string]reflect.Type
	out      []string
	used     map[string]bool // of fields
}

// text returns the whole file.
func (s *script) text() string {
	var b strings.Builder
	b.WriteString("// Made from the Go types by `scripts/web types`; do not edit. Package serve\n// documents the fields, package verdict those of results.\n")
	for _, name := range slices.Sorted(maps.Keys(s.unions)) {
		var values []string
		for _, v := range s.unions[name] {
			values = append(values, strconv.Quote(v))
		}
		fmt.Fprintf(&b, "\nexport type %s = %s;\n", name, strings.Join(values, " | "))
	}
	for _, d := range s.out {
		b.WriteString("\n" + d)
	}
	return b.String()
}

// name returns the name of a type, and declares the types that it needs.
func (s *script) name(t reflect.Type) (string, error) {
	if own, ok := s.types[t]; ok {
		return t.Name(), s.declare(t, "export type "+t.Name()+" = "+own+";\n")
	}
	for _, special := range []reflect.Type{reflect.TypeFor[json.Marshaler](), reflect.TypeFor[encoding.TextMarshaler]()} {
		if t.Implements(special) || reflect.PointerTo(t).Implements(special) {
			return "", fmt.Errorf("%v marshals itself: say how in types", t)
		}
	}
	switch t.Kind() {
	case reflect.Bool:
		return "boolean", nil
	case reflect.String:
		return "string", nil
	case reflect.Int, reflect.Int64, reflect.Uint32, reflect.Uint64, reflect.Float64:
		return "number", nil
	case reflect.Slice:
		of, err := s.element(t.Elem())
		if strings.Contains(of, " ") {
			of = "(" + of + ")"
		}
		return of + "[]", err
	case reflect.Map:
		of, err := s.element(t.Elem())
		return "Record<string, " + of + ">", err
	case reflect.Struct:
		return t.Name(), s.structure(t)
	}
	return "", fmt.Errorf("%v: the page cannot be given a %v", t, t.Kind())
}

// element returns the type of a list's elements. A pointer there may be null.
func (s *script) element(t reflect.Type) (string, error) {
	if t.Kind() != reflect.Pointer {
		return s.name(t)
	}
	of, err := s.name(t.Elem())
	return of + " | null", err
}

func (s *script) declare(t reflect.Type, text string) error {
	if other, there := s.declared[t.Name()]; there {
		if other != t {
			return fmt.Errorf("two types are called %s: %v and %v", t.Name(), other, t)
		}
		return nil
	}
	s.declared[t.Name()] = t
	s.out = append(s.out, text)
	return nil
}

// structure declares a struct. A pointer in it is always set, unless it has
// omitempty.
func (s *script) structure(t reflect.Type) error {
	if other, there := s.declared[t.Name()]; there && other == t {
		return nil
	}
	at := len(s.out)
	if err := s.declare(t, ""); err != nil {
		return err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "export interface %s {\n", t.Name())
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-" || !f.IsExported():
			continue
		case name == "" || f.Anonymous:
			return fmt.Errorf("%v.%s has no name in JSON", t, f.Name)
		}
		of := f.Type
		if of.Kind() == reflect.Pointer {
			of = of.Elem()
		}
		kind, err := s.name(of)
		if err != nil {
			return fmt.Errorf("%v.%s: %w", t, f.Name, err)
		}
		if own, ok := s.fields[t.Name()+"."+name]; ok {
			kind = own
			if s.used == nil {
				s.used = map[string]bool{}
			}
			s.used[t.Name()+"."+name] = true
		}
		optional := ""
		if options == "omitempty" {
			optional = "?"
		}
		fmt.Fprintf(&b, "  %s%s: %s;\n", name, optional, kind)
	}
	b.WriteString("}\n")
	s.out[at] = b.String()
	return nil
}
