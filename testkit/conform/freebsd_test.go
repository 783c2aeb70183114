package conform

import (
	"errors"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"unbloat/internal/cure/lang/dummynet"
	"unbloat/testkit/dnctl"
)

// TestFreeBSD gives every command of every plan to a real dnctl(8), which with
// -n parses and changes nothing, and to the stand-in. Both must accept it and
// print the same.
func TestFreeBSD(t *testing.T) {
	program := given(t, "UNBLOAT_DNCTL", "FreeBSD's dnctl(8)")
	seen := map[string]bool{}
	for _, c := range matrix(t, "freebsd") {
		config, _, err := dummynet.Render(c.Plan)
		if err != nil {
			t.Fatalf("%s: %v", c.Name, err)
		}
		for _, argv := range config.Commands() {
			line := strings.Join(argv, " ")
			if argv[0] != "dnctl" || seen[line] {
				continue
			}
			seen[line] = true
			argv = append([]string{"dnctl", "-n"}, argv[1:]...)
			run := exec.Command(program)
			run.Args = argv
			out, err := run.CombinedOutput()
			var exit *exec.ExitError
			if err != nil && !errors.As(err, &exit) {
				t.Fatal(err)
			}
			want := (&dnctl.Machine{}).Run(argv, nil)
			if err != nil || want.Exit != 0 {
				t.Errorf("%s: %s: %v %s, the stand-in: %d", c.Name, line, err, out, want.Exit)
			}
			if d := cmp.Diff(string(out), want.Stdout+want.Stderr); d != "" {
				t.Errorf("%s: %s: -real +stand-in\n%s", c.Name, line, d)
			}
		}
	}
	t.Logf("%d commands accepted", len(seen))
}
