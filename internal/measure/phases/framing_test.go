package phases_test

import (
	"testing"
	"time"

	"unbloat/internal/measure/framing"
	"unbloat/internal/measure/phases"
	"unbloat/internal/measure/probe"
	"unbloat/internal/serve"
	"unbloat/reason"
	"unbloat/unit"
)

// Trains arrive whole and in order in both directions, those without a payload too; an
// answer where the line is not full is not sure.
func TestTrainsArrive(t *testing.T) {
	c, err := phases.Dial(t.Context(), startWith(t, serve.Limits{}), phases.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	specs := []probe.TrainSpec{{Size: 0, Packets: 50, Gap: 200 * time.Microsecond}, {Size: 40, Packets: 40, Gap: time.Millisecond}, {Size: 1372, Packets: 30, Gap: time.Millisecond}}
	for _, dir := range []phases.Direction{phases.Up, phases.Down} {
		r, err := c.Trains(t.Context(), dir, specs)
		if err != nil {
			t.Fatalf("%s: %v", dir, err)
		}
		if len(r.Sent) != 3 || len(r.Runs) != 3 {
			t.Fatalf("%s: %+v", dir, r)
		}
		var all []framing.Train
		for range 100 {
			all = append(all, framing.Join(0, framing.HeadersIPv4, specs, r.Sent, r.Runs)...)
		}
		if e := framing.Estimated(all, nil); e.Sure {
			t.Errorf("%s: sure of %+v", dir, e)
		}
		for i, run := range r.Runs {
			took, sent := run.Marks[probe.RunMarks-1].Sub(run.Marks[0]), r.Sent[i].Last.Sub(r.Sent[i].First)
			if run.Size != specs[i].Size || run.Received+r.Dropped < specs[i].Packets || r.Sent[i].Packets != specs[i].Packets {
				t.Errorf("%s, train %d: %+v of %+v (%d dropped)", dir, i, run, r.Sent[i], r.Dropped)
			}
			if sent < time.Duration(specs[i].Packets-1)*specs[i].Gap/2 || took <= 0 {
				t.Errorf("%s, train %d: sent in %v, arrived in %v", dir, i, sent, took)
			}
		}
	}
	for _, rate := range []unit.Rate{unit.KbitPerSecond, unit.GbitPerSecond} {
		if e, err := c.Framing(t.Context(), phases.Up, rate); err != nil || e.Sure || e.Why.Code != reason.FramingRate {
			t.Errorf("%v: %+v, %v", rate, e, err)
		}
	}
}
