package follow

import (
	"encoding/json"
	"testing"
	"time"

	"unbloat/unit"
)

// What is believed of a direction is the same for whoever reads its JSON, with every
// cause there is; one that is not known here has no code, and no text.
func TestBeliefAsJSON(t *testing.T) {
	for c := range causes {
		was := Belief{Rate: 14 * unit.MbitPerSecond, Capacity: 15_000_001, Carried: 13, Delay: unit.Milliseconds(3100 * time.Microsecond), Floor: unit.Milliseconds(400 * time.Microsecond),
			Why: Why{Cause: c, Direction: Up, From: 46 * unit.MbitPerSecond, To: 14 * unit.MbitPerSecond, Capacity: 15 * unit.MbitPerSecond, Delay: 78 * time.Millisecond}}
		text, err := json.Marshal(was)
		if err != nil {
			t.Fatal(err)
		}
		var is Belief
		if err := json.Unmarshal(text, &is); err != nil || is != was {
			t.Errorf("%s: %+v, was %+v: %v", text, is, was, err)
		}
	}
	var is Belief
	if err := json.Unmarshal([]byte(`{"rate_bps":1,"delay_ms":0.5,"why":{"code":"follow_later","direction":"down"}}`), &is); err != nil || is.Rate != 1 || is.Delay.Ms() != 0.5 || !is.Why.Reason().IsZero() {
		t.Errorf("%+v: %v", is, err)
	}
}
