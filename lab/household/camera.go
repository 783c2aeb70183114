package household

import (
	"math/rand/v2"
	"time"

	"unbloat/unit"
)

// What the two sides of a call send. The microphone is Opus with a variable
// rate, the camera's encoder one that keeps to a rate that changes.
const (
	SoundLength     = 20 * time.Millisecond // of sound in a packet
	FramesPerSecond = 30
	FrameLength     = time.Second / FramesPerSecond
	CallTick        = 5 * time.Millisecond // how often a side looks what is to be sent
	CallPacing      = 2.5                  // packets of video leave at so many times the rate, as in libwebrtc

	// CallLeast is the lowest rate of a call's video, and CallSound what the sound
	// takes with RTP's headers, and the control packets.
	CallLeast unit.Rate = 150e3
	CallSound unit.Rate = 64e3
)

const (
	soundLeast = 80  // bytes of a packet of sound: 32 kbit/s
	soundMost  = 160 // 64 kbit/s
	// A key frame is so many mean frames, 38 kB at 1.5 Mbit/s: by libvpx's rate
	// control in real time it is 4.5 to 7 of them with VP8, at 30 frames a second,
	// and 3.75 with VP9.
	keyFactor     = 6
	keyEvery      = 10 * time.Second // as when somebody joins the call
	keyLeastGap   = 300 * time.Millisecond
	keyRepaid     = 0.2  // what a frame after a key frame is smaller, until the rate is kept again
	frameSpread   = 0.15 // of a frame's size, relative
	frameSmallest = 100  // bytes
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
	mean := float64(rate) / 8 / FramesPerSecond
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

// SoundSize is the size of one packet of sound, in bytes.
func SoundSize(random *rand.Rand) int { return soundLeast + random.IntN(soundMost-soundLeast+1) }

// VideoRate is what a call's video takes of what its congestion control allows
// for all of it.
func VideoRate(target, most unit.Rate) unit.Rate {
	return min(max(target-CallSound, CallLeast), most)
}
