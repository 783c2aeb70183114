package supervise

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func at(seconds float64) time.Time {
	return time.Unix(1000, 0).Add(time.Duration(seconds * float64(time.Second)))
}

// does expects an action at a time.
func does(t *testing.T, k *Supervisor, seconds float64, want Action) {
	t.Helper()
	if a, _ := k.Next(at(seconds)); a != want {
		t.Fatalf("at %v s it does %+v, want %+v", seconds, a, want)
	}
}

// waits expects nothing to do, and when it wants to be asked again.
func waits(t *testing.T, k *Supervisor, seconds, until float64) {
	t.Helper()
	a, wake := k.Next(at(seconds))
	if a != (Action{}) || !wake.Equal(at(until)) {
		t.Fatalf("at %v s it does %+v and wakes at %v s, want nothing until %v s", seconds, a, wake.Sub(at(0)).Seconds(), until)
	}
}

// started is a Supervisor that has put its WAN in place at 0 s.
func started(t *testing.T) *Supervisor {
	t.Helper()
	k := New(at(0), time.Minute, false, false)
	does(t, k, 0, Action{Look: true, Replan: true})
	k.Report(at(0), Done, true)
	waits(t, k, 0, 60)
	return k
}

// TestChanges: many changes at once are looked at once, soon; and then nothing is
// done until the next look.
func TestChanges(t *testing.T) {
	k := started(t)
	for i := range 40 {
		k.Changed(at(10 + float64(i)*0.02))
		if a, _ := k.Next(at(10 + float64(i)*0.02)); a.Look {
			k.Report(at(10+float64(i)*0.02), Done, false)
			if i != 10 && i != 21 && i != 32 {
				t.Errorf("looked after %d changes", i)
			}
		}
	}
	does(t, k, 10.9, Action{Look: true})
	k.Report(at(10.9), Done, false)
	waits(t, k, 10.9, 70.9)
	k.Replaced(at(20))
	waits(t, k, 20, 20.03)
	does(t, k, 20.03, Action{Look: true, Replan: true})
}

// TestFutile: when many changes are none of the WAN's, it is looked at less often.
func TestFutile(t *testing.T) {
	k := started(t)
	looks := 0
	for i := range 200 {
		now := 10 + float64(i)*0.1
		k.Changed(at(now))
		if a, _ := k.Next(at(now + 0.05)); a.Look {
			looks++
			k.Report(at(now+0.05), Done, false)
		}
	}
	if looks < 10 || looks > 20 {
		t.Errorf("%d looks in 20 s", looks)
	}
	k.Changed(at(60))
	does(t, k, 60.05, Action{Look: true})
}

// TestMissing: what is not there is looked for again, ever more rarely, and at once
// when something happens.
func TestMissing(t *testing.T) {
	k := New(at(0), time.Minute, false, false)
	now := 0.0
	for _, pause := range []float64{1, 2, 4, 8, 10, 10} {
		does(t, k, now, Action{Look: true, Replan: true})
		k.Report(at(now), Missing, false)
		if k.State() != Waiting {
			t.Fatal(k.State())
		}
		waits(t, k, now, now+pause)
		now += pause
	}
	does(t, k, now, Action{Look: true, Replan: true})
	k.Report(at(now), Missing, false)
	k.Changed(at(now + 1))
	does(t, k, now+1.03, Action{Look: true, Replan: true})
}

// TestContest: another's shaper is taken over twice; the third time it is left
// alone, until it is gone or somebody says so.
func TestContest(t *testing.T) {
	k := started(t)
	for i := range MostTakeovers {
		now := float64(i+1) * 5
		k.Changed(at(now))
		does(t, k, now+1, Action{Look: true})
		k.Report(at(now+1), Occupied, false)
		does(t, k, now+1, Action{Look: true, Take: true})
		k.Report(at(now+1), Done, true)
	}
	k.Changed(at(20))
	does(t, k, 21, Action{Look: true})
	k.Report(at(21), Occupied, false)
	if k.State() != Contested {
		t.Fatal(k.State())
	}
	k.Changed(at(22))
	waits(t, k, 22, 81)
	does(t, k, 81, Action{Look: true})
	k.Report(at(81), Occupied, false)
	waits(t, k, 81, 141)
	k.Resume(at(100))
	does(t, k, 100, Action{Look: true, Replan: true})
	k.Report(at(100), Occupied, false)
	does(t, k, 100, Action{Look: true, Replan: true, Take: true})
	k.Report(at(100), Done, true)
	if k.State() != InPlace {
		t.Error(k.State())
	}
}

// TestFailedTakeovers: who fails to take a WAN back is in a fight with nobody, so the
// supervisor goes on.
func TestFailedTakeovers(t *testing.T) {
	for _, failed := range []Result{Failed, Missing, Locked} {
		k := started(t)
		now := at(5)
		k.Changed(now)
		for tries := 0; tries < 3*MostTakeovers; {
			a, next := k.Next(now)
			switch {
			case a.Take:
				tries++
				k.Report(now, failed, false)
			case a.Look:
				k.Report(now, Occupied, false)
			case next.After(now):
				now = next
			default:
				t.Fatalf("%v: nothing to do at %v before %v", failed, now, next)
			}
			if k.State() == Contested {
				t.Fatalf("%v: contested after %d takeovers that failed", failed, tries)
			}
		}
	}
}

// TestForeign: a shaper that was there before ours is not taken over.
func TestForeign(t *testing.T) {
	k := New(at(0), time.Minute, false, false)
	does(t, k, 0, Action{Look: true, Replan: true})
	k.Report(at(0), Occupied, false)
	if k.State() != Foreign {
		t.Fatal(k.State())
	}
	waits(t, k, 0, 60)
}

// TestManyMends: what is broken again and again is mended less often.
func TestManyMends(t *testing.T) {
	k := started(t)
	now, mends := 1.0, 0
	for now < 61 {
		k.Changed(at(now))
		if a, _ := k.Next(at(now + 0.05)); a.Look {
			k.Report(at(now+0.05), Done, true)
			mends++
		}
		now += 0.5
	}
	if mends < manyMends || mends > manyMends+6 {
		t.Errorf("%d mends in a minute", mends)
	}
}

// TestLaw: whatever happens, a WAN that is held or suspended is left alone; a
// change is looked at within mostQuiet unless there is a reason to wait; another's
// shaper is taken over at most MostTakeovers times in the window; and there is
// always a time at which to look again.
func TestLaw(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := at(0)
		k := New(now, 10*time.Second, rapid.Bool().Draw(t, "owned"), rapid.Bool().Draw(t, "suspended"))
		var takeovers []time.Time
		owned := false
		for range rapid.IntRange(1, 200).Draw(t, "events") {
			now = now.Add(time.Duration(rapid.SampledFrom([]int{0, 1, 20, 100, 1000, 30_000}).Draw(t, "ms")) * time.Millisecond)
			switch rapid.IntRange(0, 9).Draw(t, "event") {
			case 0:
				k.Hold()
			case 1, 2:
				k.Release(now)
			case 3:
				k.Suspend()
			case 4:
				k.Resume(now)
				takeovers = nil
			case 5:
				k.Replaced(now)
			default:
				k.Changed(now)
			}
			a, wake := k.Next(now)
			quietNow := k.held || k.suspended
			switch {
			case quietNow && (a != Action{} || !wake.IsZero()):
				t.Fatalf("%s: %+v", k.State(), a)
			case quietNow:
			case !a.Look && (wake.IsZero() || !wake.After(now)):
				t.Fatalf("nothing to do, and it never wakes: %v", wake)
			case !a.Look && k.state == InPlace && !k.first.IsZero() && len(k.mends) < manyMends && k.futile < manyFutile && wake.Sub(now) > mostQuiet:
				t.Fatalf("a change waits %v", wake.Sub(now))
			case a.Look:
				r := rapid.SampledFrom([]Result{Done, Done, Missing, Occupied, Occupied, Locked, Failed}).Draw(t, "result")
				if a.Take {
					takeovers = append(takeovers, now)
					r = Done
				}
				if a.Take && !owned && !k.owned {
					t.Fatal("takes over what was never ours")
				}
				now = now.Add(time.Duration(rapid.SampledFrom([]int{0, 50, 5000, 120_000}).Draw(t, "took")) * time.Millisecond)
				k.Report(now, r, a.Take)
				if again, wake := k.Next(now); r != Occupied && (again.Look || wake.IsZero()) {
					t.Fatalf("after %v it looks again at once", r)
				}
				owned = owned || r == Done
			}
			recent := 0
			for _, x := range takeovers {
				if now.Sub(x) < ContestWindow {
					recent++
				}
			}
			if recent > MostTakeovers {
				t.Fatalf("%d takeovers in %v", recent, ContestWindow)
			}
		}
	})
}
