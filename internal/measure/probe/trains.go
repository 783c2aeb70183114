package probe

import (
	"encoding/json"
	"fmt"
	"time"

	"unbloat/unit"
)

// A TrainSpec is a train of datagrams of one size. Trains tell how long a packet of a
// size occupies the line. They are counted by their size alone, without a header, so
// that they can be as small as UDP allows; a KindListen with the stream's token says
// from or to where they go. Neighbours in a list differ in size. In JSON it is an array, as
// a request has many.
type TrainSpec struct {
	Size    unit.Size // of the payload, 0 to MaxSize
	Packets int
	Gap     time.Duration // from one departure to the next
}

// MarshalJSON writes [size, packets, gap in ns].
func (t TrainSpec) MarshalJSON() ([]byte, error) {
	return json.Marshal([3]int64{int64(t.Size), int64(t.Packets), int64(t.Gap)})
}

// UnmarshalJSON reads what MarshalJSON writes.
func (t *TrainSpec) UnmarshalJSON(b []byte) error {
	var v [3]int64
	if err := json.Unmarshal(b, &v); err != nil {
		return err
	}
	*t = TrainSpec{Size: unit.Size(v[0]), Packets: int(v[1]), Gap: time.Duration(v[2])}
	return nil
}

// Bounds of the trains of one request.
const (
	MaxTrains     = 256
	MaxTrainsSize = 30 * unit.MB // in all, by TrainSpec.Bytes
	MaxTrainsTime = 20 * time.Second
	trainHeaders  = 46
	maxTrain      = 1 << 16 // packets
)

// CheckTrains reports trains out of bounds.
func CheckTrains(trains []TrainSpec) error {
	if len(trains) == 0 || len(trains) > MaxTrains {
		return fmt.Errorf("%d trains, must be 1 to %d", len(trains), MaxTrains)
	}
	var bytes unit.Size
	var takes time.Duration
	for i, t := range trains {
		if t.Size < 0 || t.Size > MaxSize || t.Packets < 1 || t.Packets > maxTrain || t.Gap < 0 || t.Gap > time.Second {
			return fmt.Errorf("train %d: out of bounds", i+1)
		}
		if i > 0 && t.Size == trains[i-1].Size {
			return fmt.Errorf("train %d: of the same size as the one before", i+1)
		}
		bytes += t.Bytes()
		takes += time.Duration(t.Packets) * t.Gap
		if bytes > MaxTrainsSize || takes > MaxTrainsTime {
			return fmt.Errorf("trains of %v in %v, must be at most %v in %v", bytes, takes, MaxTrainsSize, MaxTrainsTime)
		}
	}
	return nil
}

// Bytes returns what a train occupies, about: each packet with 46 bytes of headers.
func (t TrainSpec) Bytes() unit.Size { return unit.Size(t.Packets) * (t.Size + trainHeaders) }

// A SentTrain is when a train left, by the sender's clock.
type SentTrain struct {
	Packets int          `json:"packets"`
	First   unit.Instant `json:"first"`
	Last    unit.Instant `json:"last"`
}

// A TrainSource sends trains.
type TrainSource struct {
	trains []TrainSpec
	sent   []SentTrain
	due    unit.Instant
	buf    [MaxSize]byte
}

// NewTrainSource returns the source of trains, of which the first is due at start.
func NewTrainSource(start unit.Instant, trains []TrainSpec) *TrainSource {
	return &TrainSource{trains: trains, sent: make([]SentTrain, 1, len(trains)+1), due: start}
}

// Poll returns the datagram that is due at now, or nil if none is, and when to poll
// again, 0 after the last. Datagrams that are late all leave: a sender that cannot
// keep up takes longer.
func (s *TrainSource) Poll(now unit.Instant) (datagram []byte, next unit.Instant) {
	i := len(s.sent) - 1
	if i == len(s.trains) {
		return nil, 0
	}
	if now.Before(s.due) {
		return nil, s.due
	}
	t, sent := s.trains[i], &s.sent[i]
	if sent.Packets == 0 {
		sent.First = now
	}
	sent.Packets, sent.Last = sent.Packets+1, now
	s.due = s.due.Add(t.Gap)
	if sent.Packets == t.Packets {
		s.sent = append(s.sent, SentTrain{})
	}
	return s.buf[:t.Size], s.due
}

// Sent returns what has left of each train.
func (s *TrainSource) Sent() []SentTrain { return s.sent[:min(len(s.sent), len(s.trains))] }

// RunMarks is the number of Marks of a Run.
const RunMarks = 5

// A TrainsReport is what one end knows of trains.
type TrainsReport struct {
	Sent    []SentTrain `json:"sent,omitempty"`
	Runs    []Run       `json:"runs,omitempty"`
	Dropped int         `json:"dropped,omitempty"` // datagrams that came and found no room in the receiver's socket
}

// A Run is what arrived of a train, by the receiver's clock.
type Run struct {
	Size     unit.Size `json:"size"` // of the payload
	Received int       `json:"received"`
	// When the first packet arrived, the one after a quarter, after a half, after three
	// quarters, and the last.
	Marks [RunMarks]unit.Instant `json:"marks"`
}

// Mark returns which packet mark i is of, counted from 0.
func (r Run) Mark(i int) int { return i * (r.Received - 1) / (RunMarks - 1) }

// A TrainSink notes the runs that arrive.
type TrainSink struct {
	size, strange int // of the run that arrives, and of those who may follow it
	at, strangers []unit.Instant
	runs          []Run
}

// nextRun is how many packets of another size begin a run: fewer are late ones of
// the train before.
const nextRun = 3

// Receive notes a datagram of size bytes.
func (k *TrainSink) Receive(at unit.Instant, size int) {
	if len(k.at) == 0 {
		k.size = size
	}
	if size == k.size {
		k.strangers = k.strangers[:0]
		if len(k.at) < maxTrain {
			k.at = append(k.at, at)
		}
		return
	}
	if size != k.strange {
		k.strange, k.strangers = size, k.strangers[:0]
	}
	if k.strangers = append(k.strangers, at); len(k.strangers) < nextRun {
		return
	}
	k.file()
	k.size, k.at, k.strangers = size, append(k.at[:0], k.strangers...), k.strangers[:0]
}

// file files the run that has arrived.
func (k *TrainSink) file() {
	if len(k.at) < nextRun || len(k.runs) >= MaxTrains {
		return
	}
	r := Run{Size: unit.Size(k.size), Received: len(k.at)}
	for i := range r.Marks {
		r.Marks[i] = k.at[r.Mark(i)]
	}
	k.runs = append(k.runs, r)
}

// Last returns when the last datagram of the run arrived, 0 if none has.
func (k *TrainSink) Last() unit.Instant {
	if len(k.at) == 0 {
		return 0
	}
	return k.at[len(k.at)-1]
}

// Runs returns all runs that have arrived, the last one included.
func (k *TrainSink) Runs() []Run {
	k.file()
	k.at, k.strangers = k.at[:0], k.strangers[:0]
	return k.runs
}
