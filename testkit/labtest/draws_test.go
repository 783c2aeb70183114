package labtest

import "testing"

// The rule itself: a median beyond the promise fails, and so does a draw beyond the slack.
func TestDraws(t *testing.T) {
	for _, c := range []struct {
		values []float64
		least  bool
		good   bool
	}{
		{[]float64{10.9}, false, true},
		{[]float64{11.1}, false, false},
		{[]float64{9.1}, true, true},
		{[]float64{8.9}, true, false},
		{[]float64{8, 9, 10, 10.9, 10.9}, false, true},
		{[]float64{8, 9, 10.1, 10.1, 10.1}, false, false},
		{[]float64{8, 9, 9, 9, 11.1}, false, false},
		{[]float64{12, 11, 10, 9.1, 9.1}, true, true},
		{[]float64{12, 12, 12, 12, 8.9}, true, false},
		{[]float64{9, 11}, true, false},
	} {
		f := &figure{promise: 10, least: c.least, values: c.values}
		if good := f.holds(); good != c.good {
			t.Errorf("%v, least %v: %v", c.values, c.least, good)
		}
	}
}
