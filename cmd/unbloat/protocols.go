package main

import (
	"context"

	"unbloat/internal/measure/protocol"
	"unbloat/internal/measure/protocol/all"
)

// protocolsKey is the context's key for the kinds of test servers.
type protocolsKey struct{}

// withProtocols replaces the kinds of test servers that commands use.
func withProtocols(ctx context.Context, protocols protocol.Protocols) context.Context {
	return context.WithValue(ctx, protocolsKey{}, protocols)
}

// protocolsOf returns the kinds of test servers that commands use.
func protocolsOf(ctx context.Context) protocol.Protocols {
	if ctx != nil {
		if p, ok := ctx.Value(protocolsKey{}).(protocol.Protocols); ok {
			return p
		}
	}
	return all.Protocols()
}
