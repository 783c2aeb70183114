//go:build !linux && !freebsd && !openbsd

package netio

// A LinkCounter reads the counters of interfaces and of their queues; only on Linux, FreeBSD and OpenBSD.
type LinkCounter struct{}

// OpenLinkCounter returns an error that wraps ErrNotSupported.
func OpenLinkCounter() (*LinkCounter, error) {
	return nil, unsupported("read the counters of interfaces and queues")
}

// Read does nothing here.
func (c *LinkCounter) Read([]string, []LinkCounts) error { return unsupported("read counters") }

// Close does nothing here.
func (c *LinkCounter) Close() error { return nil }
