package lab_test

import (
	"bufio"
	"fmt"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"unbloat/testkit/labtest"
)

// The guest's clock, read without a system call, and the kernel's are one: neither is
// ever behind what the other has said, in any process. A reading takes 256 ns, so who waits
// for a time by reading the clock gets there.
func TestGuestClock(t *testing.T) {
	t.Parallel()
	if !labtest.Inside(t, labtest.Options{}) {
		return
	}
	var epoch unix.Timespec
	start := time.Now()
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &epoch); err != nil {
		t.Fatal(err)
	}
	byKernel := func() time.Duration {
		var ts unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
			t.Error(err)
		}
		return time.Duration(ts.Nano() - epoch.Nano())
	}
	const apart = 100 * time.Microsecond // start is a little before epoch
	for n, last := 0, time.Duration(0); n < 20_000; n++ {
		if now := time.Since(start); now < last || now > last+apart {
			t.Fatalf("reading %d: %v after %v", n, now, last)
		} else {
			last = now
		}
		if n%(1+n%150) == 0 { // more and fewer readings than are lent between system calls
			if now := byKernel(); now > last+apart || now < last-apart {
				t.Fatalf("reading %d: the kernel says %v after %v", n, now, last)
			}
		}
	}
	// What reads no clock takes no time: page faults, system calls, other processes.
	idle := byKernel()
	if err := exec.Command("true").Run(); err != nil {
		t.Fatal(err)
	}
	pages := make([]byte, 64<<20)
	for i := 0; i < len(pages); i += 4096 {
		pages[i] = 1
	}
	if took := byKernel() - idle; took > apart {
		t.Errorf("%v passed for a process and %d pages", took, len(pages)/4096)
	}
	const readings = 1_000_000
	before := byKernel()
	for range readings {
		_ = time.Since(start)
	}
	if took := byKernel() - before; took < readings*256 || took > readings*300 {
		t.Errorf("%d readings took %v, want 256 ns each", readings, took)
	}

	// Another process, handed a time, is never before it.
	other := exec.Command("sh", "-c", `while read -r line; do date +%s%N; done`)
	in, err := other.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := other.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for range 20 {
		before := time.Now().UnixNano()
		fmt.Fprintln(in)
		lines.Scan()
		there, err := strconv.ParseInt(lines.Text(), 10, 64)
		if after := time.Now().UnixNano(); err != nil || there < before || there > after {
			t.Fatalf("%v: another process read %d between %d and %d", err, there, before, after)
		}
	}
	in.Close()
	if err := other.Wait(); err != nil {
		t.Error(err)
	}
}
