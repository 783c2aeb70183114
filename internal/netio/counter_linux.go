package netio

import (
	"bytes"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
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

// WirelessTowards reports whether the interface towards an address is wireless.
func WirelessTowards(to netip.Addr) (Wireless, bool) {
	name, err := InterfaceTowards(to)
	if err != nil {
		return Wireless{}, false
	}
	b, err := os.ReadFile("/proc/net/wireless")
	if err != nil {
		return Wireless{}, false
	}
	return parseWireless(string(b), name)
}

// parseWireless reads /proc/net/wireless (proc_pid_net(5)): after two lines of
// heads, "wlan0: 0000   54.  -56.  -256 …": status, quality, level, noise.
func parseWireless(text, name string) (Wireless, bool) {
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 4 || f[0] != name+":" {
			continue
		}
		level, err := strconv.Atoi(strings.TrimSuffix(f[3], "."))
		if err != nil {
			return Wireless{}, false
		}
		return Wireless{Interface: name, Signal: level}, true
	}
	return Wireless{}, false
}
