package daemon

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestLook: a daemon that is told to look does so at once, and only then; told that
// its interface came again, it makes the plan anew.
func TestLook(t *testing.T) {
	dir := inMemory(t)
	synctest.Test(t, func(t *testing.T) {
		x := newTown(t, "freebsd", dir, 1)
		x.start()
		defer x.stop()
		time.Sleep(5 * time.Second)
		looks := func() int { s, _ := x.only().snapshot(); return s.Looks }
		before := looks()
		time.Sleep(30 * time.Second)
		if n := looks(); n != before {
			t.Fatalf("nothing happened, and it looked %d times", n-before)
		}
		c := &client{d: x.d}
		for i, wan := range []string{"", x.wan, "igb1"} {
			made := x.only().plan
			if _, err := c.do(t.Context(), Request{Method: MethodLook, WAN: wan}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			if n := looks(); n != before+i+1 {
				t.Errorf("told of %q it looked %d times", wan, n-before-i)
			}
			if again := x.only().plan != made; again != (wan == x.wan) {
				t.Errorf("told of %q: the plan is made again: %t", wan, again)
			}
		}
	})
}
