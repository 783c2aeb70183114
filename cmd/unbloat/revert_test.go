package main

import (
	"strings"
	"testing"

	"unbloat/internal/cure/apply"
)

// TestRevertSaysWhatIsLost: revert says of a router whether all is as before, or
// only the settings are.
func TestRevertSaysWhatIsLost(t *testing.T) {
	for _, c := range []struct {
		lost []string
		want string
	}{
		{nil, "wan is as it was before, and read back.\n"},
		{[]string{"it does not run `x`"}, "The settings of wan are as before the change, and in force now. Before the change they were not, so this differs:\n  it does not run `x`\n"},
	} {
		var out strings.Builder
		if err := new(routerFlags).reportRevert(&out, []apply.Reverted{{WAN: "wan", Lost: c.lost}}, false); err != nil || out.String() != c.want {
			t.Errorf("%v: %q, want %q", err, out.String(), c.want)
		}
	}
}
