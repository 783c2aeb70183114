package main

import (
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"unbloat/internal/show/cli"
	"unbloat/lab/aqm"
	"unbloat/lab/sim"
	"unbloat/unit"
)

const (
	rtt     = 20 * time.Millisecond
	call    = 214                   // bytes of a G.711 packet on Ethernet
	every   = 20 * time.Millisecond // between two
	from    = 10 * time.Second      // what is before is not counted
	length  = 40 * time.Second
	modem   = 100 * unit.MbitPerSecond // not the bottleneck here
	fullMTU = 1514
)

// A situation is what shares the line with the call.
type situation struct {
	name    string
	rate    unit.Rate
	bulk    int       // greedy TCP uploads of another host
	swarm   int       // the same, on the caller's host
	flood   int       // greedy UDP flows of full packets, of another host
	abusers int       // UDP flows just under the threshold for sparse flows
	small   unit.Size // bytes of their packets
	pace    float64   // of the threshold
	collide bool      // all flows have keys that are equal modulo 1024
}

func situations() []situation {
	const five = 5 * unit.MbitPerSecond
	return []situation{
		{name: "40 bulk", rate: five, bulk: 40},
		{name: "100 bulk", rate: five, bulk: 100},
		{name: "200 bulk", rate: five, bulk: 200},
		{name: "40 UDP floods", rate: five, flood: 40},
		{name: "100 UDP floods", rate: five, flood: 100},
		{name: "8 bulk at 1 Mbit/s", rate: unit.MbitPerSecond, bulk: 8},
		{name: "swarm of 40 on the caller's host", rate: five, swarm: 40, bulk: 4},
		{name: "40 bulk, all colliding", rate: five, bulk: 40, collide: true},
		abuse(1, 10, 300), abuse(10, 10, 300), abuse(20, 10, 300), abuse(50, 10, 300),
		abuse(50, 10, 100), abuse(50, 1, 300), modest(20, 10), modest(50, 10),
	}
}

// abuse is flows that keep just below the threshold for sparse ones.
func abuse(flows, bulk int, size unit.Size) situation {
	s := situation{rate: 5 * unit.MbitPerSecond, bulk: bulk, abusers: flows, small: size, pace: 0.98}
	s.name = fmt.Sprintf("%d abusing, %d bulk", flows, bulk)
	if size != 300 {
		s.name += fmt.Sprintf(", packets of %d bytes", size)
	}
	return s
}

// modest is abusers that send a little less than the call does.
func modest(flows, bulk int) situation {
	s := abuse(flows, bulk, 214)
	s.name, s.pace = fmt.Sprintf("%d flows of 80 kbit/s, %d bulk", flows, bulk), 0.64
	return s
}

// A candidate is a queue, with the shaper that holds the rate.
type candidate struct {
	name string
	make func(rate unit.Rate, drop aqm.DropFunc) (aqm.Queue, error)
}

func candidates() []candidate {
	htb := func(rate unit.Rate, inner aqm.Queue, err error) (aqm.Queue, error) {
		if err != nil {
			return nil, err
		}
		return aqm.NewTokenBucket(aqm.TokenBucketParams{Bucket: aqm.HTB, Rate: rate, Burst: fullMTU}, inner)
	}
	cake := func(by aqm.Isolation) func(unit.Rate, aqm.DropFunc) (aqm.Queue, error) {
		return func(rate unit.Rate, drop aqm.DropFunc) (aqm.Queue, error) {
			p := aqm.DefaultCake(rate)
			p.Isolation, p.Tins, p.Drop = by, aqm.BestEffort, drop
			return aqm.NewCake(p)
		}
	}
	fqCodel := func(quantum unit.Size) func(unit.Rate, aqm.DropFunc) (aqm.Queue, error) {
		return func(rate unit.Rate, drop aqm.DropFunc) (aqm.Queue, error) {
			p := aqm.DefaultFQCoDel(aqm.Linux73)
			p.Quantum, p.CoDel.Drop, p.CoDel.Target = quantum, drop, target(rate)
			inner, err := aqm.NewFQCoDel(p)
			return htb(rate, inner, err)
		}
	}
	return []candidate{
		{"FQ-CoDel", fqCodel(fullMTU)},
		{"FQ-CoDel, quantum 300", fqCodel(300)},
		{"CAKE flows", cake(aqm.IsolateFlows)},
		{"CAKE triple-isolate", cake(aqm.TripleIsolate)},
		{"start-time", func(rate unit.Rate, drop aqm.DropFunc) (aqm.Queue, error) {
			p := aqm.DefaultStartTime(aqm.Linux73)
			p.CoDel.Drop, p.CoDel.Target = drop, target(rate)
			inner, err := aqm.NewStartTime(p)
			return htb(rate, inner, err)
		}},
		{"sparse first", func(rate unit.Rate, drop aqm.DropFunc) (aqm.Queue, error) {
			p := aqm.DefaultSparseFirst(aqm.Linux73, rate)
			p.StartTime.CoDel.Drop, p.StartTime.CoDel.Target = drop, target(rate)
			inner, err := aqm.NewSparseFirst(p)
			return htb(rate, inner, err)
		}},
	}
}

// target is CoDel's where a full packet takes long.
func target(rate unit.Rate) time.Duration {
	return max(5*time.Millisecond, rate.Time(fullMTU)*3/2)
}

// outcome is what the call and the bulk got.
type outcome struct {
	p50, p99 time.Duration // one way, over the idle line
	loss     float64
	bulk     unit.Rate
}

// newSimStudyCommand is `unbloat sim study`.
func newSimStudyCommand() *cobra.Command {
	var seed uint64
	c := &cobra.Command{
		Use:   "study",
		Short: "Compare queues where deficit round robin fails a call",
		Long: `Simulates a call beside many flows on a slow link, beside a swarm on the caller's own
host, with forced collisions, and beside flows that abuse a guarantee for sparse ones,
with each of several queues, and prints a table in Markdown.`,
		Example: "  unbloat sim study",
		Args:    cli.ExactArgs(0, "no argument"),
		RunE:    func(c *cobra.Command, _ []string) error { return study(c.OutOrStdout(), seed) },
	}
	c.Flags().Uint64Var(&seed, "seed", 1, "seed of all that is random")
	return c
}

func study(out io.Writer, seed uint64) error {
	fmt.Fprint(out, "| call beside |")
	for _, c := range candidates() {
		fmt.Fprintf(out, " %s |", c.name)
	}
	fmt.Fprintln(out, "\n|---|---|---|---|---|---|---|")
	for _, s := range situations() {
		fmt.Fprintf(out, "| %s |", s.name)
		for _, c := range candidates() {
			o, err := measure(s, c, seed)
			if err != nil {
				return fmt.Errorf("sim study: %s: %w", s.name, err)
			}
			fmt.Fprintf(out, " %.1f / %.1f ms, %.1f %%, bulk %.2f |", unit.Ms(o.p50), unit.Ms(o.p99), 100*o.loss, o.bulk.Mbit())
		}
		fmt.Fprintln(out)
	}
	return nil
}

// measure simulates one situation with one queue.
func measure(s situation, c candidate, seed uint64) (outcome, error) {
	var o outcome
	random := rand.New(rand.NewPCG(seed, 3))
	link := sim.Bottleneck{Rate: modem, Buffer: unit.MB, Burst: 1600}
	wire := sim.Wire{Delay: rtt / 2}
	n, err := sim.New(sim.Params{Up: link, Down: link, UpWire: wire, DownWire: wire, Random: random})
	if err != nil {
		return o, err
	}
	err = n.Shape(sim.Up, sim.Shaping{Queue: func(drop aqm.DropFunc) (aqm.Queue, error) { return c.make(s.rate, drop) }})
	if err != nil {
		return o, err
	}
	keys := uint32(0)
	key := func() uint32 {
		keys++
		if s.collide {
			return keys*1024 + 7
		}
		return 0 // at random
	}
	voice, err := n.AddStream(sim.StreamParams{Direction: sim.Up, Host: 1, Interval: every, Frame: call, FlowKey: key()})
	if err != nil {
		return o, err
	}
	var conns []*sim.Conn
	for i := range s.bulk + s.swarm {
		host := 2
		if i >= s.bulk {
			host = 1
		}
		conn, err := n.AddConn(sim.ConnParams{Direction: sim.Up, Host: host, FlowKey: key(), Start: unit.Instant(random.Int64N(1e9))})
		if err != nil {
			return o, err
		}
		conns = append(conns, conn)
	}
	threshold := aqm.DefaultSparseFirst(aqm.Linux73, s.rate).FlowRate
	for range s.abusers {
		if err := udp(n, random, 3, s.small, threshold.Scale(s.pace)); err != nil {
			return o, err
		}
	}
	for range s.flood {
		if err := udp(n, random, 2, fullMTU, s.rate.Scale(2/float64(s.flood))); err != nil {
			return o, err
		}
	}
	n.RunUntil(unit.Instant(from))
	before := acked(conns)
	n.RunUntil(unit.Instant(length))
	o.bulk = unit.Rate(float64(acked(conns)-before) * 8 / (length - from).Seconds())
	o.judge(voice)
	return o, nil
}

func acked(conns []*sim.Conn) (sum unit.Size) {
	for _, c := range conns {
		sum += c.Acked()
	}
	return sum
}

// udp adds a stream of datagrams of a rate.
func udp(n *sim.Network, random *rand.Rand, host int, size unit.Size, rate unit.Rate) error {
	interval := rate.Time(size)
	_, err := n.AddStream(sim.StreamParams{
		Direction: sim.Up, Host: host, Interval: interval, Frame: size, Start: unit.Instant(random.Int64N(int64(interval))),
	})
	return err
}

// judge takes the call's figures.
func (o *outcome) judge(voice *sim.Stream) {
	var delays []time.Duration
	lost := 0
	all := voice.Sent()
	for _, d := range all {
		switch {
		case d.Sent < unit.Instant(from) || d.Sent > unit.Instant(length-2*time.Second):
		case d.Fate == sim.Arrived:
			delays = append(delays, d.Turn.Sub(d.Sent)-rtt/2)
		default:
			lost++
		}
	}
	slices.Sort(delays)
	if len(delays) > 0 {
		o.p50, o.p99 = delays[len(delays)/2], delays[len(delays)*99/100]
	}
	o.loss = float64(lost) / float64(max(lost+len(delays), 1))
}
