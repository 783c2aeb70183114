package daemon

import (
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"unbloat/internal/keep/config"
	"unbloat/internal/keep/supervise"
	"unbloat/unit"
)

// TestChangeOfSchedule: what does not hold now is kept at once; what does is in force,
// and is undone by itself unless somebody keeps it. The file's comments stay, and rates
// of the schedule never become the line's usual ones.
func TestChangeOfSchedule(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		base := time.Date(2026, 11, 23, 12, 0, 0, 0, time.Local) // a Monday
		x := linuxTown(t, dir, "# our home\n"+oneWAN, func(o *Options) {
			o.Now = func() time.Time { return base.Add(time.Since(start)).Round(0) }
		})
		defer func() { x.stop() }()
		x.d.loops.Go(func() { x.d.keepSchedule(x.d.running) })
		c := x.d.Page()
		set := func(of ...config.EntryTable) (Schedule, error) {
			t.Helper()
			of = append([]config.EntryTable{}, of...)
			return ask[Schedule](t, c, MethodSchedule, ScheduleParams{Entries: &of})
		}
		text := func() string {
			b, err := os.ReadFile(x.file())
			if err != nil {
				t.Fatal(err)
			}
			return string(b)
		}
		before := text()
		shaped := func(down unit.Rate) {
			t.Helper()
			time.Sleep(time.Minute)
			synctest.Wait()
			w := x.only()
			if w.plan == nil || w.plan.Basis.Line.Down != down || w.supervisor.State() != supervise.InPlace {
				t.Errorf("%s, %+v", w.supervisor.State(), w.plan)
			}
		}
		night := config.EntryTable{Do: "test", At: "03:30"}
		got, err := set(night)
		if err != nil || got.Change != nil || len(got.Entries) != 1 || got.Entries[0].WAN != "wan" || text() != before+"\n[[schedule]]\ndo = \"test\"\nwan = \"wan\"\nat = \"03:30\"\n" {
			t.Fatalf("%v %+v\n%s", err, got, text())
		}
		if _, err := set(night); err == nil {
			t.Error("the same is no change")
		} else {
			refused(t, err, CodeSame)
		}
		kept := text()
		noon := config.EntryTable{Do: "rates", From: "11:00", To: "14:00", Down: "30 Mbit/s"}
		if got, err = set(night, noon); err != nil || got.Change == nil || got.Change.Kind != ChangePlan || len(got.Entries) != 2 || text() != kept {
			t.Fatalf("%v %+v\n%s", err, got, text())
		}
		if now, err := ask[Schedule](t, c, MethodSchedule, nil); err != nil || len(now.Entries) != 2 {
			t.Errorf("while it waits: %+v %v", now, err)
		}
		if _, err := set(); err == nil {
			t.Error("a second change while the first waits")
		} else {
			refused(t, err, CodeBusy)
		}
		shaped(50 * unit.MbitPerSecond) // nobody has kept it
		if now, err := ask[Schedule](t, c, MethodSchedule, nil); err != nil || len(now.Entries) != 1 || text() != kept {
			t.Errorf("undone: %+v %v\n%s", now, err, text())
		}
		if got, err = set(night, noon); err != nil || got.Change == nil {
			t.Fatalf("%v %+v", err, got)
		}
		if _, err := ask[Applied](t, c, MethodConfirm, IDParams{Change: got.Change.ID}); err != nil {
			t.Fatal(err)
		}
		shaped(30 * unit.MbitPerSecond)
		if !strings.HasPrefix(text(), kept) || !strings.Contains(text(), "down = \"30 Mbit/s\"\n") || !strings.Contains(text(), "down = \"50 Mbit/s\"\nup = \"10 Mbit/s\"\n") {
			t.Errorf("the file is\n%s", text())
		}
		base = base.Add(3 * time.Hour) // 15:00
		shaped(50 * unit.MbitPerSecond)
		if got, err = set(noon); err != nil || got.Change != nil || strings.Contains(text(), "03:30") {
			t.Errorf("without the test: %+v %v\n%s", got, err, text())
		}
		for _, bad := range []config.EntryTable{{Do: "test"}, {Do: "test", At: "03:30", WAN: "wan9"}, {Do: "first", From: "08:00", To: "09:00", Machine: "x\n[ui]"}} {
			_, err := set(bad)
			if err == nil {
				t.Errorf("%+v is taken", bad)
				continue
			}
			refused(t, err, CodeUsage)
		}
		// A machine that goes first now, taken back by a person.
		office := config.EntryTable{Do: "first", From: "08:00", To: "17:00", Machine: "192.168.1.7"}
		if got, err = set(noon, office); err != nil || got.Change == nil || x.only().plan == nil {
			t.Fatalf("%v %+v", err, got)
		}
		if _, err := ask[Reverted](t, c, MethodRevert, IDParams{Change: got.Change.ID}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := len(x.only().wanted().Rules); n != 0 || strings.Contains(text(), "192.168.1.7") {
			t.Errorf("%d rules\n%s", n, text())
		}
		var told []string
		for _, e := range x.d.events.newest(func(Happening) bool { return true }) {
			told = append(told, string(e.Kind)+" "+string(e.Undone)+" "+e.By+" "+strings.Join(e.What, "; "))
		}
		all := strings.Join(told, "\n")
		for _, want := range []string{
			"confirmed  page + wan: schedule: tests the line, every day at 03:30",
			"timeout   + wan: schedule: carries 30 Mbit/s down, every day from 11:00 to 14:00",
			"applied yes page + wan: schedule: carries 30 Mbit/s down",
			"confirmed  page + wan: schedule: carries 30 Mbit/s down",
			"confirmed  page - wan: schedule: tests the line",
			"reverted  page + wan: schedule: 192.168.1.7 goes first",
		} {
			if !strings.Contains(all, want) {
				t.Errorf("no event %q in\n%s", want, all)
			}
		}
	})
}
