package lab_test

import (
	"fmt"
	"testing"

	"unbloat/internal/lab/scenario"
)

// A callRow is what a video call must have beside a load, on its way up.
type callRow struct {
	scenario string
	video    float64 // at least, of its rate on the idle line
	times    float64 // its rate, of the idle line's call's
}

// The rows of docs/video-calls.md hold in five draws each, not in one: the sound is
// clear, the picture never stands still, and has nearly its rate on the idle line.
// No upload by QUIC has more than 1.1 of its share for longer than three seconds.
func TestVideoCallsInLab(t *testing.T) {
	needLong(t)
	idle := loadOf(t, run(t, "call-webrtc-idle", "plan")["plan"], scenario.WebRTC).Call.Up
	atMost(t, "on the idle line: frozen, s", idle.FrozenS, 0)
	for _, row := range []callRow{
		{"call-webrtc", 0.9, 1},
		{"call-webrtc-16", 0.8, 1},
		{"call-webrtc-many", 0.8, 1},
		{"call-webrtc-quic", 0.9, 1},
		{"call-webrtc-peers", 0.9, 2.5 / 1.5},
	} {
		t.Run(row.scenario, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(5) {
				for _, l := range runSeed(t, seed+1, row.scenario, "plan")["plan"].Loads {
					name := fmt.Sprintf("seed %d: ", seed+1)
					if l.QUIC != nil {
						atMost(t, name+"an upload above 1.1 of its share, s", l.QUIC.OverS, 3)
					}
					if l.Call == nil {
						continue
					}
					up := l.Call.Up
					atLeast(t, name+"sound, MOS", l.Call.MOS(), 4.2)
					atLeast(t, name+"video, of the idle line's", up.VideoBps/idle.VideoBps/row.times, row.video)
					atMost(t, name+"frozen, s", up.FrozenS, 0)
				}
			}
		})
	}
}
