package lab_test

import (
	"fmt"
	"testing"

	"unbloat/internal/lab/household"
	"unbloat/internal/lab/scenario"
)

// A callRow is what a video call must have beside a load, with unbloat's plan or
// with a rule.
type callRow struct {
	scenario string
	with     string  // the case
	mos      float64 // of its sound, at least
	video    float64 // at least, of its rate on the idle line
	frozen   float64 // s, at most
	more     func(*testing.T, map[string]household.QoE)
}

// The rows of docs/video-calls.md hold in five draws each, not in one. A call of
// the same rate on the idle line says what could be had.
func TestVideoCallsInLab(t *testing.T) {
	needLong(t)
	idle := loadOf(t, run(t, "call-webrtc-idle", "plan")["plan"], scenario.WebRTC).Call.Up
	for _, row := range []callRow{
		{"call-webrtc", "plan", 4.2, 0.9, 0, nil},
		{"call-webrtc-16", "plan", 4.2, 0.8, 0, nil},
		{"call-webrtc-many", "plan", 4.2, 0.8, 0, nil},
		{"call-webrtc-quic", "plan", 4.2, 0.9, 0, func(t *testing.T, loads map[string]household.QoE) {
			atMost(t, "an upload above 1.1 of its share, s", loads[scenario.QUICUpload].QUIC.OverS, 3)
		}},
		{"call-webrtc-abuser", "plan", 4, 0, 40, nil},
	} {
		t.Run(row.scenario, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(5) {
				t.Run(fmt.Sprint("seed ", seed+1), func(t *testing.T) {
					c := runSeed(t, seed+1, row.scenario, row.with)[row.with]
					loads := map[string]household.QoE{}
					for _, l := range c.Loads {
						loads[l.Kind] = l.QoE
					}
					w := loads[scenario.WebRTC].Call.Up
					atLeast(t, "sound, MOS", w.MOS, row.mos)
					atLeast(t, "video, of the idle line's", w.VideoBps/idle.VideoBps, row.video)
					atMost(t, "frozen, s", w.FrozenS, row.frozen+idle.FrozenS)
					if row.more != nil {
						row.more(t, loads)
					}
				})
			}
		})
	}
}
