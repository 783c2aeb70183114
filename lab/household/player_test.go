package household

import (
	"math"
	"strings"
	"testing"
	"time"
)

// play runs a player on a line of rate bit/s for d; the rate may change.
func play(d time.Duration, rate func(time.Duration) float64) *VideoResult {
	var p Player
	now := time.Duration(0)
	for now < d {
		now += p.Full()
		p.Advance(now)
		q := p.Choose()
		took := time.Duration(float64(q) * SegmentLength.Seconds() / rate(now) * 1e9)
		if now+took > d {
			break
		}
		now += took
		p.Fetched(now, took, q)
	}
	p.Advance(d)
	return p.Result()
}

// With a steady rate the player never stalls and shows the best quality below
// the rate. If the rate collapses it stalls. All times add up to the time that
// passed.
func TestPlayer(t *testing.T) {
	steady := play(2*time.Minute, func(time.Duration) float64 { return 7e6 })
	if steady.Stalls != 0 || steady.QualityBps < 4e6 || steady.QualityBps > 5e6 || steady.StartupMs < 200 || steady.StartupMs > 250 {
		t.Errorf("at 7 Mbit/s: %+v", *steady)
	}
	slow := play(2*time.Minute, func(time.Duration) float64 { return 300e3 })
	if slow.Stalls < 10 || slow.StalledS < 20 || slow.QualityBps != 400e3 {
		t.Errorf("at 300 kbit/s, below the lowest quality: %+v", *slow)
	}
	broken := play(3*time.Minute, func(now time.Duration) float64 {
		if now > time.Minute {
			return 200e3
		}
		return 20e6
	})
	if broken.Stalls == 0 {
		t.Errorf("a line that breaks down after a minute: %+v", *broken)
	}
	for _, r := range []*VideoResult{steady, slow} {
		if sum := r.StartupMs/1e3 + r.PlayedS + r.StalledS; sum < 119.999 || sum > 120.001 {
			t.Errorf("startup, play and stalls are %.3f s of 120: %+v", sum, *r)
		}
	}
}

// On a line that is too slow the player stalls for the time by which segments
// take longer to load than to play: 4 s of 400 kbit/s take 5.33 s at 300
// kbit/s, so 22 segments arrive within two minutes, with a stall of 1.33 s
// before each but the first. If not even the first segment arrives, the result
// says that nothing was shown.
func TestPlayerOnASlowLine(t *testing.T) {
	slow := *play(2*time.Minute, func(time.Duration) float64 { return 300e3 })
	if slow.Segments != 22 || slow.Stalls != 21 || math.Abs(slow.StartupMs-5333.3) > 1 || math.Abs(slow.StalledS-21*4.0/3) > 0.01 || math.Abs(slow.PlayedS-(21*4+120-22*16.0/3)) > 0.01 {
		t.Errorf("at 300 kbit/s: %+v", slow)
	}
	if none := play(20*time.Second, func(time.Duration) float64 { return 50e3 }); strings.Join(QoE{Video: none}.Sentences(), "") != "no picture came" {
		t.Errorf("%+v is told as %q", *none, QoE{Video: none}.Sentences())
	}
}
