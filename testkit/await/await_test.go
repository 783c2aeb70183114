package await

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestTrue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		after := func(d time.Duration) func() bool { return func() bool { return time.Since(start) >= d } }
		if !True(0, after(0)) {
			t.Error("what is so already is not seen")
		}
		if !True(time.Minute, after(10*time.Second)) || time.Since(start) > 10*time.Second+mostPause {
			t.Errorf("what is so after 10 s is seen after %v", time.Since(start))
		}
		start = time.Now()
		if True(time.Second, after(time.Minute)) || time.Since(start) < time.Second || time.Since(start) > time.Second+2*mostPause {
			t.Errorf("waited %v, not a second", time.Since(start))
		}
	})
}

// failing is a test that records whether it failed.
type failing struct {
	testing.TB
	failed bool
}

func (f *failing) Helper()               {}
func (f *failing) Fatalf(string, ...any) { f.failed = true }
func (f *failing) Error(...any)          { f.failed = true }

func TestFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		early := func() bool { return time.Since(start) < time.Second }
		late := func() bool { return !early() }
		for _, c := range []struct {
			name string
			run  func(*failing)
			want bool
		}{
			{"until, in time", func(f *failing) { Until(f, 2*time.Second, "it", late) }, false},
			{"until, too late", func(f *failing) { Until(f, time.Second/2, "it", late) }, true},
			{"stays", func(f *failing) { Stays(f, time.Second/2, "it", early) }, false},
			{"stays too short", func(f *failing) { Stays(f, 2*time.Second, "it", early) }, true},
		} {
			start = time.Now()
			f := &failing{}
			if c.run(f); f.failed != c.want {
				t.Errorf("%s: failed %v, want %v", c.name, f.failed, c.want)
			}
		}
	})
}
