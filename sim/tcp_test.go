package sim

import (
	"math/rand/v2"
	"testing"
	"time"

	"unbloat/unit"
)

// line returns a network with the lab's kind of modem.
func line(t testing.TB, down, up unit.Rate, rtt time.Duration, bufferDown, bufferUp unit.Size, seed uint64) *Network {
	t.Helper()
	n, err := New(Params{
		Up:       Bottleneck{Rate: up, Buffer: bufferUp, Burst: 1600},
		Down:     Bottleneck{Rate: down, Buffer: bufferDown, Burst: 1600},
		UpWire:   Wire{Delay: rtt / 2},
		DownWire: Wire{Delay: rtt / 2},
		Random:   rand.New(rand.NewPCG(seed, 1)),
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func addConn(t testing.TB, n *Network, p ConnParams) *Conn {
	t.Helper()
	c, err := n.AddConn(p)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// between returns the goodput of a connection from one second to another, in bit/s.
func between(c *Conn, from, to int) float64 {
	_, bin, bytes := c.Goodput()
	per := int(time.Second / bin)
	var sum int64
	for i := from * per; i < to*per && i < len(bytes); i++ {
		sum += bytes[i]
	}
	return float64(sum) * 8 / float64(to-from)
}

func TestTrace(t *testing.T) {
	for _, cc := range Controls() {
		n := line(t, 25e6, 1e6, 34*time.Millisecond, 1.5e6, 500e3, 1)
		c := addConn(t, n, ConnParams{Direction: Up, Control: cc})
		s, _ := n.AddStream(StreamParams{Direction: Up, Interval: 10 * time.Millisecond, Frame: 74, Echo: true})
		for i := 0; i < 40; i++ {
			n.RunUntil(unit.Instant(i+1) * 1e9)
			_, all := s.Sent()
			var worst time.Duration
			for _, d := range all {
				if d.Fate == Answered && d.Back > unit.Instant(i)*1e9 {
					worst = max(worst, d.Back.Sub(d.Sent))
				}
			}
			t.Logf("%s %2d s: cwnd %d ssthresh %d state %d flight %d backlog %d good %.3f rtt %v %+v", cc, i+1, c.cwnd, c.ssthresh, c.state, c.inFlight(), n.Bottleneck(Up).Backlog, between(c, i, i+1)/1e6, worst, c.Stats())
		}
	}
}
