package store

import (
	"bytes"
	"compress/gzip"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"unbloat/testkit/await"
)

func TestImportRefuses(t *testing.T) {
	await.NotShort(t)
	r, err := aRecord(t).normal()
	if err != nil {
		t.Fatal(err)
	}
	good, _ := line(r)
	head := `{"schema":"unbloat.export/1"}` + "\n"
	gz := func(s string) string {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		_, _ = z.Write([]byte(s))
		z.Close()
		return b.String()
	}
	whole := gz(head + string(good) + "\n")
	for name, c := range map[string]struct{ in, want string }{
		"empty":     {"", "the file is empty"},
		"text":      {"hello\n", "line 1: is not the head of an export"},
		"a test":    {aTest, "line 1: is not the head of an export"},
		"newer":     {`{"schema":"unbloat.export/9"}`, `line 1: schema "unbloat.export/9"`},
		"not JSON":  {head + string(good) + "\nhello\n", "line 3: is not a result"},
		"blank":     {head + "\n" + string(good), "line 2: is not a result"},
		"two":       {head + string(good) + string(good), "line 2: more than one result"},
		"altered":   {head + strings.Replace(string(good), "1250.5", "1.5", 1), "line 2: the content does not fit the id"},
		"no id":     {head + strings.Replace(string(good), r.ID, "", 1), "line 2: the content does not fit the id"},
		"unknown":   {head + strings.Replace(string(good), `"kind"`, `"kindly"`, 1), "line 2: is not a result"},
		"cut":       {whole[:len(whole)-10], "unexpected EOF"},
		"bad gzip":  {"\x1f\x8bxx", "unpack"},
		"long line": {gz(head + strings.Repeat(" ", maxLine+1)), "line 2: too long"},
	} {
		path := filepath.Join(t.TempDir(), "results.db")
		withStore(t, path, func(s *Store) {
			_, _, err := s.Import(t.Context(), strings.NewReader(c.in))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v, want %q", name, err, c.want)
			}
			if list, err := s.List(t.Context(), Filter{}); err != nil || len(list) != 0 {
				t.Errorf("%s: of a refused import %d results were kept (%v)", name, len(list), err)
			}
		})
	}
}

// FuzzReadExport: reading any file ends, and what it accepts can be exported
// and read back.
func FuzzReadExport(f *testing.F) {
	r, err := aRecord(f).normal()
	if err != nil {
		f.Fatal(err)
	}
	good, _ := line(r)
	f.Add([]byte("{\"schema\":\"unbloat.export/1\"}\n" + string(good) + "\n"))
	f.Add([]byte("{\"schema\":\"unbloat.export/1\"}\n"))
	f.Add([]byte("\x1f\x8b\x08"))
	f.Fuzz(func(t *testing.T, in []byte) {
		var first, second []Record
		if ReadExport(bytes.NewReader(in), func(r Record) error { first = append(first, r); return nil }) != nil {
			return
		}
		var b bytes.Buffer
		w, err := NewWriter(&b)
		for _, r := range first {
			err = errors.Join(err, w.Write(r))
		}
		err = errors.Join(err, w.Close(), ReadExport(&b, func(r Record) error { second = append(second, r); return nil }))
		if err != nil || !cmp.Equal(first, second) {
			t.Fatalf("%v: %s", err, cmp.Diff(first, second))
		}
	})
}
