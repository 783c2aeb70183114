package verdict

import "math"

// A Voice is how a call would sound under a phase's load.
type Voice struct {
	R   float64 `json:"r"`   // transmission rating of ITU-T G.107, 0–100
	MOS float64 `json:"mos"` // mean opinion score, 1–4.5; below 3.6 many are dissatisfied
}

// Constants of the E-model (ITU-T G.107) for a G.711 call with loss
// concealment: its default rating, and G.113's packet-loss robustness.
const (
	defaultR   = 93.2
	robustness = 25.1 // Bpl, of random loss
	packetMs   = 20.0 // of voice in one packet, which is a delay of its own
	knee       = 177.3
	delaySlope = 0.024
	kneeSlope  = 0.11
)

// Call rates a call by delay, jitter and loss. One way of delay is half of
// the round trip's 95th percentile, which is what a playout buffer must bridge;
// the loss is that of the worse direction, or of the round trip where the two
// are not told apart. It returns nil if nothing arrived.
func Call(l Latency) *Voice {
	if l.Received == 0 {
		return nil
	}
	delay := l.RTTMs.P95/2 + packetMs + l.IPDVMs
	loss := max(l.LossUp, l.LossDown)
	if l.OneWayUnknown {
		loss = l.Loss
	}
	v := Sound(delay, loss)
	return &v
}

// Sound rates speech that takes so many milliseconds from mouth to ear and of
// which a share (0–1) is lost at random, by the E-model of ITU-T G.107.
func Sound(delayMs, loss float64) Voice {
	id := delaySlope * delayMs
	if delayMs > knee {
		id += kneeSlope * (delayMs - knee)
	}
	ie := 95 * (100 * loss) / (100*loss + robustness)
	r := min(max(defaultR-id-ie, 0), 100)
	mos := 1 + 0.035*r + r*(r-60)*(100-r)*7e-6
	return Voice{R: math.Round(r*10) / 10, MOS: math.Round(min(max(mos, 1), 4.5)*100) / 100}
}

// A Queue is an estimate of what waits in front of the bottleneck: the delay
// that it adds, times the rate at which it empties.
type Queue struct {
	Direction string  `json:"direction"` // "up" or "down": who holds it; "" where the ways are not told apart
	Ms        float64 `json:"ms"`        // median
	Bytes     int64   `json:"bytes"`
	Packets   int64   `json:"packets"` // of full size
}

// frame is a full packet on Ethernet, and payload what TCP carries in it.
const (
	frame   = 1514
	payload = 1448
)

// queue estimates the standing queue of a loaded phase; nil if there is none.
func queue(p *Phase) *Queue {
	if p.FlowsDown+p.FlowsUp == 0 || p.Latency.Received == 0 {
		return nil
	}
	q := &Queue{Direction: "up", Ms: p.Latency.UpMs.P50}
	rate := p.GoodputUpBps
	if p.Latency.DownMs.P50 > p.Latency.UpMs.P50 {
		q.Direction, q.Ms, rate = "down", p.Latency.DownMs.P50, p.GoodputDownBps
	}
	if p.Latency.OneWayUnknown {
		q.Ms = p.Latency.IncreaseMs.P50
		switch {
		case p.FlowsUp == 0:
			q.Direction, rate = "down", p.GoodputDownBps
		case p.FlowsDown == 0:
			q.Direction, rate = "up", p.GoodputUpBps
		default:
			q.Direction, rate = "", max(p.GoodputUpBps, p.GoodputDownBps)
		}
	}
	if q.Ms <= 0 || rate <= 0 {
		return nil
	}
	q.Bytes = int64(q.Ms / 1e3 * rate / 8 * frame / payload)
	q.Packets = (q.Bytes + frame/2) / frame // rounded
	return q
}
