//go:build !linux

package netio

import "unbloat/unit"

// A RateSetter changes the rate of CAKE in place; only on Linux.
type RateSetter struct{}

// OpenRateSetter returns an error that wraps ErrNotSupported.
func OpenRateSetter() (*RateSetter, error) { return nil, unsupported("change the rate of CAKE") }

// Port returns 0 here.
func (r *RateSetter) Port() uint32 { return 0 }

// Set does nothing here.
func (r *RateSetter) Set(string, unit.Rate) error { return unsupported("change the rate of CAKE") }

// Close does nothing here.
func (r *RateSetter) Close() error { return nil }
