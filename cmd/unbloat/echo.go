//go:build !omit_follow && !omit_daemon && !omit_measure

package main

import (
	"context"
	"errors"
	"strings"

	"unbloat/internal/gauge"
	"unbloat/internal/measure"
)

// echoOf returns what opens a stream of probes at a server; nil if there is none, or
// if it is of a kind that answers no such stream.
func echoOf(server string) func(context.Context) (gauge.Stream, error) {
	if server == "" || isPublic(server) || strings.Contains(server, "://") || strings.HasPrefix(server, "list:") {
		return nil
	}
	return func(ctx context.Context) (gauge.Stream, error) {
		c, err := measure.Dial(ctx, server, measure.Options{Agent: "unbloat daemon"})
		if err != nil {
			return gauge.Stream{}, err
		}
		to, token, err := c.OpenEcho(ctx)
		if err != nil {
			return gauge.Stream{}, errors.Join(err, c.Close())
		}
		return gauge.Stream{To: to, Token: token, Close: c.Close}, nil
	}
}
