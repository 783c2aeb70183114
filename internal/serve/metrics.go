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
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		s.writeMetrics(w)
	})
	m.HandleFunc("GET /ready", s.ready)
	return &metricsServer{l, &http.Server{Handler: m, ReadHeaderTimeout: s.limits.Handshake, MaxHeaderBytes: 8 << 10}}, nil
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
	head := func(name, kind, help string) { fmt.Fprintf(w, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind) }
	a := s.accounts
	a.mu.Lock()
	sessions, total, addresses := a.sessions, a.total, len(a.of)
	served := maps.Clone(a.served)
	a.mu.Unlock()
	head("unbloat_sessions", "gauge", "Sessions now, of all protocols.")
	fmt.Fprintf(w, "unbloat_sessions %d\n", sessions)
	head("unbloat_addresses", "gauge", "Client addresses with an account.")
	fmt.Fprintf(w, "unbloat_addresses %d\n", addresses)
	head("unbloat_bytes_total", "counter", "Bytes of load moved, both ways together.")
	fmt.Fprintf(w, "unbloat_bytes_total %d\n", total)
	head("unbloat_sessions_total", "counter", "Sessions opened.")
	for _, p := range slices.Sorted(maps.Keys(served)) {
		fmt.Fprintf(w, "unbloat_sessions_total{protocol=%q} %d\n", p, served[p])
	}
	head("unbloat_refused_total", "counter", "What was refused, and why.")
	kinds, refused := s.refusals.all()
	for _, k := range kinds {
		fmt.Fprintf(w, "unbloat_refused_total{protocol=%q,reason=%q} %d\n", k.protocol, k.reason, refused[k])
	}
	if s.waiting != nil {
		waiting, aside := s.waiting()
		head("unbloat_results_waiting", "gauge", "Results that wait for the database.")
		fmt.Fprintf(w, "unbloat_results_waiting %d\n", waiting)
		head("unbloat_results_refused", "gauge", "Results that the database refuses, which lie aside.")
		fmt.Fprintf(w, "unbloat_results_refused %d\n", aside)
	}
	if s.shared != nil {
		head("unbloat_budgets_shared_timestamp_seconds", "gauge", "When the budgets were last shared with the other servers; 0: never.")
		fmt.Fprintf(w, "unbloat_budgets_shared_timestamp_seconds %d\n", s.sharedAt.Load())
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
