//go:build !omit_http && !omit_daemon

package main

import (
	"context"
	"net"
	"net/http"
	"runtime"
	"time"

	"unbloat/internal/daemon"
	"unbloat/internal/door"
	"unbloat/internal/metrics"
	"unbloat/internal/metrics/page"
)

// offerMetrics gives the daemon what serves its metrics.
func offerMetrics(o *daemon.Options) { o.Go, o.Metrics = runtime.Version(), serveMetrics }

// serveMetrics serves the daemon's metrics until ctx ends.
func serveMetrics(ctx context.Context, address string, now func() metrics.Snapshot) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	const patience = 10 * time.Second
	s := &http.Server{Handler: page.Handler(now), ReadHeaderTimeout: patience, WriteTimeout: patience, IdleTimeout: time.Minute, MaxHeaderBytes: 8 << 10}
	places := door.Limits{Most: 32, Crowded: 24, Share: 8}                   // whoever collects metrics has one
	go func() { _ = s.Serve(&door.Listener{Listener: l, Limits: places}) }() // until it is closed
	context.AfterFunc(ctx, func() { _ = s.Close() })
	return nil
}
