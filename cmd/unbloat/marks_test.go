package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"unbloat/internal/cure/platform/testdata/toy"
	"unbloat/internal/measure/path"
	"unbloat/internal/show/cli"
	"unbloat/reason"
)

// `plan --marks` says what follows from marks that are changed on the way, the doctor too; what is
// no such result is refused.
func TestMarksFollow(t *testing.T) {
	r := path.Result{Schema: path.Schema, Marks: &path.Marks{
		Findings: []reason.Reason{reason.Of(reason.MarkServerChanged, "mark", "EF", "direction", "down", "as", "CS0"), reason.Of(reason.MarkKept, "mark", "CE", "hop", 3)},
		Follows:  []reason.Reason{reason.Of(reason.MarksTellNothing)},
	}}
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "marks.json")
	if err := os.WriteFile(file, text, 0o644); err != nil {
		t.Fatal(err)
	}
	out, code, err := runPlanCommand(t, "", "--down", "30mbit", "--up", "5mbit", "--json", "--marks", file)
	if code != cli.Done || !strings.Contains(out, string(reason.MarksTellNothing)) {
		t.Errorf("%d %v\n%s", code, err, out)
	}
	if _, code, err := runPlanCommand(t, `{"schema":"unbloat.path/1"}`, "--down", "30mbit", "--marks", "-"); code != cli.Usage {
		t.Errorf("a path without marks: %d %v", code, err)
	}
	m := toy.NewRouter()
	s := newStage(t, m, m, m.Text)
	t.Setenv(withToy, "1")
	if out, code := s.run(t, "doctor", "--wan", "t0", "--marks", file); code != cli.Done || !strings.Contains(out, "EF, down: arrives as CS0") || strings.Contains(out, "CE") || !strings.Contains(out, "mean nothing here") {
		t.Errorf("doctor: %d\n%s", code, out)
	}
	if f, is := marksFinding(&path.Marks{}); is {
		t.Errorf("nothing follows, and %+v", f)
	}
}
