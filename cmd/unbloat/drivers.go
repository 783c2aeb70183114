package main

import (
	"context"

	"unbloat/internal/cure/platform"
	"unbloat/internal/cure/platform/all"
)

// driversKey is the context's key for the drivers.
type driversKey struct{}

// withDrivers replaces the drivers that commands use.
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
