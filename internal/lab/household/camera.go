package household

import (
	"math/rand/v2"
	"time"

	"unbloat/unit"
)

// What the two sides of a call send. The microphone is Opus with a variable
// rate, the camera's encoder one that keeps to a rate that changes.
const (
	soundLength   = 20 * time.Millisecond
	soundLeast    = 80  // bytes of a packet of sound: 32 kbit/s
	soundMost     = 160 // 64 kbit/s
	framesPerS    = 30
	frameLength   = time.Second / framesPerS
	keyFactor     = 10               // a key frame is so many mean frames: 60 kB at 1.5 Mbit/s
	keyEvery      = 10 * time.Second // as when somebody joins the call
	keyLeastGap   = 300 * time.Millisecond
	keyRepaid     = 0.2  // what a frame after a key frame is smaller, until the rate is kept again
	frameSpread   = 0.15 // of a frame's size, relative
	frameSmallest = 100  // bytes

	// CallLeast is the lowest rate of a call's video.
	CallLeast unit.Rate = 150e3
)

// A Camera is the encoder of a call's video without its pictures: the sizes of
// frames at a rate. Its zero value has not made a frame yet.
type Camera struct {
	Random *rand.Rand

	debt  float64 // bytes by which the frames so far are above the rate
	begun bool
	asked bool
	keyAt time.Duration
}

// AskKey has the next frame be a key frame, but at most one in 300 ms.
func (c *Camera) AskKey() { c.asked = true }

// Frame makes the frame of an instant since the call's start at a rate. A key
// frame needs none before it, and is many times as large; the frames after it
// make up for it.
func (c *Camera) Frame(now time.Duration, rate unit.Rate) (size unit.Size, key bool) {
	mean := float64(rate) / 8 / framesPerS
	since := now - c.keyAt
	key = !c.begun || since >= keyEvery || c.asked && since >= keyLeastGap
	bytes := mean
	if key {
		c.begun, c.asked, c.keyAt = true, false, now
		bytes *= keyFactor
	} else {
		bytes *= 1 + frameSpread*(2*c.Random.Float64()-1)
		bytes -= min(max(c.debt, -keyRepaid*mean), keyRepaid*mean)
	}
	bytes = max(bytes, frameSmallest)
	c.debt += bytes - mean
	return unit.Size(bytes), key
}

// soundSize is the size of one packet of sound.
func soundSize(random *rand.Rand) int { return soundLeast + random.IntN(soundMost-soundLeast+1) }

// videoRate is what a call's video may take of what its congestion control
// allows for all of it.
func videoRate(target, most unit.Rate) unit.Rate {
	return min(max(target-callSound, CallLeast), most)
}

// callSound is what a call's sound takes with RTP's headers, and what the
// control packets take.
const callSound unit.Rate = 64e3
