package household

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"unbloat/internal/measure/netio"
	"unbloat/internal/measure/phases"
	"unbloat/internal/measure/verdict"
)

// What a page is made of: with the default of 80 objects 1.8 MB over six hosts,
// of which an object's median is 9 kB.
const (
	htmlBytes    = 50_000
	objectMedian = 9_000
	objectSigma  = 1.3 // of the logarithm
	objectMost   = 400_000
	perHost      = 6 // connections, as browsers have it
	cookieBytes  = 350
	pageTimeout  = time.Minute
)

// web is a user who reads pages: net/http over real names and connections,
// against net/http on the server node.
type web struct {
	site
	down *meter
}

// A site is what a load fetches over HTTP from the server node.
type site struct {
	task   Task
	server *fileServer
}

func (s *site) prepare(ctx context.Context) (err error) {
	if err := s.task.Home.resolver(ctx); err != nil {
		return err
	}
	s.server, err = serveFiles(ctx, s.task)
	return err
}

func (s *site) close() { s.server.close() }

func (w *web) run(ctx context.Context, d time.Duration) (*Outcome, error) {
	w.down = newMeter()
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	var (
		mu       sync.Mutex
		wg       sync.WaitGroup
		result   WebResult
		times    []time.Duration
		underWay []time.Duration
	)
	for reader := range w.task.Load.Flows {
		wg.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				start := time.Now()
				err := w.page(ctx, reader*1000+n)
				took := time.Since(start)
				mu.Lock()
				switch {
				case err == nil:
					result.Pages++
					times = append(times, took)
				case ctx.Err() != nil:
					underWay = append(underWay, took)
				default:
					result.Failed++
				}
				mu.Unlock()
				_ = phases.Sleep(ctx, w.task.Load.Think)
			}
		})
	}
	wg.Wait()
	result.LoadMs = verdict.Summarise(times)
	for _, took := range underWay { // an unfinished page says something only if it is slower than all others
		if len(times) == 0 || took > times[len(times)-1] {
			result.Failed++
		}
	}
	return &Outcome{Down: w.down.series(), QoE: QoE{Web: &result}}, nil
}

// page loads the n-th page: its HTML, then all its objects.
func (w *web) page(ctx context.Context, n int) error {
	ctx, cancel := context.WithTimeout(ctx, pageTimeout)
	defer cancel()
	client := w.task.client(perHost) // another site: no connection is there yet
	defer client.CloseIdleConnections()
	random := rand.New(rand.NewPCG(uint64(n), 2))
	if err := get(ctx, client, w.task.siteName(1), htmlBytes, w.down); err != nil {
		return err
	}
	errs := make(chan error, w.task.Load.Objects)
	for range w.task.Load.Objects {
		size := min(int(objectMedian*math.Exp(objectSigma*random.NormFloat64())), objectMost)
		host := w.task.siteName(1 + random.IntN(sites))
		go func() { errs <- get(ctx, client, host, size, w.down) }()
	}
	var err error
	for range w.task.Load.Objects {
		err = errors.Join(err, <-errs)
	}
	return err
}

// client returns an HTTP client without connections, which asks the router for names.
func (t Task) client(connections int) *http.Client {
	return &http.Client{Transport: &http.Transport{
		MaxConnsPerHost: connections, MaxIdleConnsPerHost: connections, DisableCompression: true,
		ReadBufferSize: 1 << 16,
		DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) {
			host, port, err := net.SplitHostPort(addr)
			if err != nil {
				return nil, err
			}
			a, err := resolve(ctx, t.Home.RouterAddr, host, askTries, askTimeout)
			if err != nil {
				return nil, err
			}
			var d net.Dialer
			return d.DialContext(ctx, "tcp4", net.JoinHostPort(a.String(), port))
		},
	}}
}

// get fetches so many bytes from a host.
func get(ctx context.Context, client *http.Client, host string, size int, m *meter) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+host+"/"+strconv.Itoa(size), nil)
	if err != nil {
		return err
	}
	r.Header.Set("User-Agent", "Mozilla/5.0 (X11; Linux x86_64) unbloat lab")
	r.Header.Set("Accept", "text/html,image/avif,image/webp,*/*;q=0.8")
	r.Header.Set("Cookie", "session="+strings.Repeat("c", cookieBytes))
	answer, err := client.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	buf := make([]byte, 1<<16)
	for got := 0; ; {
		n, err := answer.Body.Read(buf)
		got += n
		m.add(n)
		switch {
		case err == io.EOF && got == size:
			return nil
		case err != nil:
			return fmt.Errorf("got %d of %d bytes of %s: %w", got, size, host, err)
		}
	}
}

// A fileServer answers a number with so many bytes, at all addresses of a load.
type fileServer struct{ server *http.Server }

func serveFiles(ctx context.Context, t Task) (*fileServer, error) {
	if err := t.giveAddresses(ctx, sites); err != nil {
		return nil, err
	}
	var addrs []string
	for k := 1; k <= sites; k++ {
		addrs = append(addrs, t.address(k)+":80")
	}
	listeners, err := listen(t.Home.ServerNode, addrs...)
	if err != nil {
		return nil, err
	}
	content := make([]byte, 1<<16)
	f := &fileServer{&http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		left, err := strconv.Atoi(strings.TrimPrefix(r.URL.Path, "/"))
		if err != nil || left < 0 {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Length", strconv.Itoa(left))
		w.Header().Set("Content-Type", "application/octet-stream")
		for left > 0 {
			n, err := w.Write(content[:min(left, len(content))])
			if err != nil {
				return // the reader left
			}
			left -= n
		}
	})}}
	for _, l := range listeners {
		go func() { _ = f.server.Serve(l) }() // ends when the server is closed
	}
	return f, nil
}

func (f *fileServer) close() {
	if f != nil {
		_ = f.server.Close()
	}
}

// meterBin is how finely a meter tells when bytes came.
const meterBin = 100 * time.Millisecond

// A meter counts bytes in bins of the clock that all of the guest shares.
type meter struct {
	clock *netio.Clock
	mu    sync.Mutex
	s     verdict.Series
}

func newMeter() *meter {
	c := netio.NewClock()
	return &meter{clock: c, s: verdict.Series{Start: c.Now(), Bin: meterBin}}
}

func (m *meter) add(n int) {
	i := int(m.clock.Now().Sub(m.s.Start) / meterBin)
	m.mu.Lock()
	defer m.mu.Unlock()
	for len(m.s.Bytes) <= i {
		m.s.Bytes = append(m.s.Bytes, 0)
	}
	m.s.Bytes[i] += int64(n)
}

func (m *meter) series() *verdict.Series {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.s
	return &s
}
