package conform

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"unbloat/internal/cure/platform/all"
)

// TestMatrix: every platform has a matrix with each rate pair, style and kind
// of classes on each interface, and no plan twice.
func TestMatrix(t *testing.T) {
	if n := len(pairs()); n < 20 {
		t.Errorf("%d rate pairs", n)
	}
	for _, platform := range all.Names() {
		m, err := Matrix(platform)
		if err != nil {
			t.Error(err)
			continue
		}
		seen := map[string]bool{}
		values := map[string]bool{}
		for _, c := range m {
			if seen[c.Name] {
				t.Errorf("%s: %s is there twice", platform, c.Name)
			}
			seen[c.Name] = true
			for _, v := range strings.Split(c.Name, "/") {
				values[v] = true
			}
			if err := c.Plan.Validate(all.Must(platform)); err != nil {
				t.Errorf("%s: %s: %v", platform, c.Name, err)
			}
		}
		for _, list := range [][]choice{styles(all.Must(platform)), classes(all.Must(platform))} {
			for _, x := range list {
				if !values[x.name] {
					t.Errorf("%s: no plan is %q", platform, x.name)
				}
			}
		}
		t.Logf("%s: %d plans", platform, len(m))
	}
}

// given returns the file or directory in an environment variable, or skips the
// test. A relative path starts at the module's root.
func given(t *testing.T, variable, what string) string {
	t.Helper()
	name := os.Getenv(variable)
	if name == "" {
		t.Skipf("SKIPPED: %s is not set; it names %s", variable, what)
	}
	if !filepath.IsAbs(name) {
		name = filepath.Join("..", "..", name)
	}
	abs, err := filepath.Abs(name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(abs); err != nil {
		t.Fatalf("%s: %v; it names %s", variable, err, what)
	}
	return abs
}

// matrix is Matrix. Errors fail the test.
func matrix(t *testing.T, platform string) []MatrixCase {
	t.Helper()
	m, err := Matrix(platform)
	if err != nil {
		t.Fatal(err)
	}
	return m
}
