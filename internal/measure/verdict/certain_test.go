package verdict

import (
	"strings"
	"testing"

	"unbloat/reason"
	"unbloat/unit"
)

// judged returns a test whose upload adds riseMs, while the probes of all
// phases were sent lateMs late.
func judged(riseMs, lateMs float64) *Test {
	late := unit.FromMs(lateMs)
	return judge(fake{name: PhaseIdle, rtt: always(ms20), late: late}, fake{name: PhaseUpload, rtt: always(ms20 + unit.FromMs(riseMs)), up: 5e6, late: late})
}

// Late probes reduce what is certain: with 1.35 ms an increase of 5 ms is
// invalid, and one of 1000 ms only gets a wider error bound.
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

// Of an invalid test the certain part is reported, if there is any.
func TestCertain(t *testing.T) {
	test := judged(1000, 25)
	c := test.Certain()
	if c == nil || c.Code != reason.CertainF {
		t.Fatalf("nothing is certain of a rise by 1000 ms: %q", test.InvalidReasons)
	}
	if s := c.Text(reason.English(), reason.Terminal); !strings.Contains(s, "F for certain") || !strings.Contains(s, "rose by at least 9") {
		t.Errorf("certain: %q", s)
	}
	if c := judged(300, 25).Certain(); c == nil || c.Code != reason.CertainRise {
		t.Errorf("of a rise by 300 ms, which is a D: %v", c)
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
