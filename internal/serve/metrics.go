package serve

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"slices"

	"unbloat/internal/keep/metrics"
)

// metricsServer serves /metrics in Prometheus's text format on its own port,
// which need not be reachable from the internet.
type metricsServer struct {
	l    net.Listener
	http *http.Server
}

func listenMetrics(s *Server, address string) (*metricsServer, error) {
	a, err := net.ResolveTCPAddr("tcp", address)
	if err != nil {
		return nil, err
	}
	l, err := s.sockets.stream(a)
	if err != nil {
		return nil, err
	}
	m := http.NewServeMux()
	m.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", metrics.ContentType)
		s.writeMetrics(w)
	})
	m.HandleFunc("GET /ready", s.ready)
	return &metricsServer{l, &http.Server{Handler: m, ReadTimeout: s.limits.Handshake, WriteTimeout: s.limits.Stall, MaxHeaderBytes: 8 << 10}}, nil
}

func (m *metricsServer) serve() error {
	if err := m.http.Serve(m.l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func (m *metricsServer) close() { m.http.Close(); m.l.Close() }

func (m *metricsServer) addr() netip.AddrPort { return m.l.Addr().(*net.TCPAddr).AddrPort() }

func (m *metricsServer) name() string { return protocolMetrics }

// writeMetrics writes what the server did and what it refused. Errors in
// sending are ignored.
func (s *Server) writeMetrics(w io.Writer) {
	t := metrics.NewText(w)
	one := func(name, kind, help string, value float64) {
		t.Head(name, kind, help)
		t.Value(name, value)
	}
	a := s.accounts
	a.mu.Lock()
	sessions, total, addresses := a.sessions, a.total, len(a.of)
	served := maps.Clone(a.served)
	a.mu.Unlock()
	one("unbloat_sessions", metrics.Gauge, "Sessions now, of all protocols.", float64(sessions))
	one("unbloat_addresses", metrics.Gauge, "Client addresses with an account.", float64(addresses))
	one("unbloat_bytes_total", metrics.Counter, "Bytes of load moved, both ways together.", float64(total))
	t.Head("unbloat_sessions_total", metrics.Counter, "Sessions opened.")
	for _, p := range slices.Sorted(maps.Keys(served)) {
		t.Value("unbloat_sessions_total", float64(served[p]), "protocol", p)
	}
	t.Head("unbloat_refused_total", metrics.Counter, "What was refused, and why.")
	kinds, refused := s.refusals.all()
	for _, k := range kinds {
		t.Value("unbloat_refused_total", float64(refused[k]), "protocol", k.protocol, "reason", k.reason)
	}
	if s.waiting != nil {
		waiting, aside := s.waiting()
		one("unbloat_results_waiting", metrics.Gauge, "Results that wait for the database.", float64(waiting))
		one("unbloat_results_refused", metrics.Gauge, "Results that the database refuses, which lie aside.", float64(aside))
	}
	if s.shared != nil {
		one("unbloat_budgets_shared_timestamp_seconds", metrics.Gauge, "When the budgets were last shared with the other servers; 0: never.", float64(s.sharedAt.Load()))
	}
}

// ready reports whether the server takes new sessions, for load balancers.
func (s *Server) ready(w http.ResponseWriter, _ *http.Request) {
	s.accounts.mu.Lock()
	ending := s.accounts.draining || s.accounts.shut
	s.accounts.mu.Unlock()
	if ending {
		http.Error(w, "draining", http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ready")
}
