package web

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
	"time"

	"unbloat/internal/measure/netio"
	"unbloat/internal/measure/phases"
	"unbloat/internal/measure/probe"
	"unbloat/internal/measure/protocol"
	"unbloat/internal/measure/verdict"
	"unbloat/unit"
)

// A Load is one phase's connections, with the requests on each.
type Load struct {
	s      *Source
	flows  []*Flow
	start  unit.Instant
	ctx    context.Context // of all goroutines
	cancel context.CancelFunc
	wg     sync.WaitGroup
	apart  *wires // fresh connections, tested beside the load

	mu     sync.Mutex
	onLoad map[phases.Direction][]probe.Sample
	parts  map[phases.Direction]*verdict.Handshakes
	looks  []probe.SenderSample
}

// A Flow is one connection, with the requests on it, one after the other.
type Flow struct {
	Spec  phases.FlowSpec
	Run   func(ctx context.Context) error                  // moves bytes until ctx ends; an error before that means that the flow is broken
	Ping  func(ctx context.Context) (time.Duration, error) // the round trip on this connection; nil: cannot be measured
	Share float64                                          // payload's share of the bytes on the line; 0: as counted

	session *protocol.Session
	wires   *wires
	moved   atomic.Int64

	mu     sync.Mutex
	bins   netio.Bins
	last   unit.Instant
	over   bool // what a transport still reads of a body does not count
	broken string
}

// Count adds bytes that were moved since the last call.
func (f *Flow) Count(n int) {
	f.moved.Add(int64(n))
	now := f.session.Clock.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.over {
		return
	}
	f.bins.Add(f.last, now, int64(n))
	f.last = now
}

// openRequests opens the connections, each with a small request.
func openRequests(ctx context.Context, s *Source, specs []phases.FlowSpec) (phases.Load, error) {
	l := NewLoad(s)
	for _, spec := range specs {
		for range spec.Flows {
			f := l.Add(spec)
			client := newClient(s.Session, f.wires)
			f.Run = func(ctx context.Context) error { return download(ctx, client, s.At.Down, f) }
			if spec.Dir == phases.Up {
				f.Run = func(ctx context.Context) error { return upload(ctx, client, s, f) }
			}
			f.Ping = func(ctx context.Context) (time.Duration, error) {
				return smallGet(ctx, s.Session.Clock, client, s.At.Small, s.Session.Options.Patience)
			}
			if _, err := f.Ping(ctx); err != nil {
				l.Abandon()
				return nil, fmt.Errorf("open a connection to %s: %w", s.Session.Server, err)
			}
		}
	}
	return l, nil
}

// NewLoad returns a load without flows yet.
func NewLoad(s *Source) *Load {
	l := &Load{s: s, apart: newWires(), onLoad: map[phases.Direction][]probe.Sample{}, parts: map[phases.Direction]*verdict.Handshakes{}}
	l.ctx, l.cancel = context.WithCancel(context.Background()) // Stop and Abandon end it
	return l
}

// Add adds a flow, which the caller opens.
func (l *Load) Add(spec phases.FlowSpec) *Flow {
	f := &Flow{Spec: spec, session: l.s.Session, wires: newWires()}
	if spec.Dir == phases.Up {
		f.wires.o = netio.TCPOptions{CC: spec.CC, DSCP: spec.DSCP}
	}
	l.flows = append(l.flows, f)
	return f
}

// Begin implements measure.Load.
func (l *Load) Begin(context.Context) (unit.Instant, error) {
	l.start = l.s.Session.Clock.Now()
	for _, f := range l.flows {
		f.bins, f.last = netio.Bins{Start: l.start, Width: protocol.GoodputBin}, l.start
		if f.Spec.Dir == phases.Down {
			f.wires.watch(l.s.Session.Clock)
		}
		l.wg.Go(func() {
			if err := f.Run(l.ctx); err != nil && l.ctx.Err() == nil {
				f.mu.Lock()
				defer f.mu.Unlock()
				f.broken = fmt.Sprintf("%s: %v after %.1f s", f.Spec.Dir, err, l.s.Session.Clock.Now().Sub(l.start).Seconds())
			}
		})
	}
	l.wg.Go(l.probeLoaded)
	l.wg.Go(l.look)
	return l.start, nil
}

// download requests the large resource again and again.
func download(ctx context.Context, client *http.Client, url string, f *Flow) error {
	buf := make([]byte, 256<<10)
	for ctx.Err() == nil {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		resp, err := client.Do(r)
		if err != nil {
			return err
		}
		for err == nil {
			var n int
			n, err = resp.Body.Read(buf)
			f.Count(n)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return errors.New(resp.Status)
		}
		if err != io.EOF {
			return err
		}
	}
	return nil
}

// uploadSize is the body of one upload; servers limit it (Cloudflare to 100 MB).
const uploadSize = 90 * unit.MB

// upload sends bodies again and again.
func upload(ctx context.Context, client *http.Client, s *Source, f *Flow) error {
	for ctx.Err() == nil {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.At.Up, &body{f: f, payload: s.Payload, left: uploadSize})
		if err != nil {
			return err
		}
		r.ContentLength = int64(uploadSize)
		r.Header.Set("Content-Type", "application/octet-stream")
		resp, err := client.Do(r)
		if err != nil {
			return err
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return errors.New(resp.Status)
		}
	}
	return nil
}

// body is an upload that counts itself.
type body struct {
	f       *Flow
	payload []byte
	left    unit.Size
	at      int
}

func (b *body) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, io.EOF
	}
	n := copy(p[:min(unit.Size(len(p)), b.left)], b.payload[b.at:])
	b.at = (b.at + n) % len(b.payload)
	b.left -= unit.Size(n)
	b.f.Count(n)
	return n, nil
}

// onLoadEvery is the interval of probes on the loaded connections, and of
// handshakes on fresh ones.
const onLoadEvery = 100 * time.Millisecond

// probeLoaded probes the loaded connections in turn, and every fifth time a
// fresh connection.
func (l *Load) probeLoaded() {
	tick := time.NewTicker(onLoadEvery)
	defer tick.Stop()
	slots := make(chan struct{}, 64)
	for i := 0; ; i++ {
		select {
		case <-l.ctx.Done():
			return
		case <-tick.C:
		}
		f := l.flows[i%len(l.flows)]
		if f.Ping == nil {
			continue
		}
		select {
		case slots <- struct{}{}:
		default:
			continue // 64 are pending already
		}
		l.wg.Go(func() {
			defer func() { <-slots }()
			s := probe.Sample{Seq: uint32(i), Sent: l.s.Session.Clock.Now()}
			s.Scheduled = s.Sent
			if took, err := f.Ping(l.ctx); err == nil {
				s.Received, s.Fate = s.Sent.Add(took), probe.Answered
				l.mu.Lock()
				l.onLoad[f.Spec.Dir] = append(l.onLoad[f.Spec.Dir], s)
				l.mu.Unlock()
			}
			if i%5 == 0 && l.s.At.Small != "" {
				l.fresh(f.Spec.Dir)
			}
		})
	}
}

// fresh measures the parts of a request on a fresh connection.
func (l *Load) fresh(dir phases.Direction) {
	clock, w := l.s.Session.Clock, l.apart
	client := newClient(l.s.Session, w)
	defer client.CloseIdleConnections()
	var tcp, secured, begun atomic.Int64
	trace := &httptrace.ClientTrace{
		ConnectStart:      func(string, string) { begun.Store(int64(clock.Now())) },
		TLSHandshakeStart: func() { begun.Store(int64(clock.Now())) },
	}
	start := clock.Now()
	conn, err := w.dial(l.ctx, "tcp", l.s.Session.Address.Host)
	if err != nil {
		return
	}
	tcp.Store(int64(clock.Now().Sub(start)))
	conn.Close()
	trace.TLSHandshakeDone = func(tls.ConnectionState, error) { secured.Store(int64(clock.Now()) - begun.Load()) }
	took, err := smallGet(httptrace.WithClientTrace(l.ctx, trace), clock, client, l.s.At.Small, phases.Grace)
	if err != nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	h := l.parts[dir]
	if h == nil {
		h = &verdict.Handshakes{}
		l.parts[dir] = h
	}
	h.TCP = append(h.TCP, time.Duration(tcp.Load()))
	h.HTTP = append(h.HTTP, took)
	if t := secured.Load(); t > 0 {
		h.TLS = append(h.TLS, time.Duration(t))
	}
}

// look samples the sockets.
func (l *Load) look() {
	tick := time.NewTicker(protocol.GoodputBin)
	defer tick.Stop()
	for i := 0; ; i++ {
		for _, f := range l.flows {
			f.wires.mark()
		}
		if i%2 == 0 {
			l.sample()
		}
		select {
		case <-l.ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (l *Load) sample() {
	var up []*Flow
	for _, f := range l.flows {
		if f.Spec.Dir == phases.Up {
			up = append(up, f)
		}
	}
	if len(up) == 0 {
		return
	}
	var s probe.SenderSample
	for i, f := range up {
		one := netio.LookAt(f.session.Clock, f.wires.list())
		one.Flows = 1
		if i == 0 {
			s = one
			continue
		}
		s.Flows++
		s.Known = s.Known && one.Known
		s.Busy += one.Busy
		s.RwndLimited += one.RwndLimited
		s.BufLimited += one.BufLimited
		s.Retransmits += one.Retransmits
		s.Acked += one.Acked
		s.Sacked += one.Sacked
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.looks = append(l.looks, s)
}

// Moved implements measure.Load.
func (l *Load) Moved(d phases.Direction) (sum int64) {
	for _, f := range l.flows {
		if f.Spec.Dir == d {
			sum += f.moved.Load()
		}
	}
	return sum
}

// Passed implements measure.ByteCounter: the bytes of the load's connections,
// and of the requests beside it.
func (l *Load) Passed() (in, out int64, ok bool) {
	all := []*wires{l.s.wires, l.apart}
	for _, f := range l.flows {
		all = append(all, f.wires)
	}
	for _, w := range all {
		i, o, known := w.passed()
		if !known {
			return 0, 0, false
		}
		in, out = in+i, out+o
	}
	return in, out, true
}

// Stop implements measure.Load.
func (l *Load) Stop(ctx context.Context) ([]phases.FlowReport, error) {
	end := l.s.Session.Clock.Now()
	l.sample()
	if err := l.closeHoles(ctx, end); err != nil {
		l.Abandon()
		return nil, err
	}
	l.Abandon()
	for _, f := range l.flows {
		f.mu.Lock()
		f.over = true
		f.mu.Unlock()
	}
	reports := map[phases.Direction]*phases.FlowReport{}
	var out []phases.FlowReport
	var moved, sent int64
	share := 0.0
	for _, f := range l.flows {
		r := reports[f.Spec.Dir]
		if r == nil {
			r = &phases.FlowReport{Dir: f.Spec.Dir, Start: l.start, End: end, OnLoad: l.onLoad[f.Spec.Dir], Fresh: l.parts[f.Spec.Dir]}
			reports[f.Spec.Dir] = r
		}
		payload, whole := f.series()
		r.Series = append(r.Series, payload)
		if whole != nil {
			r.Whole = append(r.Whole, *whole)
		}
		if f.broken != "" {
			r.Broken = append(r.Broken, f.broken)
		}
		if f.Spec.Dir == phases.Up {
			moved, sent, share = moved+f.moved.Load(), sent+f.wires.sent.Load(), f.Share
		}
	}
	if r := reports[phases.Up]; r != nil && len(l.looks) > 1 && l.looks[0].Known && sent > 0 {
		r.Sender = l.looks
		if share == 0 {
			share = float64(moved) / float64(sent)
		}
		r.Series = scale(protocol.Acked(l.looks, len(r.Series)), share)
	}
	for _, d := range []phases.Direction{phases.Down, phases.Up} {
		if r := reports[d]; r != nil {
			out = append(out, *r)
		}
	}
	return out, nil
}

// series returns the payload that arrived. For a download that is what the
// kernel received, minus the overhead: data behind a hole is read only when the
// hole is closed, which may be after the phase. whole includes the overhead; it
// is nil if the system does not provide the counts.
func (f *Flow) series() (payload verdict.Series, whole *verdict.Series) {
	f.mu.Lock()
	defer f.mu.Unlock()
	b := f.wires.arrived(f.bins.Start)
	if b == nil {
		return verdict.Series{Start: f.bins.Start, Bin: f.bins.Width, Bytes: f.bins.Bytes}, nil
	}
	var all int64
	for _, n := range b.Bytes {
		all += n
	}
	share := min(float64(f.moved.Load())/float64(max(all, 1)), 1)
	payload = verdict.Series{Start: b.Start, Bin: b.Width}
	for _, n := range b.Bytes {
		payload.Bytes = append(payload.Bytes, int64(float64(n)*share))
	}
	return payload, &verdict.Series{Start: b.Start, Bin: b.Width, Bytes: b.Bytes}
}

// holesWithin is how long the flows continue so that data behind holes is
// counted: a round trip or two through a full queue.
const holesWithin = 2 * time.Second

// closeHoles lets the flows continue until no download has a hole.
func (l *Load) closeHoles(ctx context.Context, end unit.Instant) error {
	for l.s.Session.Clock.Now().Sub(end) < holesWithin {
		waiting := false
		for _, f := range l.flows {
			f.wires.mark()
			waiting = waiting || f.wires.waiting()
		}
		if !waiting {
			return nil
		}
		if err := phases.Sleep(ctx, protocol.GoodputBin); err != nil {
			return err
		}
	}
	return nil
}

// scale converts bytes on the line to payload.
func scale(s []verdict.Series, by float64) []verdict.Series {
	for i := range s {
		for j := range s[i].Bytes {
			s[i].Bytes[j] = int64(float64(s[i].Bytes[j]) * min(by, 1))
		}
	}
	return s
}

// Abandon implements measure.Load.
func (l *Load) Abandon() {
	l.cancel()
	for _, f := range l.flows {
		for _, c := range f.wires.list() {
			_ = c.SetLinger(0)
			c.Close()
		}
	}
	l.wg.Wait()
}
