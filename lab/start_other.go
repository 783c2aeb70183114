//go:build !linux

package lab

import (
	"context"
	"errors"
	"io"
)

// A Machine is a router that runs; only Linux has the lab beside it.
type Machine struct {
	Accelerator string
}

// Start says that there is no lab here.
func Start(context.Context, MachineOptions, io.Writer) (*Machine, error) {
	return nil, errors.ErrUnsupported
}

// Ended is closed when the router is gone; there is none.
func (m *Machine) Ended() <-chan struct{} { return nil }

// Console returns what the router wrote; there is none.
func (m *Machine) Console() string { return "" }

// Close ends the router; there is none.
func (m *Machine) Close() error { return nil }
