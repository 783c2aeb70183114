//go:build !linux

package netio

import "net/netip"

func readCounters(string) (rx, tx uint64, err error) {
	return 0, 0, unsupported("read an interface's counters")
}

// WirelessTowards is not known on this system.
func WirelessTowards(netip.Addr) (Wireless, bool) { return Wireless{}, false }
