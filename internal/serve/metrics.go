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

// metricsServer serves /metrics in Prometheus's text format, on a port of its
// own that need not face the internet.
type metricsServer struct {
	l    net.Listener
	http *http.Server
}

func listenMetrics(s *Server, address string) (*metricsServer, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	m := http.NewServeMux()
	m.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		s.writeMetrics(w)
	})
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

// writeMetrics writes what the server did and what it refused. Whether the
// reader hears it to its end does not matter.
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
	s.refusals.mu.Lock()
	refused := maps.Clone(s.refusals.counts)
	s.refusals.mu.Unlock()
	head("unbloat_refused_total", "counter", "What was refused, and why.")
	keys := slices.SortedFunc(maps.Keys(refused), func(x, y [2]string) int { return slices.Compare(x[:], y[:]) })
	for _, k := range keys {
		fmt.Fprintf(w, "unbloat_refused_total{protocol=%q,reason=%q} %d\n", k[0], k[1], refused[k])
	}
}
