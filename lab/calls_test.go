package lab_test

import (
	"fmt"
	"testing"
	"time"

	"unbloat/lab/scenario"
	"unbloat/testkit/labtest"
)

// A callRow is what a video call must have beside a load.
type callRow struct {
	scenario string
	video    float64 // at least, of its rate on the idle line
	times    float64 // its rate, of the idle line's call's
	sound    float64 // MOS, at least
	frozen   float64 // s, at most
	shared   float64 // of its fair share, what an upload beside it has at least; 0: none is looked at
	byDay    bool    // `make test` has its short form
}

// machineShare is what the uploads of call-webrtc-abuser would have if the line were
// shared by machines: half of what the call leaves of 4.95 Mbit/s on Ethernet, without headers.
const machineShare = (4.95e6 - 1.72e6) / 2 * 1448 / 1514

// The rows of docs/evidence/calls.md: the sound is
// clear, the picture never stands still, and has nearly its rate on the idle line. Where
// the line is too slow for the picture, the sound is clear all the same, and the picture
// never stands still for more than a second.
// No upload by QUIC has more than 1.1 of its share for longer than four seconds.
func TestVideoCallsInLab(t *testing.T) {
	t.Parallel()
	for _, row := range []callRow{
		{"call-webrtc", 0.9, 1, 4.2, 0, 0, true},
		{"call-webrtc-16", 0.8, 1, 4.2, 0, 0, false},
		{"call-webrtc-many", 0.8, 1, 4.2, 0, 0, false},
		{"call-webrtc-quic", 0.9, 1, 4.2, 0, 0, true},
		{"call-webrtc-peers", 0.9, 2.5 / 1.5, 4.2, 0, 0, false},
		{"call-webrtc-abuser", 0.9, 1, 4.2, 0.2, 0.9, true},
		{"call-webrtc-slow", 0, 1, 4, 4, 0, false}, // pictures have what is left: 0 to 2.6 s were seen, in pieces
	} {
		if !row.byDay && !labtest.Long() {
			continue
		}
		t.Run(row.scenario, func(t *testing.T) {
			t.Parallel()
			overDraws(t, func(d *draw) {
				idle := loadOf(d, d.run("call-webrtc-idle", "plan")["plan"], scenario.WebRTC).Call
				d.AtMost("on the idle line: frozen, s", max(idle.Up.FrozenS, idle.Down.FrozenS), 0)
				for _, l := range d.run(row.scenario, "plan")["plan"].Loads {
					if l.QUIC != nil {
						d.AtMost("an upload above 1.1 of its share, s", l.QUIC.OverS, 4)
					}
					if l.Kind == scenario.Upload && row.shared > 0 {
						d.AtLeast("the uploads, of their fair share", l.GoodputBps/machineShare, row.shared)
					}
					if l.Call == nil {
						continue
					}
					up, down := l.Call.Up, l.Call.Down
					d.AtLeast("sound, MOS", l.Call.MOS(), row.sound)
					d.AtLeast("video up, of the idle line's", up.VideoBps/idle.Up.VideoBps/row.times, row.video)
					d.AtLeast("video down, of the idle line's", down.VideoBps/idle.Down.VideoBps/row.times, row.video)
					d.AtMost("frozen, s", max(up.FrozenS, down.FrozenS), row.frozen)
					d.AtMost("the longest freeze, s", max(up.LongestS, down.LongestS), 1)
				}
			})
		})
	}
}

// A stream of 1.44 Mbit/s without sound, as a camera's is, that begins beside uploads of its own
// machine goes first from its first second on.
func TestStreamBeginsInLab(t *testing.T) {
	t.Parallel()
	for _, uploads := range []int{4, 16} {
		if uploads < 16 && !labtest.Long() {
			continue
		}
		t.Run(fmt.Sprintf("%d uploads", uploads), func(t *testing.T) {
			t.Parallel()
			overDraws(t, func(d *draw) {
				s := embedded(d.T, "steady")
				s.Test.Seconds = 15 * time.Second // of which the stream has the last three
				for i, l := range s.Loads {
					switch l.Kind {
					case scenario.Game:
						s.Loads[i].Start = 12 * time.Second
					case scenario.Upload:
						s.Loads[i].Flows = uploads
					}
				}
				l := loadOf(d, d.runs(s, fmt.Sprintf("a stream begins beside %d, seed %d", uploads, d.Seed), []string{"plan"})["plan"], scenario.Game).Latency
				d.AtMost("p95 increase, ms", l.IncreaseMs.P95, 60)
				d.AtMost("loss", l.Loss, 0.01)
			})
		})
	}
}

// A call by TCP shares with the uploads: nothing tells it from them. How its sound fares is
// a matter of chance, with CAKE alone as with classes, so no draw can tell the two apart:
// a mean of twenty does (its standard error is 0.03), at night.
func TestCallByTCPInLab(t *testing.T) {
	t.Parallel()
	if !labtest.Long() {
		overDraws(t, func(d *draw) {
			call := loadOf(d, d.run("call-webrtc-tls", "plan")["plan"], scenario.WebRTC).Call
			d.AtLeast("sound, MOS", call.MOS(), 3.8)
			d.AtMost("the longest freeze, s", call.Up.LongestS, 1)
		})
		return
	}
	const draws = 20
	mean := map[string]float64{}
	for seed := range uint64(draws) {
		d := &draw{labtest.Draw{T: t, Seed: seed + 1}}
		for name, r := range d.run("call-webrtc-tls", "plan", "cake") {
			call := loadOf(d, r, scenario.WebRTC).Call
			mean[name] += call.MOS() / draws
			if name == "plan" {
				within(t, fmt.Sprintf("seed %d: sound, MOS", seed+1), call.MOS(), 3.8, 5)
				within(t, fmt.Sprintf("seed %d: frozen, s", seed+1), call.Up.FrozenS, 0, 2)
				within(t, fmt.Sprintf("seed %d: the longest freeze, s", seed+1), call.Up.LongestS, 0, 1)
			}
		}
	}
	within(t, "mean of the sound, MOS", mean["plan"], 4, 5)
	within(t, "mean of the sound, MOS, above CAKE alone", mean["plan"]-mean["cake"], -0.1, 5)
}
