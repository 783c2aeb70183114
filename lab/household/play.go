package household

import (
	"slices"
	"time"

	"unbloat/internal/measure/verdict"
	"unbloat/unit"
)

// How a game that is played on a server is rated.
const (
	PlayFrames = 60 // a second: of the pictures of a game that a server plays
	playLength = time.Second / PlayFrames
	playLate   = 3 * playLength // behind the frame that came fastest
)

// A PlayFrame is one picture of a game that a server plays.
type PlayFrame struct {
	Made  unit.Instant
	Whole unit.Instant // when all of its packets had arrived; 0: never
}

// A PlayResult is how a game played on a server was.
type PlayResult struct {
	Frames    int               `json:"frames"`  // that the server sent
	Shown     int               `json:"shown"`   // of which all packets came
	Late      int               `json:"late"`    // of the shown: more than 50 ms slower than the fastest
	Freezes   int               `json:"freezes"` // longer than max(3 × mean, mean + 150 ms) between two frames
	FrozenS   float64           `json:"frozen_s"`
	FrameMs   verdict.Quantiles `json:"frame_ms"` // from the server until whole
	InputLoss float64           `json:"input_loss"`
	InputMs   verdict.Quantiles `json:"input_ms"` // of a key or a move, one way
}

// Play sums up a game in [from, to). Nothing is sent again: a frame that lacks a
// packet is not shown.
func Play(frames []PlayFrame, inputs []Heard, from, to unit.Instant) *PlayResult {
	r := &PlayResult{}
	var took, moved []time.Duration
	var shown []unit.Instant
	for _, f := range frames {
		if f.Whole != 0 {
			shown = append(shown, f.Whole)
		}
		if f.Made.Before(from) || !f.Made.Before(to) {
			continue
		}
		r.Frames++
		if f.Whole != 0 {
			took = append(took, f.Whole.Sub(f.Made))
		}
	}
	slices.Sort(shown)
	r.Shown = len(took)
	r.FrameMs = verdict.Summarise(took) // which sorts them
	for _, d := range took {
		if d > took[0]+playLate {
			r.Late++
		}
	}
	count, frozen := Freezes(shown, from, to)
	r.Freezes, r.FrozenS = count, frozen.Seconds()
	sent := 0
	for _, i := range inputs {
		if i.Sent.Before(from) || !i.Sent.Before(to) {
			continue
		}
		sent++
		if i.Arrived != 0 {
			moved = append(moved, i.Arrived.Sub(i.Sent))
		}
	}
	r.InputLoss, r.InputMs = share(sent-len(moved), sent), verdict.Summarise(moved)
	return r
}

// Missed is the share of frames that were late or never shown.
func (r PlayResult) Missed() float64 { return share(r.Frames-r.Shown+r.Late, r.Frames) }
