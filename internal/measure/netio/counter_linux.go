package netio

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

// readCounters reads how many bytes an interface has received and sent.
func readCounters(name string) (rx, tx uint64, err error) {
	for _, v := range []struct {
		file string
		to   *uint64
	}{{"rx_bytes", &rx}, {"tx_bytes", &tx}} {
		b, err := os.ReadFile(filepath.Join("/sys/class/net", name, "statistics", v.file))
		if err == nil {
			*v.to, err = strconv.ParseUint(string(bytes.TrimSpace(b)), 10, 64)
		}
		if err != nil {
			return 0, 0, fmt.Errorf("read the counters of %s: %w", name, err)
		}
	}
	return rx, tx, nil
}
