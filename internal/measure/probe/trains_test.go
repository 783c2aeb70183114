package probe

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"unbloat/unit"
)

// Every datagram leaves, in its train, and what arrives is filed by train, though some
// are lost and some come late.
func TestTrains(t *testing.T) {
	specs := []TrainSpec{{Size: 0, Packets: 40, Gap: time.Millisecond}, {Size: 8, Packets: 20, Gap: 2 * time.Millisecond}, {Size: 1400, Packets: 9, Gap: 5 * time.Millisecond}}
	source, sink := NewTrainSource(0, specs), TrainSink{}
	var now unit.Instant
	sent := 0
	for {
		b, next := source.Poll(now)
		if b == nil && next == 0 {
			break
		}
		if b == nil {
			now = next
			continue
		}
		if sent++; sent%7 != 0 {
			sink.Receive(now.Add(30*time.Millisecond), len(b))
		}
		if sent == 45 { // late, of the train before
			sink.Receive(now.Add(30*time.Millisecond), 0)
		}
	}
	if got := source.Sent(); len(got) != 3 || sent != 69 || got[1] != (SentTrain{Packets: 20, First: 40e6, Last: 78e6}) {
		t.Errorf("%d datagrams sent: %+v", sent, got)
	}
	runs := sink.Runs()
	if len(runs) != 3 || runs[0].Received != 35 || runs[1].Received != 17 || runs[2].Received != 8 || runs[1].Size != 8 ||
		runs[0].Marks[0] != 30e6 || runs[2].Marks[4] != 150e6 {
		t.Errorf("arrived: %+v", runs)
	}
	if again := sink.Runs(); !slices.Equal(runs, again) {
		t.Errorf("asked again: %+v", again)
	}
}

// Trains are written and read as they are, within a request's line, and refused out of bounds.
func TestTrainsAsked(t *testing.T) {
	specs := make([]TrainSpec, 108)
	for i := range specs {
		specs[i] = TrainSpec{Size: unit.Size(1371 + i%2), Packets: 99, Gap: 12345678 / 10}
	}
	line := AppendLine(nil, Request{Op: OpTrains, Dir: DirDown, Trains: specs})
	got, err := ParseRequest(line)
	if err != nil || !slices.Equal(got.Trains, specs) {
		t.Errorf("%d bytes: %v", len(line), err)
	}
	for name, bad := range map[string][]TrainSpec{
		"none": nil, "too many": make([]TrainSpec, MaxTrains+1), "no packets": {{Size: 1}}, "twice the same": {specs[0], specs[0]},
		"too large": {{Size: MaxSize + 1, Packets: 1}}, "too long": {{Size: 1, Packets: 21, Gap: time.Second}},
		"too much": {{Size: MaxSize, Packets: maxTrain}}, "negative": {{Size: -1, Packets: 1}}, "backwards": {{Packets: 1, Gap: -1}},
	} {
		b, err := json.Marshal(Request{Op: OpTrains, Dir: DirDown, Trains: bad})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ParseRequest(b); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
