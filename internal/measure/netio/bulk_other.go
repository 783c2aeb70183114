//go:build !linux

package netio

import (
	"net"

	"unbloat/unit"
)

// A Bulk is incompressible bytes.
type Bulk struct{ bytes []byte }

// NewBulk makes so many bytes.
func NewBulk(n unit.Size) *Bulk { return &Bulk{Incompressible(n)} }

// Write sends head, and then the first n bytes of the bulk. It returns how many
// of all those the connection has taken.
func (b *Bulk) Write(c *net.TCPConn, head []byte, n int) (int, error) { return b.copy(c, head, n) }
