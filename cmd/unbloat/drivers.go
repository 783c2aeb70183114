package main

import (
	"context"

	"unbloat/internal/platform"
	"unbloat/internal/platform/all"
)

// driversKey is where a context has the drivers that commands use.
type driversKey struct{}

// withDrivers gives commands other drivers than all that there are.
func withDrivers(ctx context.Context, drivers platform.Drivers) context.Context {
	return context.WithValue(ctx, driversKey{}, drivers)
}

// driversOf returns the drivers that commands use.
func driversOf(ctx context.Context) platform.Drivers {
	if ctx != nil {
		if d, ok := ctx.Value(driversKey{}).(platform.Drivers); ok {
			return d
		}
	}
	return all.Drivers()
}
