package plan_test

import (
	"os"
	"path/filepath"
	"testing"

	"unbloat/internal/cure/plan"
)

// The class files of the documents load.
func TestClassExamples(t *testing.T) {
	files, err := filepath.Glob("../../../docs/examples/*.toml")
	if err != nil || len(files) < 2 {
		t.Fatalf("%v, %v", files, err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		w, err := plan.ParseClasses(filepath.Base(f), text)
		if err != nil {
			t.Error(err)
			continue
		}
		if len(w.Rules) == 0 {
			t.Errorf("%s has no rules", f)
		}
	}
}
