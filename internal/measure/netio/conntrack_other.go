//go:build !linux

package netio

// Connections reads the kernel's connection tracking; only on Linux.
type Connections struct{}

// OpenConnections returns an error that wraps ErrNotSupported.
func OpenConnections() (*Connections, error) {
	return nil, unsupported("read the kernel's connections")
}

// Each does nothing here.
func (c *Connections) Each(func(Connection)) error {
	return unsupported("read the kernel's connections")
}

// Close does nothing here.
func (c *Connections) Close() error { return nil }
