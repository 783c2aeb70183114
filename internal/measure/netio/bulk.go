package netio

import "net"

// Bytes returns all of the bulk, which is not to be changed.
func (b *Bulk) Bytes() []byte { return b.bytes }

// Begins says whether p is the bulk's own bytes from its first one on.
func (b *Bulk) Begins(p []byte) bool {
	return len(p) > 0 && len(p) <= len(b.bytes) && &p[0] == &b.bytes[0]
}

// copy sends head and bytes by one system call, which copies them.
func (b *Bulk) copy(c *net.TCPConn, head []byte, n int) (int, error) {
	parts := net.Buffers{head, b.bytes[:n]}
	sent, err := parts.WriteTo(c)
	return int(sent), err
}
