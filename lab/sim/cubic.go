package sim

import (
	"time"

	"unbloat/unit"
)

// Constants of tcp_cubic.c.
const (
	cubicBeta        = 717     // of 1024: what is left of the window
	cubicScale       = 41 * 10 // C = 0.4, of 1024, times 10
	cubicFriendly    = 15      // Reno's growth with this beta, of 8
	hystartLeast     = 16      // window from which slow start is watched
	hystartSamples   = 8       // round trips that a round is judged by
	hystartTrainGap  = 2 * time.Millisecond
	hystartLeastRise = 4 * time.Millisecond
	hystartMostRise  = 16 * time.Millisecond
)

// jiffy is the clock that CUBIC decides by, 100 Hz as on the lab's kernel.
const jiffy = 10 * time.Millisecond

// cubic is RFC 9438 with HyStart, computed as tcp_cubic.c does, in integers.
type cubic struct {
	count    int32 // segments for one more segment of window
	carry    int32
	lastMax  int32
	lastCwnd int32
	lastAt   int64 // jiffies
	origin   int32
	k        int64 // time to the origin, in 1/1024 s
	epoch    int64 // jiffies; 0: none
	ackCount int32
	friendly int32 // Reno's window
	delayMin time.Duration

	found      bool // slow start is over
	roundStart unit.Instant
	lastAck    unit.Instant
	roundEnd   int32
	samples    int32
	roundRTT   time.Duration
}

func jiffies(t unit.Instant) int64 { return int64(t)/int64(jiffy) + 1 }

func (u *cubic) start(c *Conn, now unit.Instant) { u.newRound(c, now) }

func (u *cubic) newRound(c *Conn, now unit.Instant) {
	u.roundStart, u.lastAck = now, now
	u.roundEnd = c.nxt
	u.samples, u.roundRTT = 0, 1<<62
}

// sample is cubictcp_acked.
func (u *cubic) sample(c *Conn, a *ack) {
	if a.rtt <= 0 {
		return
	}
	if u.epoch != 0 && jiffies(a.now)-u.epoch < int64(time.Second/jiffy) {
		return // right after fast recovery, round trips are not normal
	}
	if u.delayMin == 0 || u.delayMin > a.rtt {
		u.delayMin = a.rtt
	}
	if c.cwnd < c.ssthresh && !u.found {
		u.hystart(c, a)
	}
}

// hystart leaves slow start before the queue is full (hystart_update).
func (u *cubic) hystart(c *Conn, a *ack) {
	if c.una > u.roundEnd {
		u.newRound(c, a.now)
	}
	if c.cwnd < hystartLeast {
		return
	}
	if a.now.Sub(u.lastAck) <= hystartTrainGap {
		u.lastAck = a.now
		if a.now.Sub(u.roundStart) > (u.delayMin+u.trainSlack(c))/2 {
			u.found = true
			c.ssthresh = c.cwnd
		}
	}
	u.roundRTT = min(u.roundRTT, a.rtt)
	if u.samples < hystartSamples {
		u.samples++
		return
	}
	if u.roundRTT > u.delayMin+min(max(u.delayMin/8, hystartLeastRise), hystartMostRise) {
		u.found = true
		c.ssthresh = c.cwnd
	}
}

// trainSlack allows for bursts at the pace that Linux reckons in slow start:
// the time of four maximal ones, but at most 1 ms (hystart_ack_delay).
func (u *cubic) trainSlack(c *Conn) time.Duration {
	perRTT := 2 * int64(c.cwnd) * int64(c.frame)
	return min(time.Millisecond, time.Duration(4*65536*int64(c.rtt.smoothed())/max(perRTT, 1)))
}

func (u *cubic) grow(c *Conn, a *ack) {
	left := a.delivered
	if c.cwnd < c.ssthresh {
		left = c.slowStart(left)
		if left == 0 {
			return
		}
	}
	u.update(c.cwnd, left, a.now)
	c.addSegments(&u.carry, u.count, left)
}

// update computes count for the current time (bictcp_update).
func (u *cubic) update(cwnd, delivered int32, at unit.Instant) {
	now := jiffies(at)
	u.ackCount += delivered
	if u.lastCwnd == cwnd && now-u.lastAt <= int64(time.Second/jiffy)/32 {
		return
	}
	if u.epoch == 0 || now != u.lastAt {
		u.lastCwnd, u.lastAt = cwnd, now
		u.curve(cwnd, delivered, now)
	}
	// In the region where Reno would grow faster, grow like Reno.
	for per := cwnd * cubicFriendly >> 3; u.ackCount > per; {
		u.ackCount -= per
		u.friendly++
	}
	if u.friendly > cwnd {
		u.count = min(u.count, cwnd/(u.friendly-cwnd))
	}
	u.count = max(u.count, 2)
}

// curve sets count by the cubic function of the time since the last loss.
func (u *cubic) curve(cwnd, delivered int32, now int64) {
	if u.epoch == 0 {
		u.epoch = now
		u.ackCount, u.friendly = delivered, cwnd
		if u.lastMax <= cwnd {
			u.k, u.origin = 0, cwnd
		} else {
			u.k = cubeRoot((1 << 40) / cubicScale * int64(u.lastMax-cwnd))
			u.origin = u.lastMax
		}
	}
	t := now - u.epoch + int64(u.delayMin/jiffy)
	t = t << 10 / int64(time.Second/jiffy)
	off := t - u.k
	if off < 0 {
		off = -off
	}
	delta := cubicScale * off * off * off >> 40
	target := int64(u.origin) + delta
	if t < u.k {
		target = int64(u.origin) - delta
	}
	if target > int64(cwnd) {
		u.count = int32(max(int64(cwnd)/(target-int64(cwnd)), 0))
	} else {
		u.count = 100 * cwnd
	}
	if u.lastMax == 0 {
		u.count = min(u.count, 20)
	}
}

// cubeRoot returns the cube root, rounded down.
func cubeRoot(v int64) int64 {
	lo, hi := int64(0), int64(2097151)
	for lo < hi {
		mid := (lo + hi + 1) / 2
		if mid*mid*mid <= v {
			lo = mid
		} else {
			hi = mid - 1
		}
	}
	return lo
}

func (u *cubic) reduce(c *Conn, _ unit.Instant) int32 {
	u.epoch = 0
	if c.cwnd < u.lastMax { // fast convergence: make room for newcomers
		u.lastMax = c.cwnd * (1024 + cubicBeta) / (2 * 1024)
	} else {
		u.lastMax = c.cwnd
	}
	return max(c.cwnd*cubicBeta/1024, 2)
}

// timeout is bictcp_state for TCP_CA_Loss: everything but the least delay is
// forgotten.
func (u *cubic) timeout(c *Conn, now unit.Instant) {
	*u = cubic{}
	u.newRound(c, now)
}

func (u *cubic) recovered(*Conn) {}
