package uci_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"unbloat/internal/cure/lang/uci"
	"unbloat/testkit/await"
)

// exported writes a file as `uci export` does.
func exported(f uci.File) string {
	var b strings.Builder
	b.WriteString("package x\n")
	for _, s := range f.Sections {
		fmt.Fprintf(&b, "\nconfig %s", strings.Trim(uci.Quote(s.Type), "'"))
		if s.Name != "" {
			fmt.Fprintf(&b, " '%s'", s.Name)
		}
		b.WriteString("\n")
		for _, o := range s.Options {
			word := map[bool]string{false: "option", true: "list"}[o.List]
			for _, v := range o.Values {
				fmt.Fprintf(&b, "\t%s %s %s\n", word, o.Name, uci.Quote(v))
			}
		}
	}
	return b.String() + "\n"
}

// TestVerdicts: what OpenWrt's uci(1) takes is taken, and means the same; what it
// refuses is refused. UNBLOAT_UCI=FILE asks that program again.
func TestVerdicts(t *testing.T) {
	type vector struct {
		In  string
		Out *string // nil: refused
	}
	dir := t.TempDir()
	await.EachVerdict(t, "uci.jsonl", func(t *testing.T, line int, v vector) {
		if program := os.Getenv("UNBLOAT_UCI"); program != "" {
			if err := os.WriteFile(filepath.Join(dir, "x"), []byte(v.In), 0o600); err != nil {
				t.Fatal(err)
			}
			out, err := exec.CommandContext(t.Context(), program, "-c", dir, "export", "x").Output()
			if (err == nil) != (v.Out != nil) || err == nil && string(out) != *v.Out {
				t.Errorf("uci.jsonl:%d: %q: the program says %v\n%s", line, v.In, err, out)
			}
		}
		f, err := uci.Parse([]byte(v.In))
		var e *uci.Error
		switch {
		case err != nil && !errors.As(err, &e):
			t.Errorf("uci.jsonl:%d: %T: %v", line, err, err)
		case v.Out == nil && err == nil:
			t.Errorf("uci.jsonl:%d: %q is taken as\n%s", line, v.In, exported(f))
		case v.Out != nil && err != nil:
			t.Errorf("uci.jsonl:%d: %q is refused: %v", line, v.In, err)
		case v.Out != nil && exported(f) != *v.Out:
			t.Errorf("uci.jsonl:%d: %q is taken as\n%s\nit is\n%s", line, v.In, exported(f), *v.Out)
		}
		if err == nil {
			for _, s := range f.Statements {
				if text := v.In[s.From:s.To]; !strings.HasPrefix(text, s.Word[:1]) || strings.Count(v.In[:s.From], "\n") != s.Line-1 {
					t.Errorf("uci.jsonl:%d: a statement of line %d is at %q", line, s.Line, text)
				}
			}
		}
	})
}

// TestRef: sections are called as uci(1) calls them.
func TestRef(t *testing.T) {
	f, err := uci.Parse([]byte("config queue\nconfig other\nconfig queue 'a'\nconfig queue\n\tlist l 'one'\n\tlist l \"it's\"\n"))
	if err != nil || f.Ref(0) != "@queue[0]" || f.Ref(1) != "@other[0]" || f.Ref(2) != "a" || f.Ref(3) != "@queue[2]" {
		t.Errorf("%v %+v", err, f)
	}
	if got := f.Sections[3].Get("l"); got != "one it's" || f.Sections[0].Get("l") != "" {
		t.Errorf("%q", got)
	}
}

// TestCut: a section is cut out, and nothing else; what one is put before comes back
// to the byte.
func TestCut(t *testing.T) {
	for _, c := range []struct{ text, rest, section string }{
		{"config q 'a'\n\toption x 'y'\n# mine\nconfig q 'b'\n", "# mine\nconfig q 'b'\n", "config q 'a'\n\toption x 'y'\n"},
		{"config q 'b'\n\toption x 'y'; config q 'a'\n  option z 'w' # last\nconfig q", "config q 'b'\n\toption x 'y' # last\nconfig q", "; config q 'a'\n  option z 'w'"},
		{"config q 'b'\n\toption x 'y'; config q 'a';option x 'y'", "config q 'b'\n\toption x 'y'", "; config q 'a';option x 'y'"},
		{"config q 'a' # mine\n\toption x 'y'; config q 'b'\n", "config q 'b'\n", "config q 'a' # mine\n\toption x 'y'; "},
		{"\tconfig q 'a' # mine\n#\n\toption x 'y' # his\n", "\t # his\n", "config q 'a' # mine\n#\n\toption x 'y'"},
		{"config q 'a'\nconfig q 'b'\nconfig q 'a'\n\toption x 'y'", "config q 'b'\n", "config q 'a'\nconfig q 'a'\n\toption x 'y'"},
		{"config q 'b'\n", "config q 'b'\n", ""},
	} {
		rest, section, err := uci.Cut([]byte(c.text), "a")
		if err != nil || string(rest) != c.rest || string(section) != c.section {
			t.Errorf("%q becomes %q and %q, %v", c.text, rest, section, err)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		line := rapid.SampledFrom([]string{"config q 'b'", "\toption x 'y' # z", "  list l \"two\nlines\"", "# it's", "", "\toption a 'b'; option c 'd'", "config q"})
		text := []byte("config q\n" + strings.Join(rapid.SliceOf(line).Draw(t, "lines"), rapid.SampledFrom([]string{"\n", "\r\n"}).Draw(t, "ends")))
		const ours = "config q 'ours'\n\toption x 'y'\n"
		rest, section, err := uci.Cut(append([]byte(ours), text...), "ours")
		if err != nil || !bytes.Equal(rest, text) || string(section) != ours {
			t.Fatalf("%q: %q and %q, %v", text, rest, section, err)
		}
	})
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("config queue 'a'\n\toption x \"it's\\\ny\"; list l 'z' # c\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		file, err := uci.Parse(text)
		if err != nil || slices.ContainsFunc(file.Sections, func(s uci.Section) bool { return strings.ContainsAny(s.Type, `'"\#;`) }) {
			return // uci(1) can't export such a type either
		}
		again, err := uci.Parse([]byte(exported(file)))
		if err != nil || exported(again) != exported(file) {
			t.Fatalf("%q is\n%s\nand then\n%s\n%v", text, exported(file), exported(again), err)
		}
		for i, s := range file.Sections {
			if s.Name == "" {
				continue
			}
			rest, _, err := uci.Cut(text, s.Name)
			if err != nil {
				t.Fatal(err)
			}
			left, err := uci.Parse(rest)
			if want := (uci.File{Sections: slices.Delete(slices.Clone(file.Sections), i, i+1)}); err != nil || exported(left) != exported(want) {
				t.Fatalf("%q without %s is %q: %v", text, s.Name, rest, err)
			}
		}
	})
}
