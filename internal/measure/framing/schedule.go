package framing

import (
	"math/rand/v2"
	"time"

	"unbloat/internal/measure/probe"
	"unbloat/unit"
)

// Headers of a datagram in bytes: IP and UDP.
const (
	HeadersIPv4 unit.Size = 28
	HeadersIPv6 unit.Size = 48
)

// Passes is how often all trains go, each time faster.
const Passes = 2

// faster is how much faster than the line carries them packets are sent, a pass. The
// first still fills the line if it is a quarter faster than thought.
func faster(pass int) float64 { return []float64{1.3, 2.2}[pass] }

// What a direction may cost. Both directions together stay below 30 MB at 100
// Mbit/s, and below 20 s on the slowest line whose buffer takes all.
const (
	maxBytes   = 14 * unit.MB
	maxTime    = 2500 * time.Millisecond // of the line, a pass
	trainsEach = 2                       // of each size, a pass
	leastTrain = 10                      // packets of a small size
	leastLong  = 6                       // packets of a large one
	// ladderShare of the time is for the small sizes in a row.
	ladderShare = 0.45
	sentHeader  = 14 // bytes of a frame that every line carries
)

// LeastRate and MostRate are between which lines a measurement fits these bounds.
const (
	LeastRate = 200 * unit.KbitPerSecond
	MostRate  = 400 * unit.MbitPerSecond
)

// Trains returns the trains of one pass on a line that carries about rate. Sizes are of
// the payload; headers are what a datagram has besides.
func Trains(rate unit.Rate, headers unit.Size, pass int, rng *rand.Rand) []probe.TrainSpec {
	total := 0.0
	for p := range Passes {
		total += faster(p)
	}
	line := min(maxTime.Seconds(), float64(maxBytes*8)/(total*float64(rate)))
	speed := faster(pass) * float64(rate)
	var each []probe.TrainSpec
	add := func(size unit.Size, seconds float64, least int) {
		// As many as the line carries in that time, and what is too much besides.
		carried := max(int(seconds*float64(rate)/8/float64(size+sentHeader)), least)
		gap := time.Duration(float64(size+sentHeader) * 8 / speed * 1e9)
		each = append(each, probe.TrainSpec{Size: size - headers, Packets: int(faster(pass) * float64(carried)), Gap: gap})
	}
	const ladder = cellData + 1
	for i := range ladder {
		add(headers+unit.Size(i), line*ladderShare/(ladder*trainsEach), leastTrain)
	}
	large := []unit.Size{200, 400, 700, 1000, 1400}
	for _, size := range large {
		add(size, line*(1-ladderShare)/float64(len(large)*trainsEach), leastLong)
	}
	var out []probe.TrainSpec
	for range trainsEach {
		rng.Shuffle(len(each), func(i, j int) { each[i], each[j] = each[j], each[i] })
		if len(out) > 0 && out[len(out)-1].Size == each[0].Size { // neighbours differ
			each[0], each[1] = each[1], each[0]
		}
		out = append(out, each...)
	}
	return out
}

// lostTrains is how many trains in a row may be lost; a run that belongs further on is late packets.
const lostTrains = 3

// Join puts together what was sent in a pass and what arrived of it.
func Join(pass int, headers unit.Size, trains []probe.TrainSpec, sent []probe.SentTrain, runs []probe.Run) []Train {
	var out []Train
	next := 0
	for _, run := range runs {
		for i := next; i < min(len(trains), len(sent), next+lostTrains); i++ {
			if trains[i].Size == run.Size {
				out = append(out, Train{Pass: pass, Size: run.Size + headers, Sent: sent[i], Came: run})
				next = i + 1
				break
			}
		}
	}
	return out
}
