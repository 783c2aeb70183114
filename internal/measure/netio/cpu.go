package netio

import (
	"bytes"
	"fmt"
	"strconv"
)

// A CPUMeter measures the share of time for which the busiest processor of
// this machine works.
type CPUMeter struct{ before []cpuTime }

// cpuTime is one processor's time since boot, in ticks of any length.
type cpuTime struct{ busy, total uint64 }

// NewCPUMeter starts a measurement.
func NewCPUMeter() *CPUMeter {
	m := &CPUMeter{}
	m.before, _ = readCPU() // Busiest reports the error
	return m
}

// Busiest returns the busiest processor's share of work, 0–1, since the meter
// was made or last asked.
func (m *CPUMeter) Busiest() (float64, error) {
	after, err := readCPU()
	if err != nil {
		return 0, err
	}
	before := m.before
	m.before = after
	if len(before) != len(after) {
		return 0, fmt.Errorf("read the processors' load: %d processors became %d", len(before), len(after))
	}
	busiest := 0.0
	for i := range after {
		total := after[i].total - before[i].total
		busy := after[i].busy - before[i].busy
		if total > 0 && after[i].total > before[i].total && after[i].busy >= before[i].busy {
			busiest = max(busiest, float64(busy)/float64(total))
		}
	}
	return min(busiest, 1), nil
}

// parseStat reads the per-processor lines of Linux's /proc/stat (proc_stat(5)).
// Time that a hypervisor stole counts as busy: it was not available.
func parseStat(b []byte) ([]cpuTime, error) {
	var out []cpuTime
	for line := range bytes.Lines(b) {
		f := bytes.Fields(line)
		if len(f) < 5 || !bytes.HasPrefix(f[0], []byte("cpu")) || len(f[0]) == 3 {
			continue
		}
		var t cpuTime
		for i, w := range f[1:min(len(f), 9)] { // user nice system idle iowait irq softirq steal
			n, err := strconv.ParseUint(string(w), 10, 63)
			if err != nil {
				return nil, fmt.Errorf("parse %q: %w", f[0], err)
			}
			t.total += n
			if i != 3 && i != 4 {
				t.busy += n
			}
		}
		out = append(out, t)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("no line per processor")
	}
	return out, nil
}
