package household

import (
	"math"
	"slices"
	"time"

	"unbloat/internal/measure/verdict"
	"unbloat/unit"
)

// How a call's sound is rated: a receiver chooses anew every few seconds how
// long it lets packets wait for those that are late.
const (
	hearWindow = 5 * time.Second
	lateFrame  = 200 * time.Millisecond // from the camera until shown: two people begin to speak at once
)

// A Heard is one packet of a call's sound.
type Heard struct {
	Sent    unit.Instant
	Arrived unit.Instant // 0: never
}

// Hear rates a call's sound of [from, to) by the E-model: the mean of windows of
// five seconds, and the worst of them. In each the receiver lets packets wait as
// long as sounds best: a longer wait is delay, and what comes later is lost.
func Hear(sounds []Heard, from, to unit.Instant) (mean, worst float64) {
	windows := max(int(to.Sub(from)/hearWindow), 1)
	length := to.Sub(from) / time.Duration(windows)
	worst = math.Inf(1)
	for w := range windows {
		begin := from.Add(time.Duration(w) * length)
		mos := hearOne(sounds, begin, begin.Add(length))
		mean += mos / float64(windows)
		worst = min(worst, mos)
	}
	return math.Round(mean*100) / 100, worst
}

// hearOne rates one window: 1 if nothing of it arrived.
func hearOne(sounds []Heard, from, to unit.Instant) float64 {
	sent := 0
	var delays []time.Duration
	for _, s := range sounds {
		if s.Sent.Before(from) || !s.Sent.Before(to) {
			continue
		}
		sent++
		if s.Arrived != 0 {
			delays = append(delays, s.Arrived.Sub(s.Sent))
		}
	}
	slices.Sort(delays)
	best := 1.0
	for i, d := range delays {
		lost := 1 - float64(i+1)/float64(sent)
		best = max(best, verdict.Sound(unit.Ms(d+SoundLength), lost).MOS)
	}
	return best
}

// A CallResult is how a call with audio and video was for its two sides.
type CallResult struct {
	Up   CallWay `json:"up"`   // what the far side heard and saw of the home
	Down CallWay `json:"down"` // what the home heard and saw
}

// A CallWay is one direction of a call, in the counted window.
type CallWay struct {
	MOS       float64           `json:"mos"`       // of the audio, 1–4.5: mean of windows of 5 s
	WorstMOS  float64           `json:"worst_mos"` // of the worst of them
	AudioLoss float64           `json:"audio_loss"`
	AudioMs   verdict.Quantiles `json:"audio_ms"` // one way, network alone
	VideoBps  float64           `json:"video_bps"`
	Frames    int               `json:"frames"`   // that the camera made
	Shown     int               `json:"shown"`    // of them
	Late      int               `json:"late"`     // shown more than 200 ms after they were made
	Freezes   int               `json:"freezes"`  // longer than max(3 × mean, mean + 150 ms) between two frames
	FrozenS   float64           `json:"frozen_s"` // together
	LongestS  float64           `json:"longest_freeze_s"`
	// RoutedS is FrozenS without the time in which the line carried nearly nothing that
	// way, which no router can help: see CallResult.LeaveOut.
	RoutedS    float64  `json:"frozen_beside_outages_s"`
	Frozen     []Freeze `json:"frozen,omitempty"` // until LeaveOut
	KeysAsked  int      `json:"keys_asked"`       // key frames that the receiver had to ask for
	Packets    int      `json:"packets"`          // RTP packets sent, with those sent again
	PacketLoss float64  `json:"packet_loss"`      // of them
}

// MOS is the call's audio in the worse direction.
func (c CallResult) MOS() float64 { return min(c.Up.MOS, c.Down.MOS) }

// Missed is the share of frames that were late or never shown.
func (w CallWay) Missed() float64 { return share(w.Frames-w.Shown+w.Late, w.Frames) }

// Worse says whether a call was worse for its users than another.
func (c CallResult) Worse(than CallResult) bool {
	if a, b := c.MOS(), than.MOS(); a != b {
		return a < b
	}
	return c.Up.FrozenS+c.Down.FrozenS > than.Up.FrozenS+than.Down.FrozenS
}

// LeaveOut sets RoutedS. The outages are those of the line's way up and down: times in
// order that do not overlap. It needs Frozen no more.
func (c *CallResult) LeaveOut(up, down []Freeze) {
	c.Up.leaveOut(up)
	c.Down.leaveOut(down)
}

func (w *CallWay) leaveOut(outages []Freeze) {
	var sum time.Duration
	for _, f := range w.Frozen {
		sum += f.To.Sub(f.From)
		for _, o := range outages {
			sum -= max(min(f.To, o.To).Sub(max(f.From, o.From)), 0)
		}
	}
	w.RoutedS, w.Frozen = sum.Seconds(), nil
}

// A CallRecord is all that one direction of a call did.
type CallRecord struct {
	Sounds []Heard
	Made   []unit.Instant // the camera's frames
	Shown  []Shown
	Asked  []unit.Instant // for key frames
	// Packets are those of RTP by their times of sending; Lost are those of them
	// that never came.
	Packets, Lost []unit.Instant
}

// Way sums up what happened in [from, to).
func (r CallRecord) Way(from, to unit.Instant) CallWay {
	within := func(at unit.Instant) bool { return !at.Before(from) && at.Before(to) }
	count := func(all []unit.Instant) (n int) {
		for _, at := range all {
			if within(at) {
				n++
			}
		}
		return n
	}
	var w CallWay
	w.MOS, w.WorstMOS = Hear(r.Sounds, from, to)
	sent := 0
	var delays []time.Duration
	for _, s := range r.Sounds {
		if !within(s.Sent) {
			continue
		}
		sent++
		if s.Arrived != 0 {
			delays = append(delays, s.Arrived.Sub(s.Sent))
		}
	}
	w.AudioLoss = share(sent-len(delays), sent)
	w.AudioMs = verdict.Summarise(delays)
	var bytes unit.Size
	shown := make([]unit.Instant, 0, len(r.Shown))
	for _, s := range r.Shown {
		shown = append(shown, s.At)
		if within(s.At) {
			bytes += s.Bytes
		}
		if within(s.Made) {
			w.Shown++
			if s.At.Sub(s.Made) > lateFrame {
				w.Late++
			}
		}
	}
	w.VideoBps = float64(bytes) * 8 / to.Sub(from).Seconds()
	w.Frames, w.KeysAsked, w.Packets = count(r.Made), count(r.Asked), count(r.Packets)
	w.PacketLoss = share(count(r.Lost), w.Packets)
	w.Frozen = Frozen(shown, from, to)
	w.Freezes = len(w.Frozen)
	var frozen, longest time.Duration
	for _, f := range w.Frozen {
		stood := f.To.Sub(f.From)
		frozen, longest = frozen+stood, max(longest, stood)
	}
	w.FrozenS, w.LongestS = frozen.Seconds(), longest.Seconds()
	return w
}

// share is part of all, 0 of nothing.
func share(part, all int) float64 {
	if all == 0 {
		return 0
	}
	return float64(part) / float64(all)
}

// Latency is what a call's packets say for tables that know no calls: how many
// were sent both ways, and how many of them came.
func (c CallResult) Latency() *verdict.Latency {
	l := &verdict.Latency{Sent: c.Up.Packets + c.Down.Packets, LossUp: c.Up.PacketLoss, LossDown: c.Down.PacketLoss}
	lost := math.Round(c.Up.PacketLoss*float64(c.Up.Packets) + c.Down.PacketLoss*float64(c.Down.Packets))
	l.Received = l.Sent - int(lost)
	l.Loss = share(int(lost), l.Sent)
	return l
}
