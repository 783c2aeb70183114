package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"unbloat/internal/measure/protocol/public"
	"unbloat/internal/show/cli"
	"unbloat/unit"
)

// nearest returns the server to measure with: a --server value unchanged, or
// the nearest server of the list that it names, which it prints to w.
func nearest(ctx context.Context, w io.Writer, server string) (string, error) {
	if !strings.HasPrefix(server, public.Prefix) {
		return server, nil
	}
	l, err := public.Fetch(ctx, server, time.Now())
	if errors.Is(err, public.ErrMalformed) {
		return "", cli.UsageError("--server %s: %w", server, err)
	}
	if err != nil {
		return "", cli.Exit(cli.Precondition, fmt.Errorf("--server %s: %w", server, err))
	}
	all, err := public.Choose(ctx, l, public.Handshake)
	if err != nil {
		return "", cli.Exit(cli.Precondition, fmt.Errorf("--server %s: %w", server, err))
	}
	name := all[0].Address
	if all[0].Name != "" {
		name = all[0].Name + ", " + name
	}
	fmt.Fprintf(w, "unbloat: the nearest of %d servers is %s, %.1f ms away\n", len(all), name, unit.Ms(all[0].Least))
	return all[0].Address, nil
}
