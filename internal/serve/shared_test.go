//go:build linux

package serve

import (
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"unbloat/internal/measure/verdict"
	"unbloat/internal/show/store"
	"unbloat/testkit/await"
	"unbloat/testkit/pgtest"
)

// nthVisit returns the n-th result of a visitor.
func nthVisit(n int) *verdict.Test {
	return Judge(cases()["good"], verdict.Meta{Time: time.Now().UTC().Format(time.RFC3339), Label: fmt.Sprint("visitor ", n), Server: "here"})
}

// While the database is away results are saved on the disk at once, and read
// from there. When it is back each is in it once, even if the server was
// restarted meanwhile. Results that may come back are not deleted.
func TestSharedWhileDatabaseIsAway(t *testing.T) {
	await.NotShort(t)
	db := pgtest.Start(t)
	k := Keeping{Place: db.URL(), Spool: filepath.Join(t.TempDir(), "waiting"), Tool: "v1"}
	begin := func() Kept {
		kept, err := OpenKept(t.Context(), k)
		if err != nil {
			t.Fatal(err)
		}
		return kept
	}
	kept := begin()
	first, err := kept.Save(t.Context(), nthVisit(0))
	if err != nil {
		t.Fatal(err)
	}
	if waiting, _ := kept.Waiting(); waiting != 0 {
		t.Errorf("%d results wait for a database that is there", waiting)
	}
	db.Kill()
	var tickets []Ticket
	for n := range 5 {
		began := time.Now()
		ticket, err := kept.Save(t.Context(), nthVisit(1+n))
		if err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > 2*inTime {
			t.Errorf("a visitor waited for %v", took)
		}
		tickets = append(tickets, ticket)
		if _, err := kept.Load(t.Context(), ticket.ID); err != nil {
			t.Errorf("a result that waits cannot be read: %v", err)
		}
	}
	if err := kept.Delete(t.Context(), tickets[0].ID, tickets[0].Token); !errors.Is(err, ErrAway) {
		t.Errorf("deleted while it waits: %v", err)
	}
	if _, err := kept.Load(t.Context(), first.ID); !errors.Is(err, ErrAway) {
		t.Errorf("a result of the database that is away: %v", err)
	}
	if err := kept.Close(); err != nil {
		t.Error(err)
	}
	kept = begin()
	if waiting, _ := kept.Waiting(); waiting != 5 {
		t.Errorf("after a restart %d results wait, not 5", waiting)
	}
	db.Restart()
	await.Until(t, 30*time.Second, "what waits to be delivered", func() bool {
		waiting, refused := kept.Waiting()
		return waiting == 0 && refused == 0
	})
	for _, ticket := range append(tickets, first) {
		if test, err := kept.Load(t.Context(), ticket.ID); err != nil || test.Server != "here" {
			t.Errorf("%s: %v", ticket.ID, err)
		}
	}
	if err := kept.Delete(t.Context(), tickets[0].ID, tickets[0].Token); err != nil {
		t.Error(err)
	}
	if _, err := kept.Load(t.Context(), tickets[0].ID); !errors.Is(err, ErrNotFound) {
		t.Errorf("after it was deleted: %v", err)
	}
	if err := kept.Close(); err != nil {
		t.Error(err)
	}
	s, err := store.Open(t.Context(), db.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if list, err := s.List(t.Context(), store.Filter{}); err != nil || len(list) != 5 {
		t.Errorf("%d results are in the database, %v", len(list), err)
	}
}

// Results older than the retention time are not shown, and are removed.
func TestRetention(t *testing.T) {
	db := pgtest.Start(t, "fsync=off")
	for _, place := range []string{db.URL(), filepath.Join(t.TempDir(), "x.db")} {
		old, err := OpenKept(t.Context(), Keeping{Place: place, Spool: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		ticket, err := old.Save(t.Context(), Judge(cases()["good"], verdict.Meta{Time: time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)}))
		if err != nil {
			t.Fatal(err)
		}
		if err := old.Close(); err != nil {
			t.Fatal(err)
		}
		kept, err := OpenKept(t.Context(), Keeping{Place: place, Spool: t.TempDir(), For: 30 * time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := kept.Load(t.Context(), ticket.ID); !errors.Is(err, ErrNotFound) {
			t.Errorf("%s: an old result is shown: %v", place, err)
		}
		if _, err := kept.Save(t.Context(), nthVisit(1)); err != nil {
			t.Fatal(err)
		}
		if err := kept.Close(); err != nil {
			t.Fatal(err)
		}
		s, err := store.Open(t.Context(), place)
		if err != nil {
			t.Fatal(err)
		}
		if list, err := s.List(t.Context(), store.Filter{}); err != nil || len(list) != 1 || list[0].Label != "visitor 1" {
			t.Errorf("%s: %d are left, %v", place, len(list), err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// While the database hangs, whoever reads a result is told in time that it can't
// be read now, and whoever brings one gets his ticket in time, beside any number
// of readers. That no old result can be removed keeps no new one waiting.
func TestSharedWhileDatabaseHangs(t *testing.T) {
	await.NotShort(t)
	const inTime, slack = 200 * time.Millisecond, 5 * time.Second
	db := pgtest.Start(t, "fsync=off")
	s, err := store.Open(t.Context(), db.URL())
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(t.Context(), db.URL())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(t.Context(), `CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'nothing is removed'; END $$;
		CREATE TRIGGER refuse BEFORE DELETE ON results EXECUTE FUNCTION refuse()`); err != nil {
		t.Fatal(err)
	}
	if err := conn.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	opened, err := openShared(Keeping{Place: db.URL(), Spool: t.TempDir(), For: time.Hour, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	opened.reader.within = time.Minute
	first, err := opened.Save(t.Context(), nthVisit(0))
	if err != nil {
		t.Fatal(err)
	}
	await.Until(t, 30*time.Second, "the first result to be read from the database", func() bool {
		waiting, _ := opened.Waiting()
		_, err := opened.Load(t.Context(), first.ID)
		return waiting == 0 && err == nil
	})
	opened.inTime, opened.reader.within = inTime, 2*inTime
	db.Freeze()
	began := time.Now()
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			if _, err := opened.Load(t.Context(), first.ID); !errors.Is(err, ErrAway) {
				t.Errorf("read while the database hangs: %v", err)
			}
		})
	}
	second, err := opened.Save(t.Context(), nthVisit(1))
	if took := time.Since(began); err != nil || took > inTime+slack {
		t.Errorf("a visitor waited for %v: %v", took, err)
	}
	all.Wait()
	if took := time.Since(began); took > 2*inTime+slack {
		t.Errorf("readers waited for %v", took)
	}
	opened.reader.within = time.Minute
	db.Thaw()
	await.Until(t, 30*time.Second, "the database to be used again", func() bool {
		_, err := opened.Load(t.Context(), second.ID)
		waiting, _ := opened.Waiting()
		return err == nil && waiting == 0 && !opened.away.Load()
	})
	if err := opened.Close(); err != nil {
		t.Error(err)
	}
}

// BenchmarkSharedSave measures how many results a second one server saves in a
// PostgreSQL on this machine, from many visitors at once, synced to disk at
// both.
func BenchmarkSharedSave(b *testing.B) {
	db := pgtest.Start(b)
	kept, err := OpenKept(b.Context(), Keeping{Place: db.URL(), Spool: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	defer kept.Close()
	const visitors, each = 50, 10
	var n atomic.Int64
	for b.Loop() {
		began := time.Now()
		var all sync.WaitGroup
		for range visitors {
			all.Go(func() {
				for range each {
					if _, err := kept.Save(b.Context(), nthVisit(int(n.Add(1)))); err != nil {
						b.Error(err)
					}
				}
			})
		}
		all.Wait()
		b.ReportMetric(visitors*each/time.Since(began).Seconds(), "results/s")
	}
	b.ReportMetric(0, "ns/op")
}
