//go:build !omit_http

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

	"unbloat/internal/measure"
	"unbloat/internal/netio"
	"unbloat/internal/probe"
	"unbloat/internal/protocol"
	"unbloat/internal/verdict"
	"unbloat/unit"
)

// A Load is what one phase moves: connections, and what follows on each.
type Load struct {
	s      *Source
	flows  []*Flow
	start  unit.Instant
	ctx    context.Context // of everything that runs
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu     sync.Mutex
	onLoad map[measure.Direction][]probe.Sample
	parts  map[measure.Direction]*verdict.Handshakes
	looks  []probe.SenderSample
}

// A Flow is one connection and the requests that follow each other on it.
type Flow struct {
	Spec  measure.FlowSpec
	Run   func(ctx context.Context) error                  // moves bytes until ctx ends; broken, if it returns an error before
	Ping  func(ctx context.Context) (time.Duration, error) // the round trip on this connection; nil: it can't be asked for
	Share float64                                          // of the bytes on the wire that are payload; 0: as counted

	session *protocol.Session
	wires   *wires
	moved   atomic.Int64

	mu     sync.Mutex
	bins   netio.Bins
	last   unit.Instant
	over   bool // what a transport still reads of a body is not counted
	broken string
}

// Count books bytes that were moved since the last time.
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
func openRequests(ctx context.Context, s *Source, specs []measure.FlowSpec) (measure.Load, error) {
	l := NewLoad(s)
	for _, spec := range specs {
		for range spec.Flows {
			f := l.Add(spec)
			client := newClient(s.Session, f.wires)
			f.Run = func(ctx context.Context) error { return download(ctx, client, s.At.Down, f) }
			if spec.Dir == measure.Up {
				f.Run = func(ctx context.Context) error { return upload(ctx, client, s, f) }
			}
			f.Ping = func(ctx context.Context) (time.Duration, error) {
				return smallGet(ctx, s.Session.Clock, client, s.At.Small)
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
	l := &Load{s: s, onLoad: map[measure.Direction][]probe.Sample{}, parts: map[measure.Direction]*verdict.Handshakes{}}
	l.ctx, l.cancel = context.WithCancel(context.Background()) // Stop and Abandon end it
	return l
}

// Add adds a flow, which its caller opens.
func (l *Load) Add(spec measure.FlowSpec) *Flow {
	f := &Flow{Spec: spec, session: l.s.Session, wires: &wires{}}
	if spec.Dir == measure.Up {
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

// download fetches the large thing over and over.
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

// upload sends bodies over and over.
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

// onLoadEvery is the distance of probes on the loaded connections, and of the
// handshakes of fresh ones.
const onLoadEvery = 100 * time.Millisecond

// probeLoaded probes the loaded connections in turn, and every fifth time a fresh one.
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
			continue // 64 wait already
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

// fresh times the parts of a request on a fresh connection.
func (l *Load) fresh(dir measure.Direction) {
	clock, w := l.s.Session.Clock, &wires{}
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
	took, err := smallGet(httptrace.WithClientTrace(l.ctx, trace), clock, client, l.s.At.Small)
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

// look samples the sending sockets.
func (l *Load) look() {
	tick := time.NewTicker(2 * protocol.GoodputBin)
	defer tick.Stop()
	for {
		l.sample()
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
		if f.Spec.Dir == measure.Up {
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
func (l *Load) Moved(d measure.Direction) (sum int64) {
	for _, f := range l.flows {
		if f.Spec.Dir == d {
			sum += f.moved.Load()
		}
	}
	return sum
}

// Stop implements measure.Load.
func (l *Load) Stop(context.Context) ([]measure.FlowReport, error) {
	end := l.s.Session.Clock.Now()
	l.sample()
	l.Abandon()
	for _, f := range l.flows {
		f.mu.Lock()
		f.over = true
		f.mu.Unlock()
	}
	reports := map[measure.Direction]*measure.FlowReport{}
	var out []measure.FlowReport
	var moved, sent int64
	share := 0.0
	for _, f := range l.flows {
		r := reports[f.Spec.Dir]
		if r == nil {
			r = &measure.FlowReport{Dir: f.Spec.Dir, Start: l.start, End: end, OnLoad: l.onLoad[f.Spec.Dir], Fresh: l.parts[f.Spec.Dir]}
			reports[f.Spec.Dir] = r
		}
		r.Series = append(r.Series, verdict.Series{Start: f.bins.Start, Bin: f.bins.Width, Bytes: f.bins.Bytes})
		if f.broken != "" {
			r.Broken = append(r.Broken, f.broken)
		}
		if f.Spec.Dir == measure.Up {
			moved, sent, share = moved+f.moved.Load(), sent+f.wires.sent.Load(), f.Share
		}
	}
	if r := reports[measure.Up]; r != nil && len(l.looks) > 1 && l.looks[0].Known && sent > 0 {
		r.Sender = l.looks
		if share == 0 {
			share = float64(moved) / float64(sent)
		}
		r.Series = scale(protocol.Acked(l.looks, len(r.Series)), share)
	}
	for _, d := range []measure.Direction{measure.Down, measure.Up} {
		if r := reports[d]; r != nil {
			out = append(out, *r)
		}
	}
	return out, nil
}

// scale turns bytes on the wire into payload, of which they are a part.
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
