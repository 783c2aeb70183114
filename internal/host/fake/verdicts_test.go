package fake

import (
	"strings"
	"testing"

	"unbloat/internal/platform/fake/verdicts"
)

// TestPfctlVerdicts gives the fake what the real pfctl was given.
func TestPfctlVerdicts(t *testing.T) {
	type vector struct {
		Config   string
		Accepted bool
		Message  []string
	}
	verdicts.Each(t, "openbsd-pf.jsonl", func(t *testing.T, _ int, v vector) {
		o := NewOpenBSD(false)
		o.Files["/etc/test.conf"] = v.Config + "\n"
		_, errOut, err := o.Run(t.Context(), []string{"pfctl", "-nf", "/etc/test.conf"}, nil)
		if (err == nil) != v.Accepted {
			t.Errorf("%s\naccepted: %v, want %v: %s", v.Config, err == nil, v.Accepted, errOut)
			return
		}
		for _, m := range v.Message {
			if !strings.Contains(string(errOut), m) {
				t.Errorf("%s\nit says %q, without %q", v.Config, errOut, m)
			}
		}
	})
}
