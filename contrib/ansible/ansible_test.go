// Package ansible checks what of the collection needs no Ansible. What it does to
// routers is in internal/cure/remote.
package ansible

import (
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// names are the first submatches of a pattern in a text, each once, in order of the
// alphabet.
func names(pattern, text string) []string {
	set := map[string]bool{}
	for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
		set[m[1]] = true
	}
	return slices.Sorted(maps.Keys(set))
}

// TestModule: the module is sound Python, documents the options that it takes, and
// gives the program flags that each command of it has.
func TestModule(t *testing.T) {
	b, err := os.ReadFile("plugins/modules/unbloat_line.py")
	if err != nil {
		t.Fatal(err)
	}
	text := string(b)
	if _, err := exec.LookPath("python3"); err != nil {
		t.Logf("syntax: SKIPPED: %v", err)
	} else if out, err := exec.CommandContext(t.Context(), "python3", "-c", "import ast, sys; ast.parse(open(sys.argv[1]).read())", "plugins/modules/unbloat_line.py").CombinedOutput(); err != nil {
		t.Errorf("%s", out)
	}
	_, options, _ := strings.Cut(text, "\noptions:\n")
	options, _, _ = strings.Cut(options, "\nattributes:\n")
	_, spec, _ := strings.Cut(text, "argument_spec={")
	spec, _, _ = strings.Cut(spec, "required_if")
	documented, taken := names(`(?m)^  (\w+):$`, options), names(`(?m)^ {12}"(\w+)": `, spec)
	if diff := cmp.Diff(documented, taken); diff != "" || len(taken) == 0 {
		t.Errorf("what is documented (-) is not what it takes (+):\n%s", diff)
	}
	b, err = os.ReadFile("../../cmd/unbloat/testdata/frozen/help.txtar")
	if err != nil {
		t.Fatal(err)
	}
	flagsOf := func(command string) []string {
		_, help, _ := strings.Cut(string(b), "\n-- "+command+" --\n")
		help, _, _ = strings.Cut(help, "\n-- ")
		return names(`(?m)^ +(--[a-z-]+) `, help)
	}
	where := []string{"--router", "--for", "--identity", "--known-hosts", "--api-key-file", "--fingerprint", "--json"}
	given := map[string][]string{
		"status": append(where, "--wan", "--state-dir"),
		"revert": append(where, "--wan", "--state-dir"),
		"apply":  append(where, "--yes", "--persist", "--replace", "--state-dir"),
		"plan":   append(where, "--here"),
	}
	all := map[string]bool{}
	for command, flags := range given {
		has := flagsOf(command)
		for _, f := range flags {
			all[f] = true
			if !slices.Contains(has, f) {
				t.Errorf("unbloat %s has no %s", command, f)
			}
		}
	}
	for _, f := range names(`"(--[a-z-]+)"`, text) {
		if !all[f] {
			t.Errorf("this test does not know of %s", f)
		}
	}
	_, list, _ := strings.Cut(text, "        names = (")
	list, _, _ = strings.Cut(list, ")")
	for _, name := range names(`"(\w+)"`, list) {
		if f := "--" + strings.ReplaceAll(name, "_", "-"); !slices.Contains(flagsOf("plan"), f) {
			t.Errorf("unbloat plan has no %s", f)
		}
	}
}
