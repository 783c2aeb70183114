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
