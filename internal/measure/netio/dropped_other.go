//go:build !linux

package netio

// Dropped returns how many datagrams have come and found no room in the queue
// here; what the system drops before, it does not tell.
func (d *Datagram) Dropped() int { return 0 }

// Dropped returns 0: this system does not tell.
func (s *PacketServer) Dropped() int { return 0 }
