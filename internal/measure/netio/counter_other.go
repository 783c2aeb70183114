//go:build !linux

package netio

func readCounters(string) (rx, tx uint64, err error) {
	return 0, 0, unsupported("read an interface's counters")
}
