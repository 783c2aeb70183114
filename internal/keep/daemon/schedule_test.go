package daemon

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"unbloat/internal/keep/config"
)

// entries reads a schedule of two lines.
func entries(t *testing.T, text string) (one, other config.WAN, all []config.Entry) {
	t.Helper()
	c, err := config.Parse("F", []byte(oneWAN+"router = \"ssh://192.0.2.2\"\n"+oneWAN+"router = \"ssh://192.0.2.1\"\n"+text))
	if err != nil {
		t.Fatal(err)
	}
	return c.WANs[0], c.WANs[1], c.Schedule
}

// TestScheduleTakes: an entry holds for its line alone, from its time until its end, past
// midnight and on its days; what is different is said once. What was put in its place holds until
// the schedule says something else.
func TestScheduleTakes(t *testing.T) {
	one, other, all := entries(t, `
[[schedule]]
do = "rates"
wan = "wan"
router = "ssh://192.0.2.2"
from = "08:00"
to = "17:00"
down = "30 Mbit/s"
days = ["mon"]

[[schedule]]
do = "first"
wan = "wan"
router = "ssh://192.0.2.2"
machine = "192.168.1.7"
from = "16:00"
to = "01:00"

[[schedule]]
do = "last"
wan = "wan"
router = "ssh://192.0.2.1"
machine = "192.168.1.20"
from = "10:00"
to = "11:00"

[[schedule]]
do = "test"
wan = "wan"
router = "ssh://192.0.2.2"
at = "12:00"
`)
	const over, two = "no entry of the schedule applies any more", "2 entries of the schedule apply"
	rates, first, last := all[0].Says(), all[1].Says(), all[2].Says()
	var here, there schedule
	for _, x := range []struct {
		day         int // of a month that begins on a Sunday
		at          string
		here, there string
		holds       int
	}{
		{2, "07:59", "", "", 0},
		{2, "08:00", rates, "", 1},
		{2, "08:01", "", "", 1},
		{2, "10:00", "", last, 1},
		{2, "12:00", "", over, 1},
		{2, "16:00", two, "", 2},
		{2, "17:00", first, "", 1},
		{3, "00:59", "", "", 1},
		{3, "01:00", over, "", 0},
		{3, "08:00", "", "", 0},
		{3, "10:30", "", last, 0},
		{1, "23:00", first, over, 1}, // the clock was set
	} {
		now, err := time.ParseInLocation("2006-01-2 15:04", fmt.Sprintf("2026-11-%d %s", x.day, x.at), time.Local)
		if err != nil {
			t.Fatal(err)
		}
		if says := here.take(one, all, now); says != x.here || len(here.holds) != x.holds {
			t.Errorf("%d %s: it says %q, and %d hold", x.day, x.at, says, len(here.holds))
		}
		if says := there.take(other, all, now); says != x.there {
			t.Errorf("%d %s: of the other line it says %q", x.day, x.at, says)
		}
	}
	night := time.Date(2026, 11, 3, 5, 0, 0, 0, time.Local)
	here.take(one, all, night)
	here.hold(all[:1])
	if says := here.take(one, all, night); says != over || len(here.holds) != 0 {
		t.Errorf("after what was tried out it says %q, and %d hold", says, len(here.holds))
	}
	if len(all) != 4 || !config.SameEntries(all[1:2], entriesOf(one, all, night.Add(-5*time.Hour))) {
		t.Errorf("the schedule was changed: %+v", all)
	}
}

// TestScheduleAlone: a loop that is stuck is asked once, and again when it has answered, or has
// panicked. Another's is asked meanwhile.
func TestScheduleAlone(t *testing.T) {
	var stuck, other schedule
	var wait sync.WaitGroup
	begun, end := make(chan struct{}), make(chan struct{})
	asked := 0
	wait.Go(func() { stuck.alone(func() { close(begun); <-end }) })
	<-begun
	stuck.alone(func() { t.Error("a stuck loop is asked again") })
	other.alone(func() { asked++ })
	close(end)
	wait.Wait()
	func() {
		defer func() { _ = recover() }()
		stuck.alone(func() { panic("in the loop") })
	}()
	stuck.alone(func() { asked++ })
	if asked != 2 {
		t.Errorf("asked %d times", asked)
	}
}

// TestAppointments: what is due is met once a day, though the clock is set back, and what was
// missed is not made up for. What has to wait is asked again until it need not.
func TestAppointments(t *testing.T) {
	_, _, all := entries(t, `
[[schedule]]
do = "test"
wan = "wan"
router = "ssh://192.0.2.2"
at = "03:30"

[[schedule]]
do = "tune"
wan = "wan"
router = "ssh://192.0.2.2"
at = "03:30"
days = ["mon"]
`)
	at := func(day, hour, minute int) time.Time { return time.Date(2026, 11, day, hour, minute, 0, 0, time.Local) }
	due := appointments{last: at(2, 3, 29), done: map[config.Entry]string{}}
	for i, x := range []struct {
		now  time.Time
		busy config.Doing // that has to wait
		want []string
	}{
		{at(2, 3, 29), "", nil},
		{at(2, 3, 30), config.DoTune, []string{"test", "tune waits"}}, // a Monday
		{at(2, 3, 31), config.DoTune, []string{"tune waits"}},
		{at(2, 3, 32), "", []string{"tune"}},
		{at(2, 3, 33), "", nil},
		{at(2, 3, 28), "", nil}, // set back
		{at(2, 3, 31), "", nil},
		{at(3, 3, 25), "", nil},
		{at(3, 3, 31), "", []string{"test"}},
		{at(4, 5, 0), "", nil}, // set forward
		{at(5, 3, 29), "", nil},
		{at(5, 3, 30), config.DoTest, []string{"test waits"}},
		{at(5, 3, 31), config.DoTest, []string{"test waits"}},
		{at(6, 3, 29), config.DoTest, []string{"test waits"}},
		{at(6, 3, 30), "", []string{"test", "test"}},
	} {
		var did []string
		due.look(all, x.now, func(a appointment) bool {
			did = append(did, string(a.Do))
			if a.Do == x.busy {
				did[len(did)-1] += " waits"
			}
			if x.now.Day() == 2 && !a.until.Equal(at(2, 3, 30).Add(mostPostponed)) {
				t.Errorf("%d: it waits until %s", i, a.until)
			}
			return a.Do != x.busy
		})
		if !slices.Equal(did, x.want) {
			t.Errorf("%d: at %s it did %q, want %q", i, x.now.Format("2 15:04"), did, x.want)
		}
	}
}
