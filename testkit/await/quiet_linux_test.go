package await

import (
	"testing"
	"time"
)

// What this process takes itself is not what others take.
func TestUsed(t *testing.T) {
	before, began := used(t), time.Now()
	for n := 0; time.Since(began) < 50*time.Millisecond; n++ {
	}
	if took := used(t) - before; took <= 0 || took > 10*time.Second {
		t.Errorf("it has taken %v", took)
	}
	var quiet bool
	t.Run("own work", func(t *testing.T) {
		meanwhile := Meanwhile(t)
		defer func() { quiet = !t.Skipped() }()
		meanwhile()
	})
	if !quiet {
		t.Error("no time is too much")
	}
}

// Work that costs more than was promised fails in its third turn, on a slow processor too.
func TestCosts(t *testing.T) {
	turns := 0
	burn := func() {
		turns++
		for began := used(t); used(t)-began < 20*time.Millisecond; {
		}
	}
	if costs(t, time.Hour, burn); turns != 1 {
		t.Errorf("it took %d turns", turns)
	}
	f := &failing{TB: t}
	if costs(f, time.Microsecond, burn); !f.failed || turns != 4 {
		t.Errorf("failed %v, after %d turns in all", f.failed, turns)
	}
}
