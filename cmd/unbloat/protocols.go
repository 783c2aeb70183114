//go:build !omit_measure

package main

import (
	"context"

	"unbloat/internal/protocol"
	"unbloat/internal/protocol/all"
)

// protocolsKey is where a context has the kinds of test servers that commands know.
type protocolsKey struct{}

// withProtocols gives commands other kinds of test servers than all that there are.
func withProtocols(ctx context.Context, protocols protocol.Protocols) context.Context {
	return context.WithValue(ctx, protocolsKey{}, protocols)
}

// protocolsOf returns the kinds of test servers that commands know.
func protocolsOf(ctx context.Context) protocol.Protocols {
	if ctx != nil {
		if p, ok := ctx.Value(protocolsKey{}).(protocol.Protocols); ok {
			return p
		}
	}
	return all.Protocols()
}
