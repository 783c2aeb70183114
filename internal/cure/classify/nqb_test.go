package classify_test

import (
	"testing"

	"unbloat/internal/cure/classify"
)

// NQB, CS4 and CS5 have names in class files; a machine that marks its uploads with them, or
// with EF, gains nothing by it: marks of others are not trusted, and all is metered.
func TestMarkedFlood(t *testing.T) {
	run := func(dscp uint8) (first, of int) {
		c := classifier(aPolicy())
		var all []*stream
		for i := range uint16(8) { // six times what the line carries up
			u := anUpload(i + 1)
			u.dscp = dscp
			all = append(all, u)
		}
		walk(c, 40*second, 0, all...)
		for _, u := range all {
			first, of = first+u.first, of+u.of
		}
		return first, of
	}
	plain, of := run(0)
	for _, name := range []string{"nqb", "cs4", "cs5", "ef"} {
		dscp, err := classify.ParseDSCP(name)
		if err != nil {
			t.Fatal(err)
		}
		if first, n := run(dscp); first > plain || n != of {
			t.Errorf("marked %s, %d of %d packets go first; without a mark %d of %d", name, first, n, plain, of)
		}
	}
	if d, _ := classify.ParseDSCP("nqb"); d != 45 {
		t.Errorf("NQB is %d, RFC 9956 says 45", d)
	}
	for _, d := range []uint8{45, 32, 40} {
		if c, ok := classify.ClassOfDSCP(d); !ok || c != classify.Interactive {
			t.Errorf("where marks are trusted, DSCP %d stands for %q", d, c)
		}
	}
}
