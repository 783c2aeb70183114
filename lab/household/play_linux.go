package household

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"unbloat/internal/measure/netio"
	"unbloat/internal/measure/phases"
	"unbloat/internal/measure/probe"
	"unbloat/unit"
)

// What a game sends, and where its server waits.
const (
	gamePort    = 3478
	inputPPS    = 128
	inputLeast  = 60 // bytes of a packet of input
	inputMost   = 100
	pieceBytes  = 1200 // of a frame in one packet
	frameVaries = 0.15 // of a frame's size, relative
	gameDrain   = time.Second
)

// A wire is one UDP flow between the home and the server node, of which this
// process is both ends.
type wire struct{ home, away *net.UDPConn }

// wires opens the flows of a load. The first packet of each goes out from the
// home, so that the far end knows where to send.
func (t Task) wires(ctx context.Context) (out []wire, err error) {
	if err := t.giveAddresses(ctx, 1); err != nil {
		return nil, err
	}
	for k := range t.Load.Flows {
		var w wire
		addr := fmt.Sprintf("%s:%d", t.address(1), gamePort+k)
		if w.away, err = listenUDP(t.Home.ServerNode, addr); err != nil {
			return out, err
		}
		out = append(out, w)
		far, err := net.ResolveUDPAddr("udp4", addr)
		if err != nil {
			return out, err
		}
		if w.home, err = net.DialUDP("udp4", nil, far); err != nil {
			return out, fmt.Errorf("reach the game's server: %w", err)
		}
		out[k] = w
	}
	return out, nil
}

func closeWires(all []wire) {
	for _, w := range all {
		for _, c := range []*net.UDPConn{w.home, w.away} {
			if c != nil {
				_ = c.Close()
			}
		}
	}
}

// game is a game on a server whose packets down have another size than those
// up: each is answered by the server's view of the world.
type game struct {
	task  Task
	clock *netio.Clock
	wires []wire
}

func (g *game) prepare(ctx context.Context) (err error) {
	g.clock = netio.NewClock()
	g.wires, err = g.task.wires(ctx)
	return err
}

func (g *game) close() { closeWires(g.wires) }

func (g *game) run(ctx context.Context, d time.Duration) (*Outcome, error) {
	samples, errs := make([][]probe.Sample, len(g.wires)), make([]error, len(g.wires))
	var wg sync.WaitGroup
	for k, w := range g.wires {
		wg.Go(func() { samples[k], errs[k] = g.play(ctx, w, d) })
	}
	wg.Wait()
	o := &Outcome{}
	for _, s := range samples {
		o.Samples = append(o.Samples, s...)
	}
	return o, errors.Join(errs...)
}

// play sends the packets of one game, and returns what became of each.
func (g *game) play(ctx context.Context, w wire, d time.Duration) ([]probe.Sample, error) {
	l := g.task.Load
	var mu sync.Mutex
	var samples []probe.Sample
	note := func(b []byte, set func(*probe.Sample)) {
		if len(b) < 4 {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		if n := int(binary.BigEndian.Uint32(b)); n < len(samples) {
			set(&samples[n])
		}
	}
	down := make([]byte, l.BytesDown)
	var wg sync.WaitGroup
	wg.Go(func() {
		read(w.away, func(b []byte, from *net.UDPAddr) {
			now := g.clock.Now()
			note(b, func(s *probe.Sample) { s.ServerReceived, s.ServerSent, s.Fate = now, now, probe.LostDown })
			copy(down, b[:min(len(b), 4)])
			_, _ = w.away.WriteToUDP(down, from) // what is not sent is lost, and counted so
		})
	})
	wg.Go(func() {
		read(w.home, func(b []byte, _ *net.UDPAddr) {
			now := g.clock.Now()
			note(b, func(s *probe.Sample) { s.Received, s.Fate = now, probe.Answered })
		})
	})
	up := make([]byte, int(PacketBytes(l)))
	err := everyTick(ctx, d, time.Second/time.Duration(l.PPS), func(n int) {
		now := g.clock.Now()
		binary.BigEndian.PutUint32(up, uint32(n))
		mu.Lock()
		samples = append(samples, probe.Sample{Seq: uint32(n), Scheduled: now, Sent: now, Fate: probe.LostUp})
		mu.Unlock()
		_, _ = w.home.Write(up)
	})
	hangUp(w, &wg)
	return samples, err
}

// read hands over each datagram, until a deadline or the socket's end.
func read(c *net.UDPConn, each func([]byte, *net.UDPAddr)) {
	for buf := make([]byte, 2048); ; {
		n, from, err := c.ReadFromUDP(buf)
		if err != nil {
			return
		}
		each(buf[:n], from)
	}
}

// hangUp lets come what is under way, and waits for the readers.
func hangUp(w wire, readers *sync.WaitGroup) {
	end := time.Now().Add(gameDrain)
	_ = w.home.SetReadDeadline(end)
	_ = w.away.SetReadDeadline(end)
	readers.Wait()
}

// everyTick calls f with 0, 1, 2 … at a steady pace until d is over.
func everyTick(ctx context.Context, d, interval time.Duration, f func(n int)) error {
	start := time.Now()
	for n := 0; ; n++ {
		at := time.Duration(n) * interval
		if at >= d {
			return nil
		}
		if err := phases.Sleep(ctx, time.Until(start.Add(at))); err != nil {
			return err
		}
		f(n)
	}
}

// cloudGame is a game that a server plays: it sends pictures at a rate that
// does not adapt, and the home sends keys and moves.
type cloudGame struct{ game }

func (g *cloudGame) run(ctx context.Context, d time.Duration) (*Outcome, error) {
	began := g.clock.Now().Add(-g.task.Load.Start)
	from, to := began.Add(g.task.From), began.Add(g.task.To)
	down := newMeter()
	results, errs := make([]*PlayResult, len(g.wires)), make([]error, len(g.wires))
	var wg sync.WaitGroup
	for k, w := range g.wires {
		wg.Go(func() {
			p := &played{clock: g.clock, down: down, random: rand.New(rand.NewPCG(uint64(g.task.Index), uint64(k)))}
			errs[k] = p.run(ctx, w, d, g.task.Load.Rate)
			results[k] = Play(p.frames, p.inputs, from, to)
		})
	}
	wg.Wait()
	worst := results[0]
	for _, r := range results {
		if r.Missed() > worst.Missed() {
			worst = r
		}
	}
	return &Outcome{Down: down.series(), QoE: QoE{Play: worst}}, errors.Join(errs...)
}

// played is one game under way.
type played struct {
	clock  *netio.Clock
	down   *meter
	random *rand.Rand

	mu     sync.Mutex
	frames []PlayFrame
	left   []int // packets of each frame that have not come
	inputs []Heard
}

// run plays for d. A packet of input has its number in front; a packet of a frame
// the frame's number.
func (p *played) run(ctx context.Context, w wire, d time.Duration, rate unit.Rate) error {
	player := make(chan *net.UDPAddr, 1)
	var readers, writers sync.WaitGroup
	readers.Go(func() {
		read(w.away, func(b []byte, from *net.UDPAddr) {
			p.moved(p.clock.Now(), b)
			select {
			case player <- from:
			default:
			}
		})
	})
	readers.Go(func() { read(w.home, func(b []byte, _ *net.UDPAddr) { p.saw(p.clock.Now(), b) }) })
	var errs [2]error
	writers.Go(func() {
		errs[0] = everyTick(ctx, d, time.Second/inputPPS, func(n int) { _, _ = w.home.Write(p.move(n)) })
	})
	writers.Go(func() {
		select {
		case far := <-player:
			errs[1] = everyTick(ctx, d, playLength, func(n int) {
				for _, piece := range p.picture(n, rate) {
					_, _ = w.away.WriteToUDP(piece, far)
				}
			})
		case <-time.After(d):
			errs[1] = errors.New("no packet of the player came to the game's server")
		}
	})
	writers.Wait()
	hangUp(w, &readers)
	return errors.Join(errs[:]...)
}

// move is the n-th packet of input.
func (p *played) move(n int) []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.inputs = append(p.inputs, Heard{Sent: p.clock.Now()})
	b := make([]byte, inputLeast+p.random.IntN(inputMost-inputLeast+1))
	binary.BigEndian.PutUint32(b, uint32(n))
	return b
}

func (p *played) moved(now unit.Instant, b []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := int(binary.BigEndian.Uint32(b)); n < len(p.inputs) {
		p.inputs[n].Arrived = now
	}
}

// picture is the n-th frame, in packets.
func (p *played) picture(n int, rate unit.Rate) [][]byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	mean := float64(rate) / 8 / PlayFrames
	size := max(int(mean*(1+frameVaries*(2*p.random.Float64()-1))), 16)
	var out [][]byte
	for ; size > 0; size -= pieceBytes {
		b := make([]byte, max(min(size, pieceBytes), 16))
		binary.BigEndian.PutUint32(b, uint32(n))
		out = append(out, b)
	}
	p.frames, p.left = append(p.frames, PlayFrame{Made: p.clock.Now()}), append(p.left, len(out))
	return out
}

func (p *played) saw(now unit.Instant, b []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down.add(len(b))
	n := int(binary.BigEndian.Uint32(b))
	if n >= len(p.left) {
		return
	}
	if p.left[n]--; p.left[n] == 0 {
		p.frames[n].Whole = now
	}
}

// newGame returns what makes a game: the server of `unbloat serve` where both
// ways have packets of one size.
func newGame(t Task) maker {
	if t.Load.BytesDown == 0 {
		return &native{task: t}
	}
	return &game{task: t}
}
