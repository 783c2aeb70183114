package main

import (
	"context"
	"net"
	"net/http"
	"time"

	"unbloat/guard"
	"unbloat/internal/keep/metrics"
)

// serveMetrics serves the daemon's metrics until ctx ends.
func serveMetrics(ctx context.Context, address string, now func() metrics.Snapshot) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	const patience = 10 * time.Second
	s := &http.Server{Handler: metrics.Handler(now), ReadHeaderTimeout: patience, WriteTimeout: patience, IdleTimeout: time.Minute, MaxHeaderBytes: 8 << 10}
	places := guard.Limits{Most: 32, Crowded: 24, Share: 8}                   // whoever collects metrics has one
	go func() { _ = s.Serve(&guard.Listener{Listener: l, Limits: places}) }() // until it is closed
	context.AfterFunc(ctx, func() { _ = s.Close() })
	return nil
}
