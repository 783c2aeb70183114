//go:build !linux

package netio

import "fmt"

// A Capture hands over the headers of TCP segments; only on Linux.
type Capture struct{}

// OpenCapture returns an error that wraps ErrNotSupported.
func OpenCapture(_ *Clock, device string) (*Capture, error) {
	return nil, unsupported(fmt.Sprintf("watch the TCP segments on %s", device))
}

// Filter does nothing here.
func (c *Capture) Filter(mask, down, up uint32) error { return nil }

// Drain hands over nothing here.
func (c *Capture) Drain(func(Packet)) (missed bool, err error) { return false, nil }

// Dropped returns 0 here.
func (c *Capture) Dropped() uint64 { return 0 }

// Steps returns 0 here.
func (c *Capture) Steps() int { return 0 }

// Close does nothing here.
func (c *Capture) Close() error { return nil }
