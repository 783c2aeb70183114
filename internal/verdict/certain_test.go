package verdict

import (
	"strings"
	"testing"

	"unbloat/internal/reason"
	"unbloat/unit"
)

// judged is a test whose upload rises by so many ms, with probes of all phases
// leaving late by so many.
func judged(riseMs, lateMs float64) *Test {
	late := unit.FromMs(lateMs)
	return judge(fake{name: PhaseIdle, rtt: always(ms20), late: late}, fake{name: PhaseUpload, rtt: always(ms20 + unit.FromMs(riseMs)), up: 5e6, late: late})
}

// What is late counts against what is measured: 1.35 ms void a rise of 5 ms, and
// say nothing of one of 1000 ms but by how much it may be wrong.
func TestLatenessBound(t *testing.T) {
	for _, c := range []struct {
		name       string
		rise, late float64 // ms
		valid      bool
		note       bool
	}{
		{"in time", 1000, 0.5, true, false},
		{"bloat", 1000, 1.35, true, true},
		{"bloat, very late", 1000, 25, false, false},
		{"no bloat", 5, 1.35, false, false},
	} {
		test := judged(c.rise, c.late)
		late := false
		for _, r := range test.Reasons {
			late = late || r.Code == reason.ProbesLate
		}
		note := strings.Contains(strings.Join(test.Notes, "\n"), "may be wrong by as much")
		if late == c.valid || note != c.note {
			t.Errorf("%s: late %v, note %v: %q %q", c.name, late, note, test.InvalidReasons, test.Notes)
		}
	}
}

// Of a test that is not valid it is said what is certain, unless nothing is.
func TestCertain(t *testing.T) {
	test := judged(1000, 25)
	c := test.Certain()
	if c == nil || c.Code != reason.CertainRise {
		t.Fatalf("nothing is certain of a rise by 1000 ms: %q", test.InvalidReasons)
	}
	if s := c.Text(reason.English(), reason.Terminal); !strings.Contains(s, "rose by at least 9") {
		t.Errorf("certain: %q", s)
	}
	test.Reasons = append(test.Reasons, reason.Of(reason.ClockSet, "count", 1))
	if c := test.Certain(); c != nil {
		t.Errorf("the clock was set: %v", c)
	}
	if c := judged(5, 25).Certain(); c != nil {
		t.Errorf("of a rise by 5 ms: %v", c)
	}
	if c := judged(1000, 0).Certain(); c != nil {
		t.Errorf("of a valid test: %v", c)
	}
}
