package await

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// mostBusy is the share of all processors that may be at work before a test whose
// figures are real time: half of one of two, so that a process that wakes finds one idle.
const mostBusy = 0.25

// Quiet skips a test whose figures are taken in real time where other programs keep
// this machine busy, and says how busy it was. It looks for half a second.
func Quiet(t testing.TB) {
	t.Helper()
	before, err := processors()
	if err != nil {
		t.Skipf("SKIPPED: it needs a quiet machine, and how busy this one is can't be read: %v", err)
	}
	time.Sleep(500 * time.Millisecond)
	after, err := processors()
	if err != nil {
		t.Fatal(err)
	}
	if busy := after.busySince(before); busy > mostBusy {
		t.Skipf("SKIPPED: it needs a quiet machine; other programs keep %.0f %% of this one's processors busy", 100*busy)
	}
}

// ticks are what all processors together have done since the system started.
type ticks struct{ idle, all uint64 }

// busySince returns the share of the time since an earlier reading that was not idle, 0–1.
func (k ticks) busySince(was ticks) float64 {
	all := k.all - was.all
	if all == 0 {
		return 0
	}
	return 1 - float64(k.idle-was.idle)/float64(all)
}

// processors reads the first line of /proc/stat (proc_stat(5)).
func processors() (ticks, error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return ticks{}, err
	}
	line, _, _ := strings.Cut(string(text), "\n")
	var user, nice, system, idle, iowait, irq, softirq, steal uint64
	if _, err := fmt.Sscanf(line, "cpu %d %d %d %d %d %d %d %d", &user, &nice, &system, &idle, &iowait, &irq, &softirq, &steal); err != nil {
		return ticks{}, fmt.Errorf("read /proc/stat: %w", err)
	}
	return ticks{idle: idle + iowait, all: user + nice + system + idle + iowait + irq + softirq + steal}, nil
}
