package verdict

import (
	"fmt"
	"time"

	"unbloat/reason"
	"unbloat/unit"
)

// A RadioSample is what the wireless interface towards the server told at one
// instant of the counted part of a phase (nl80211's station and survey).
type RadioSample struct {
	At        unit.Instant
	Station   string    // hardware address of the access point
	SignalDBm int       // 0: not told
	Down, Up  unit.Rate // of the link: what frames are sent at, not what it carries
	Legacy    bool      // 802.11a, b or g, whose frames travel singly

	Frames, Retries, Failed int64 // sent so far; Failed: given up after all retries

	Active, Busy time.Duration // of the channel so far; zero: the driver does not tell
}

// A Radio is how a wireless link fared in the counted part of a phase.
type Radio struct {
	Interface string  `json:"interface"`
	SignalDBm int     `json:"signal_dbm"`
	DownBps   float64 `json:"link_down_bps"` // rate of the frames, mean
	UpBps     float64 `json:"link_up_bps"`
	Airtime   float64 `json:"airtime"` // share that this test's load needs of what the link can carry, 0–1 and above
	Retries   float64 `json:"retries"` // frames sent again over frames sent
	Failed    float64 `json:"failed"`  // frames given up
	Busy      float64 `json:"busy"`    // share of time for which the channel was taken, by anybody; 0: not told
	Roamed    bool    `json:"roamed,omitempty"`
}

// What a link carries of its rate, as TCP payload, when nothing else holds it
// up: about 0.65 since frames travel together (802.11n and later), 0.45 before.
const (
	linkYield       = 0.65
	linkYieldLegacy = 0.45
)

// Bounds beyond which the radio itself was what was measured. Air is never
// divided exactly as the estimate has it, hence the margin.
const (
	MaxAirtime     = 0.75
	MaxChannelBusy = 0.85
	MaxRadioFailed = 0.01
)

// radio summarises the samples of a phase; nil where there is no wireless link.
func radio(raw Raw, p *Phase) *Radio {
	n := len(raw.Radio)
	if n == 0 {
		return nil
	}
	r := &Radio{Interface: raw.RadioName}
	yield, signal, told := linkYield, 0, 0
	for _, s := range raw.Radio {
		r.DownBps += float64(s.Down) / float64(n)
		r.UpBps += float64(s.Up) / float64(n)
		if s.SignalDBm != 0 {
			signal, told = signal+s.SignalDBm, told+1
		}
		if s.Legacy {
			yield = linkYieldLegacy
		}
		r.Roamed = r.Roamed || s.Station != raw.Radio[0].Station
	}
	if told > 0 {
		r.SignalDBm = signal / told
	}
	for _, d := range []struct{ load, link float64 }{{p.GoodputDownBps, r.DownBps}, {p.GoodputUpBps, r.UpBps}} {
		if d.load > 0 && d.link > 0 {
			r.Airtime += d.load / (yield * d.link) // both ways share the air
		}
	}
	a, b := raw.Radio[0], raw.Radio[n-1]
	if frames := b.Frames - a.Frames; frames > 0 && !r.Roamed {
		r.Retries = max(float64(b.Retries-a.Retries)/float64(frames), 0)
		r.Failed = max(float64(b.Failed-a.Failed)/float64(frames), 0)
	}
	if active := b.Active - a.Active; active > 0 {
		r.Busy = max(float64(b.Busy-a.Busy)/float64(active), 0)
	}
	r.Airtime, r.Retries, r.Failed, r.Busy = milli(r.Airtime), milli(r.Retries), milli(r.Failed), milli(r.Busy)
	return r
}

// link describes a radio in a few words.
func (r *Radio) link() string {
	text := fmt.Sprintf("the Wi-Fi link %s (%s down, %s up", r.Interface, rateText(r.DownBps), rateText(r.UpBps))
	if r.SignalDBm != 0 {
		text += fmt.Sprintf(", signal %d dBm", r.SignalDBm)
	}
	return text + ")"
}

// bottleneck says why it was the radio that was measured, or nil.
func (r *Radio) bottleneck() *reason.Reason {
	if r == nil {
		return nil
	}
	why := func(code reason.Code, args ...any) *reason.Reason {
		x := reason.Of(code, append([]any{"link", r.link()}, args...)...)
		return &x
	}
	switch {
	case r.Roamed:
		return why(reason.RadioRoamed)
	case r.Airtime > MaxAirtime:
		return why(reason.RadioFull, "airtime", r.Airtime, "most", MaxAirtime)
	case r.Busy > MaxChannelBusy:
		return why(reason.ChannelBusy, "busy", r.Busy, "most", MaxChannelBusy)
	case r.Failed > MaxRadioFailed:
		return why(reason.RadioLossy, "failed", r.Failed, "most", MaxRadioFailed)
	}
	return nil
}
