package await

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// Root returns the directory of the module, seen from a test's.
func Root(t testing.TB) string {
	t.Helper()
	root, err := ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	return root
}

// ModuleRoot returns the directory of the module in which this process works.
func ModuleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", errors.New("there is no go.mod above the working directory")
		}
		dir = up
	}
}
