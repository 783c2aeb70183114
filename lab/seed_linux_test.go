package lab_test

import (
	"testing"
	"time"

	"unbloat/lab"
	"unbloat/testkit/labtest"
	"unbloat/unit"
)

// All randomness in a guest comes from its seed: with the same seed the kernel
// has the same random numbers and the same time to the nanosecond, with another
// seed it has not.
func TestSameSeedSameGuest(t *testing.T) {
	t.Parallel()
	kernel := labtest.NeedKernel(t)
	s := labtest.Home()
	boot := func(seed uint64) string {
		r, _, err := lab.Boot(t.Context(), kernel, lab.Guest{
			Engine: kernel.Engine, Scenario: s, Case: s.Cases[0].Name, Node: lab.Host(1), Server: true, Programs: labtest.Programs(t), Dir: "/", Seed: seed,
			Command: []string{"sh", "-c", "cat /proc/sys/kernel/random/boot_id; ping -c 3 " + lab.ServerAddr + " && date +%s.%N"},
		}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if r.Commands[0].ExitCode != 0 {
			t.Fatalf("%s", r.Commands[0].Output)
		}
		return r.Commands[0].Output
	}
	first, again, other := boot(1), boot(1), boot(2)
	if first != again {
		t.Errorf("two guests of one seed differ:\n%s\n%s", first, again)
	}
	if first == other {
		t.Errorf("guests of two seeds do not differ:\n%s", first)
	}
}

// The same scenario gives the same figures, to the last bit, and other figures
// with another seed.
func TestSameSeedSameFigures(t *testing.T) {
	t.Parallel()
	labtest.NeedKernel(t)
	s := labtest.HomeAt(6*unit.MbitPerSecond, unit.MbitPerSecond)
	s.Test.Seconds, s.Test.Idle = 4*time.Second, time.Second
	run := func(seed uint64) (p95, down, up float64) {
		r, err := lab.Run(t.Context(), s, lab.Options{Engine: lab.Virtual, Programs: labtest.Programs(t), Seed: seed})
		if err != nil {
			t.Fatal(err)
		}
		if r.Seed != seed {
			t.Errorf("the result tells of seed %d, not %d", r.Seed, seed)
		}
		both := r.Cases[0].Test.Both
		return both.Latency.RTTMs.P95, both.GoodputDownBps, both.GoodputUpBps
	}
	p95, down, up := run(1)
	p95again, downAgain, upAgain := run(1)
	p95other, downOther, upOther := run(2)
	t.Logf("p95 %v ms, %v and %v bit/s; with another seed %v, %v, %v", p95, down, up, p95other, downOther, upOther)
	if p95 != p95again || down != downAgain || up != upAgain {
		t.Errorf("again: %v ms, %v and %v bit/s", p95again, downAgain, upAgain)
	}
	if p95 == p95other && down == downOther && up == upOther {
		t.Error("another seed measures the same")
	}
}
