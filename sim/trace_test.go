package sim

import (
	"testing"
	"time"

	"unbloat/aqm"
	"unbloat/unit"
)

func TestTraceUp(t *testing.T) {
	n := line(t, 30e6, 5e6, 20*time.Millisecond, 2.5e6, 600e3, 3)
	n.Shape(Up, Shaping{Queue: func(d aqm.DropFunc) (aqm.Queue, error) {
		p := aqm.DefaultCake(4.85e6)
		p.Drop = d
		p.Isolation = aqm.DualSource
		p.Tins = aqm.Diffserv4
		return aqm.NewCake(p)
	}})
	n.shapers[Up].rules = []Rule{{MatchAck, 34}, {MatchSmallUDP, 46}}
	n.Shape(Down, Shaping{Queue: func(d aqm.DropFunc) (aqm.Queue, error) {
		p := aqm.DefaultCake(28e6)
		p.Drop = d
		p.Isolation = aqm.DualDest
		p.Interval, p.Target = 300*time.Millisecond, 15*time.Millisecond
		p.Tins = aqm.BestEffort
		p.Ingress = true
		return aqm.NewCake(p)
	}})
	for i := range 100 {
		addConn(t, n, ConnParams{Direction: Down, Start: unit.Instant(i) * 300e3, QuickAcks: 15})
	}
	var cs []*Conn
	for i := range 100 {
		cs = append(cs, addConn(t, n, ConnParams{Direction: Up, Start: unit.Instant(i) * 300e3}))
	}
	for i := 0; i < 100; i++ {
		n.RunUntil(unit.Instant(i+1) * 200e6)
		c := cs[0]
		t.Logf("    cwnd %d ssthresh %d state %d flight %d una %d nxt %d sacked %d lost %d toresend %d %+v rto %v srtt %v %v expected %d %v", c.cwnd, c.ssthresh, c.state, c.inFlight(), c.una, c.nxt, c.sacked, c.lost, c.toResend, c.Stats(), c.rtt.timeout(), c.rtt.smoothed(), c.alarms[0], c.expected, c.ranges)
	}
}
