package main

import (
	"context"
	"errors"
	"strings"

	"unbloat/internal/keep/steer"
	"unbloat/internal/measure/phases"
)

// echoOf returns what opens a stream of probes at a server; nil if there is none, or
// if it is of a kind that answers no such stream.
func echoOf(server string) func(context.Context) (steer.Stream, error) {
	if server == "" || isPublic(server) || strings.Contains(server, "://") || strings.HasPrefix(server, "list:") {
		return nil
	}
	return func(ctx context.Context) (steer.Stream, error) {
		c, err := phases.Dial(ctx, server, phases.Options{Agent: "unbloat daemon"})
		if err != nil {
			return steer.Stream{}, err
		}
		to, token, err := c.OpenEcho(ctx)
		if err != nil {
			return steer.Stream{}, errors.Join(err, c.Close())
		}
		return steer.Stream{To: to, Token: token, Close: c.Close}, nil
	}
}
