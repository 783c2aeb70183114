package simlab

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"unbloat/internal/classify"
	"unbloat/internal/plan"
	"unbloat/internal/platform"
	"unbloat/internal/platform/all"
	"unbloat/sim"
	"unbloat/unit"
)

// How a router's own program gives flows their classes in the simulator.
const (
	sortEvery = time.Second
	// sortTakes is how long the programs take that it runs: what it puts into the
	// table decides so much later.
	sortTakes = 100 * time.Millisecond
)

// states are a firewall's states of the flows that pass the router, with counters, as
// pf has them; the home is behind NAT.
type states struct {
	flows map[int64]*state
	hosts map[uint32]netip.Addr
	home  map[netip.Addr]bool
}

// A state is one flow.
type state struct {
	protocol         uint8
	home, shown, far netip.AddrPort
	opened           sim.Direction
	packets, bytes   [2]uint64 // by direction
	mark             uint32    // of connection tracking
	last             unit.Instant
}

// stateFor is how long an idle state stays (pf's udp.multiple).
const stateFor = 60 * time.Second

func newStates() *states {
	return &states{flows: map[int64]*state{}, hosts: map[uint32]netip.Addr{}, home: map[netip.Addr]bool{}}
}

// count counts a packet, and returns its flow.
func (t *states) count(now unit.Instant, d sim.Direction, p sim.Seen) *state {
	s := t.flows[p.Flow]
	if s == nil {
		s = t.add(p)
	}
	s.packets[d]++
	s.bytes[d] += uint64(p.Size - plan.EthernetHeader)
	s.last = now
	return s
}

func (t *states) add(p sim.Seen) *state {
	a, ok := t.hosts[p.Host]
	if !ok {
		n := len(t.hosts) + 1
		a = netip.AddrFrom4([4]byte{192, 168, byte(n / 200), byte(n%200 + 10)})
		t.hosts[p.Host], t.home[a] = a, true
	}
	seen := packetOf(plan.DirectionUp, p)
	port := uint16(1024 + len(t.flows)%60000)
	if p.Swarm {
		port = swarmPort
	}
	n := uint32(p.Flow) & 0xffffff
	s := &state{protocol: seen.Protocol, opened: p.Opened, home: netip.AddrPortFrom(a, port),
		shown: netip.AddrPortFrom(netip.AddrFrom4([4]byte{203, 0, 113, 2}), uint16(10000+len(t.flows)%50000)),
		far:   netip.AddrPortFrom(netip.AddrFrom4([4]byte{11, byte(n >> 16), byte(n >> 8), byte(n)}), seen.FarPort)}
	t.flows[p.Flow] = s
	return s
}

// text writes the states as `pfctl -ss -v` does, in the order of their flows.
func (t *states) text(now unit.Instant) string {
	var b strings.Builder
	var order []int64
	for id, s := range t.flows {
		if now.Sub(s.last) > stateFor {
			delete(t.flows, id)
			continue
		}
		order = append(order, id)
	}
	slices.Sort(order)
	for _, id := range order {
		s := t.flows[id]
		name, says := "udp", "MULTIPLE:MULTIPLE"
		if s.protocol == classify.TCP {
			name, says = "tcp", "ESTABLISHED:ESTABLISHED"
		}
		i := s.opened
		if i == sim.Up {
			fmt.Fprintf(&b, "all %s %s (%s) -> %s       %s\n", name, s.shown, s.home, s.far, says)
		} else {
			fmt.Fprintf(&b, "all %s %s (%s) <- %s       %s\n", name, s.home, s.shown, s.far, says)
		}
		fmt.Fprintf(&b, "   age 00:01:00, expires in 00:01:00, %d:%d pkts, %d:%d bytes, rule 5\n", s.packets[i], s.packets[1-i], s.bytes[i], s.bytes[1-i])
	}
	return b.String()
}

// A sorting is a router whose rules look flows up in a table, and the program that
// fills it.
type sorting struct {
	kernel *ipfwKernel
	states *states
	sorter platform.Sorter
	next   unit.Instant
	wait   []func() error // what the programs do once they have run
}

// byTable returns how a plan's classes work whose rules look flows up; nil if they
// don't.
func (h *house) byTable(p plan.Plan) (*sorting, error) {
	d, err := all.Find(p.Platform)
	if err != nil || d.Sorter == nil || !p.ByBehaviour() {
		return nil, nil
	}
	k := newIPFW()
	text, err := commandsOf(d, p)
	if err != nil {
		return nil, err
	}
	if err := k.load(text); err != nil {
		return nil, err
	}
	s := &sorting{kernel: k, states: newStates(), next: h.net.Now().Add(sortEvery)}
	s.sorter = d.Sorter(p, func(a netip.Addr) bool { return s.states.home[a] })
	return s, nil
}

// commandsOf returns the commands of a plan.
func commandsOf(d *platform.Driver, p plan.Plan) (string, error) {
	if d.Simulated.Commands != nil {
		return d.Simulated.Commands(p)
	}
	parts, _, err := d.Render(p)
	var b strings.Builder
	for _, part := range parts {
		b.WriteString(part.Text)
	}
	return b.String(), err
}

// shaping returns what a direction does.
func (s *sorting) shaping(h *house, d sim.Direction) (sim.Shaping, error) {
	see := func(p sim.Seen) ipfwPacket {
		x := s.states.count(h.net.Now(), d, p)
		out := ipfwPacket{out: d == sim.Up, protocol: x.protocol, from: x.shown, to: x.far, length: p.Size - plan.EthernetHeader}
		if d == sim.Down {
			out.from, out.to = out.to, out.from
		}
		return out
	}
	return s.kernel.shaping(d == sim.Up, kernelOf(h.platform).CoDel, see)
}

// step lets the program read, or its commands take effect.
func (s *sorting) step(now unit.Instant) error {
	if s.wait != nil {
		for _, f := range s.wait {
			if err := f(); err != nil {
				return err
			}
		}
		s.wait, s.next = nil, s.next.Add(sortEvery-sortTakes)
		return nil
	}
	s.wait = []func() error{}
	s.next = now.Add(sortTakes)
	return s.sorter.Sort(context.Background(), s, now)
}

// Run implements platform.Runner.
func (s *sorting) Run(_ context.Context, argv []string, _ []byte) (stdout, stderr []byte, err error) {
	switch {
	case slices.Equal(argv, []string{"pfctl", "-ss", "-v"}):
		return []byte(s.states.text(s.next.Add(-sortTakes))), nil, nil
	case argv[0] == "ipfw" && (argv[len(argv)-1] == "list" || !slices.Contains(argv, "table") || slices.Contains(argv, "create")):
		out, err := s.kernel.run(argv)
		return []byte(out), nil, err
	case argv[0] == "ipfw":
		s.wait = append(s.wait, func() error { _, err := s.kernel.run(argv); return err })
		return nil, nil, nil
	}
	return nil, nil, fmt.Errorf("the simulated router has no %s", argv[0])
}
