package await

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"syscall"
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

// Meanwhile begins to look at what other programs take of this machine. The function that
// it returns, which is for tests that go on for long, skips the test if that was too much
// for figures in real time, and says how much. The children of this process are no others,
// once they have ended.
func Meanwhile(t testing.TB) (quiet func()) {
	t.Helper()
	before, err := processors()
	if err != nil {
		t.Fatal(err)
	}
	ours := used(t)
	return func() {
		t.Helper()
		after, err := processors()
		if err != nil {
			t.Fatal(err)
		}
		seconds := float64(after.all-before.all) / ticksPerSecond
		if others := (float64(after.work-before.work)/ticksPerSecond - (used(t) - ours).Seconds()) / max(seconds, 1); others > mostBusy {
			t.Skipf("SKIPPED: it needs a quiet machine; other programs kept %.0f %% of this one's processors busy", 100*others)
		}
	}
}

// Costs holds what some work takes of processors, in this process and in children that have
// ended when it is done, to a promise. The promise is of a processor of the usual speed; one
// that is slower, or that others share for the moment, may take longer in proportion. What
// disturbs work only makes it dearer, so that one turn of three within the promise is enough.
// It is for a quiet machine.
func Costs(t testing.TB, promise time.Duration, work func()) {
	t.Helper()
	Quiet(t)
	costs(t, promise, work)
}

func costs(t testing.TB, promise time.Duration, work func()) {
	t.Helper()
	for turn := 1; ; turn++ {
		slow, before := slowness(), used(t)
		work()
		took := used(t) - before
		slow = max(1, (slow+slowness())/2)
		text := fmt.Sprintf("%v of a processor, at most %v where one is not slower than usual; this one takes %.2f times as long",
			took.Round(time.Millisecond), promise, slow)
		switch {
		case took.Seconds() <= promise.Seconds()*slow:
			t.Log(text)
			return
		case turn == 3:
			t.Error(text)
			return
		}
		t.Log(text + "; again")
	}
}

// usual is how long the sorting of slowness takes where the promises were measured.
const usual = 18 * time.Millisecond

// slowness is how many times as long as usual sorting some numbers takes.
func slowness() float64 {
	var took []time.Duration
	for range 5 {
		random := rand.New(rand.NewPCG(1, 2))
		v := make([]uint64, 200_000)
		for i := range v {
			v[i] = random.Uint64()
		}
		began := time.Now()
		slices.Sort(v)
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	return took[len(took)/2].Seconds() / usual.Seconds()
}

// used is the time of processors that this process and its children that have ended have
// taken.
func used(t testing.TB) time.Duration {
	t.Helper()
	var all time.Duration
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var u syscall.Rusage
		if err := syscall.Getrusage(who, &u); err != nil {
			t.Fatal(err)
		}
		all += time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	return all
}

// ticksPerSecond is USER_HZ, in which proc_stat(5) counts on every processor of Linux that
// Go knows.
const ticksPerSecond = 100

// ticks are what all processors together have done since the system started. Work is what
// processes had of it.
type ticks struct{ idle, work, all uint64 }

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
	return ticks{idle: idle + iowait, work: user + nice + system, all: user + nice + system + idle + iowait + irq + softirq + steal}, nil
}
