package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	kept "unbloat/internal/keep/config"
	"unbloat/internal/keep/daemon"
	"unbloat/internal/keep/metrics"
)

// TestDoors: whoever opens connections to the daemon's page or to its metrics and says
// nothing has no more of them than there are places, and keeps nobody else out.
func TestDoors(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	pageAt, metricsAt := netip.MustParseAddrPort(fmt.Sprintf("127.0.0.1:%d", freePort(t))), fmt.Sprintf("127.0.0.1:%d", freePort(t))
	host := daemon.PageHost{Log: func(string, ...any) {}, Panicked: func(what any, stack []byte) { t.Errorf("%v\n%s", what, stack) },
		Daemon: new(daemon.Daemon).Page()}
	f := &daemonFlags{config: filepath.Join(t.TempDir(), "unbloat.toml")}
	_, ended, err := f.servePage(ctx, kept.Config{UI: kept.UI{Listen: pageAt}}, host)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { cancel(); <-ended }()
	if err := serveMetrics(ctx, metricsAt, func() metrics.Snapshot { return metrics.Snapshot{} }); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		at, path string
		most     int
	}{{pageAt.String(), "/api/session", 128}, {metricsAt, "/metrics", 32}} {
		var silent []net.Conn
		for i := range 200 {
			d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(2+i%8))}}
			conn, err := d.Dial("tcp", c.at)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			silent = append(silent, conn)
		}
		r, err := http.Get("http://" + c.at + c.path)
		if err != nil || r.StatusCode != http.StatusOK {
			t.Errorf("%s: %+v, %v", c.path, r, err)
		} else {
			r.Body.Close()
		}
		open := 0
		for _, conn := range silent {
			_ = conn.SetReadDeadline(time.Now().Add(time.Millisecond))
			_, err := conn.Read(make([]byte, 1))
			var late net.Error
			if errors.As(err, &late) && late.Timeout() {
				open++
			}
		}
		if open > c.most {
			t.Errorf("%s: %d silent connections are open, at most %d may be", c.path, open, c.most)
		}
	}
}
