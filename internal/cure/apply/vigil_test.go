package apply_test

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"unbloat/internal/cure/apply"
	"unbloat/internal/cure/lang/tc"
	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform"
	"unbloat/internal/cure/platform/linux"
	"unbloat/testkit/linuxfake"
	"unbloat/unit"
)

// An eyewitness is Linux's backend on a router whose connections move as the test says.
type eyewitness struct {
	*linux.Backend
	shaped  func() bool
	moves   func(iface string, since time.Duration) (out, in bool) // each 100 ms; since the change, negative before
	answers func(a netip.Addr, shaped bool) bool
	flows   map[string][]platform.Flow
	last    time.Time
	change  time.Time // zero: not seen yet
	asked   int
}

func (w *eyewitness) Flows(context.Context) (all []platform.Flow, err error) {
	if w.change.IsZero() && w.shaped() {
		w.change = time.Now()
	}
	for ; w.last.Add(100 * time.Millisecond).Before(time.Now()); w.last = w.last.Add(100 * time.Millisecond) {
		since := time.Duration(-1)
		if !w.change.IsZero() {
			since = w.last.Sub(w.change)
		}
		for iface, flows := range w.flows {
			for i := range flows {
				out, in := w.moves(iface, since)
				if out {
					flows[i].Out++
				}
				if in {
					flows[i].In++
				}
			}
		}
	}
	for _, flows := range w.flows {
		all = append(all, flows...)
	}
	return slices.Clone(all), nil
}

func (w *eyewitness) Answers(_ context.Context, _ string, addresses []netip.Addr) []netip.Addr {
	w.asked++
	return slices.DeleteFunc(slices.Clone(addresses), func(a netip.Addr) bool { return !w.answers(a, w.shaped()) })
}

// TestConnectionsGoOn: a change after which nothing comes through an interface any more is
// undone, and nothing else is: not a quiet line's, not one's whose connections end while
// their far ends answer, and not one's that could not be judged before.
func TestConnectionsGoOn(t *testing.T) {
	yes := func(string, time.Duration) (bool, bool) { return true, true }
	answers := func(netip.Addr, bool) bool { return true }
	dead := func(dev string, after time.Duration) func(string, time.Duration) (bool, bool) {
		return func(iface string, since time.Duration) (bool, bool) { return true, since < after || iface != dev }
	}
	mute := func(_ netip.Addr, shaped bool) bool { return !shaped }
	base := "" // in memory if possible: every step of a journal is synced to disk
	if _, err := os.Stat("/dev/shm"); err == nil {
		base = "/dev/shm"
	}
	for name, x := range map[string]struct {
		interfaces []string
		moves      func(iface string, since time.Duration) (out, in bool)
		answers    func(a netip.Addr, shaped bool) bool
		undone     string        // the interface that is named; "": it is kept
		wait, most time.Duration // that it takes at least, and at most
	}{
		"all go on":                {[]string{"wan", "wg0"}, yes, answers, "", 4 * time.Second, 6 * time.Second},
		"no connection":            {nil, yes, answers, "", 0, time.Second},
		"none moves":               {[]string{"wan"}, func(string, time.Duration) (bool, bool) { return false, false }, answers, "", 2 * time.Second, 3 * time.Second},
		"none moves both ways":     {[]string{"wan"}, func(string, time.Duration) (bool, bool) { return true, false }, answers, "", 2 * time.Second, 3 * time.Second},
		"one interface stops":      {[]string{"wan", "wg0"}, dead("wg0", 0), mute, "wg0", 7 * time.Second, 9 * time.Second},
		"what was under way comes": {[]string{"wan"}, dead("wan", 1500*time.Millisecond), mute, "wan", 8 * time.Second, 10 * time.Second},
		"they end":                 {[]string{"wan"}, dead("wan", 0), answers, "", 7 * time.Second, 9 * time.Second},
		"nobody had answered":      {[]string{"wan"}, dead("wan", 0), func(netip.Addr, bool) bool { return false }, "", 2 * time.Second, 3 * time.Second},
		"one alone had answered":   {[]string{"wan"}, dead("wan", 0), func(a netip.Addr, shaped bool) bool { return !shaped && a.As4()[3] == 1 }, "", 2 * time.Second, 3 * time.Second},
		"one of two still answers": {[]string{"wan"}, dead("wan", 0), func(a netip.Addr, shaped bool) bool { return !shaped || a.As4()[3] == 2 }, "", 7 * time.Second, 9 * time.Second},
		"probes fail, and yet":     {[]string{"wan"}, yes, mute, "", 4 * time.Second, 6 * time.Second},
	} {
		dir, err := os.MkdirTemp(base, "unbloat-vigil-")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		synctest.Test(t, func(t *testing.T) {
			k := linuxfake.New()
			before, begun := k.Text(), time.Now()
			w := &eyewitness{Backend: &linux.Backend{Runner: k}, last: time.Now(), moves: x.moves, answers: x.answers, flows: map[string][]platform.Flow{},
				shaped: func() bool { return strings.Contains(k.Text(), tc.OurRoot) }}
			for _, i := range x.interfaces {
				for n := range byte(3) {
					w.flows[i] = append(w.flows[i], platform.Flow{Interface: i, Key: string('a' + n), Far: netip.AddrFrom4([4]byte{192, 0, 2, n + 1})})
				}
			}
			e := &apply.Engine{Backend: w, Runner: k, Dir: dir, Watchdog: silent{}, Uptime: func() time.Duration { return time.Since(begun) }}
			p, err := plan.Make(plan.Line{Down: 50 * unit.MbitPerSecond, Up: 10 * unit.MbitPerSecond}, linux.Language().Assume("wan", ""), plan.Preferences{Classes: plan.ClassPreferences{Use: plan.ClassesOff}})
			if err != nil {
				t.Fatal(err)
			}
			tr, err := e.Begin(t.Context(), p, apply.Options{Confirm: time.Second})
			took := time.Since(begun)
			if took < x.wait || took > x.most {
				t.Errorf("%s: it took %v", name, took)
			}
			if x.undone != "" {
				var stopped *apply.StoppedError
				if !errors.As(err, &stopped) || stopped.Interface != x.undone || len(stopped.Silent) != 2 || k.Text() != before {
					t.Errorf("%s: %v, and it is\n%s", name, err, k.Text())
				}
				if j, err := e.Pending("wan"); err != nil || j != nil {
					t.Errorf("%s: something is left to be undone: %v", name, err)
				}
				return
			}
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			defer tr.Close()
			if !w.shaped() {
				t.Errorf("%s: it is\n%s", name, k.Text())
			}
			if left := tr.Left(); left <= 0 || left > time.Second {
				t.Errorf("%s: %v are left to confirm", name, left)
			}
			// Rates that are changed in the transaction take no time, nor does what was lost
			// and is put back: connections went on with it before.
			asked, at := w.asked, time.Now()
			other := p.WithRates(20*unit.MbitPerSecond, 5*unit.MbitPerSecond)
			if err := errors.Join(tr.Retune(t.Context(), other), tr.Commit()); err != nil {
				t.Fatalf("%s: other rates: %v", name, err)
			}
			tr.Close()
			if _, said, err := k.Run(t.Context(), strings.Fields("tc qdisc del dev wan root"), nil); err != nil {
				t.Fatalf("%s: %s", name, said)
			}
			if m, err := e.Mend(t.Context(), other); err != nil || len(m.Ran) == 0 || w.asked != asked || time.Since(at) > time.Second {
				t.Errorf("%s: put back with %d commands after %v: %v", name, len(m.Ran), time.Since(at), err)
			}
		})
	}
}
