//go:build !linux

package netio

import "net/netip"

// WatchRadio is not known on this system.
func WatchRadio(*Clock, netip.Addr) (*RadioWatch, error) {
	return nil, unsupported("watch a wireless interface")
}
