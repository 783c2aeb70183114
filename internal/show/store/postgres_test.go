//go:build linux

package store

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"unbloat/testkit/await"
	"unbloat/testkit/pgtest"
)

// Laws: PostgreSQL returns results unchanged; lists, exports and figures are
// byte for byte those of SQLite; import and export between the two lose
// nothing, including who may delete a result.
func TestPostgresAsSQLite(t *testing.T) {
	await.NotShort(t)
	server := pgtest.Start(t, "fsync=off")
	dir, n := "/dev/shm", 0 // a memory file system, so that syncs are fast
	if _, err := os.Stat(dir); err != nil {
		dir = os.TempDir()
	}
	dir, err := os.MkdirTemp(dir, "unbloat-store-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	db, other := server.Database("one"), server.Database("other")
	rapid.Check(t, func(rt *rapid.T) {
		n++
		for _, place := range []string{db, other} {
			withStore(t, place, func(s *Store) {
				if _, err := s.db.exec(rt.Context(), "TRUNCATE results"); err != nil {
					rt.Fatal(err)
				}
			})
		}
		file := filepath.Join(dir, fmt.Sprint(n))
		records := rapid.SliceOfN(rapid.Custom(drawRecord), 1, 8).Draw(rt, "records")
		for i := range records {
			records[i].Owner = OwnerOf(rapid.SampledFrom([]string{"", "a", "b"}).Draw(rt, "owner"))
			if rapid.Bool().Draw(rt, "odd") {
				records[i].Label += "\x00\\0\\\\"
			}
		}
		var exports [2]bytes.Buffer
		var lists [2][]Entry
		for i, place := range []string{file, db} {
			withStore(t, place, func(s *Store) {
				added, err := s.Add(rt.Context(), records)
				if err != nil || added == 0 {
					rt.Fatalf("%s: added %d: %v", place, added, err)
				}
				if again, err := s.Add(rt.Context(), records); err != nil || again != 0 {
					rt.Fatalf("%s: added %d again: %v", place, again, err)
				}
				for _, r := range records {
					want, _ := r.normal()
					if got, err := s.Get(rt.Context(), want.ID); err != nil || got.ID != want.ID || got.Label != want.Label {
						rt.Fatalf("%s: %v: %s", place, err, cmp.Diff(want, got))
					}
				}
				if _, err := s.Export(rt.Context(), &exports[i], nil); err != nil {
					rt.Fatal(err)
				}
				if lists[i], err = s.List(rt.Context(), Filter{}); err != nil {
					rt.Fatal(err)
				}
			})
		}
		if !bytes.Equal(exports[0].Bytes(), exports[1].Bytes()) || !cmp.Equal(lists[0], lists[1]) {
			rt.Fatalf("SQLite and PostgreSQL differ: %s", cmp.Diff(lists[0], lists[1]))
		}
		back := filepath.Join(dir, fmt.Sprint(n, "back"))
		for i, place := range []string{back, other} { // each from the other kind
			withStore(t, place, func(s *Store) {
				var again bytes.Buffer
				if _, _, err := s.Import(rt.Context(), bytes.NewReader(exports[1-i].Bytes())); err != nil {
					rt.Fatal(err)
				}
				if _, err := s.Export(rt.Context(), &again, nil); err != nil || !bytes.Equal(again.Bytes(), exports[0].Bytes()) {
					rt.Fatalf("%s: what was imported is not what is exported: %v", place, err)
				}
			})
		}
	})
}

// The pages of a list together are the list, with any filter, and even if many
// results have the same time.
func TestPages(t *testing.T) {
	server := pgtest.Start(t, "fsync=off")
	rng := rand.New(rand.NewPCG(7, 7))
	var records []Record
	for i := range 300 {
		r := aRecord(t)
		r.Time = r.Time.Add(time.Duration(rng.IntN(40)) * time.Millisecond)
		r.Label = []string{"a", "b"}[rng.IntN(2)]
		r.Tool = fmt.Sprint(i)
		records = append(records, r)
	}
	for _, place := range []string{filepath.Join(t.TempDir(), "x.db"), server.URL()} {
		withStore(t, place, func(s *Store) {
			if _, err := s.Add(t.Context(), records); err != nil {
				t.Fatal(err)
			}
			for _, f := range []Filter{{}, {Label: "a"}, {Kind: KindTest, Label: "b"}} {
				all, err := s.List(t.Context(), f)
				if err != nil || len(all) < 100 {
					t.Fatalf("%d, %v", len(all), err)
				}
				var pages []Entry
				for f.Limit = 7; ; f.After = pages[len(pages)-1].ID {
					page, err := s.List(t.Context(), f)
					if err != nil {
						t.Fatal(err)
					}
					if pages = append(pages, page...); len(page) < f.Limit {
						break
					}
				}
				if !cmp.Equal(all, pages) {
					t.Errorf("%s %+v: %d in pages, %d in the list", place, f, len(pages), len(all))
				}
			}
			if _, err := s.List(t.Context(), Filter{After: strings.Repeat("0", 64)}); !errors.Is(err, ErrNotFound) {
				t.Errorf("after a result that is not there: %v", err)
			}
		})
	}
}

// If several programs find an empty database at the same time, the tables are
// created once.
func TestPostgresMadeOnce(t *testing.T) {
	server := pgtest.Start(t, "fsync=off")
	var all sync.WaitGroup
	for i := range 12 {
		all.Go(func() {
			if _, err := Save(t.Context(), server.URL(), nthRecord(i, 100)); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	withStore(t, server.URL(), func(s *Store) {
		if n, err := s.one(t.Context(), "SELECT count(*) FROM results"); n != 12 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
	})
	foreign := server.Database("foreign")
	withStore(t, foreign, func(s *Store) {
		if _, err := s.db.exec(t.Context(), "UPDATE unbloat_layout SET version = ?", int64(99)); err != nil {
			t.Fatal(err)
		}
	})
	if _, err := Open(t.Context(), foreign); !errors.Is(err, ErrNewer) {
		t.Errorf("a newer layout: %v", err)
	}
	withTable := server.Database("table")
	s, err := attach(withTable)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.db.(*postgres).connect(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.db.exec(t.Context(), "DROP TABLE unbloat_layout"); err != nil {
		t.Fatal(err)
	}
	s.Close()
	if _, err := Open(t.Context(), withTable); !errors.Is(err, ErrForeign) {
		t.Errorf("tables of somebody else: %v", err)
	}
	server.Kill()
	if _, err := Open(t.Context(), strings.Replace(foreign, "postgres@", "postgres:secret@", 1)); !errors.Is(err, ErrAway) || strings.Contains(err.Error(), "secret") {
		t.Errorf("a database that is away: %v", err)
	}
}

// A result can be deleted by anybody who has its token, and by the owner of the
// store. Old ones expire, and trimming keeps the newest.
func TestDeletion(t *testing.T) {
	server := pgtest.Start(t, "fsync=off")
	for _, place := range []string{filepath.Join(t.TempDir(), "x.db"), server.URL()} {
		withStore(t, place, func(s *Store) {
			var records []Record
			for i := range 6 {
				r := nthRecord(i, 10)
				r.Owner = OwnerOf([]string{"mine", ""}[i%2])
				r, err := r.Identified()
				if err != nil {
					t.Fatal(err)
				}
				records = append(records, r)
			}
			if _, err := s.Add(t.Context(), records); err != nil {
				t.Fatal(err)
			}
			left := func(want int) {
				t.Helper()
				if list, err := s.List(t.Context(), Filter{}); err != nil || len(list) != want {
					t.Errorf("%s: %d are left, not %d (%v)", place, len(list), want, err)
				}
			}
			for _, c := range []struct{ id, token string }{{records[0].ID, "yours"}, {records[0].ID, ""}, {records[1].ID, ""}, {records[1].ID, "mine"}} {
				if err := s.Withdraw(t.Context(), c.id, c.token); !errors.Is(err, ErrNotOwner) {
					t.Errorf("%q: %v", c.token, err)
				}
			}
			left(6)
			if err := s.Withdraw(t.Context(), records[0].ID[:32], "mine"); err != nil {
				t.Error(err)
			}
			left(5)
			if err := s.Withdraw(t.Context(), records[0].ID, "mine"); !errors.Is(err, ErrNotFound) {
				t.Errorf("twice: %v", err)
			}
			if err := s.Deliver(t.Context(), records[:2]); err != nil { // by a server that did not get the answer to its delivery
				t.Error(err)
			}
			left(5)
			if err := s.Delete(t.Context(), records[1].ID); err != nil {
				t.Error(err)
			}
			left(4)
			if err := s.Deliver(t.Context(), records[:2]); err != nil {
				t.Error(err)
			}
			left(4)
			if n, err := s.Add(t.Context(), records[1:2]); n != 1 || err != nil { // an import restores it
				t.Errorf("%d added, %v", n, err)
			}
			if err := s.Delete(t.Context(), records[1].ID); err != nil {
				t.Error(err)
			}
			left(4)
			if n, err := s.Expire(t.Context(), records[3].Time); n != 1 || err != nil {
				t.Errorf("%d expired, %v", n, err)
			}
			left(3)
			if n, err := s.Trim(t.Context(), 2); n != 1 || err != nil {
				t.Errorf("%d trimmed, %v", n, err)
			}
			if n, err := s.Trim(t.Context(), 2); n != 0 || err != nil {
				t.Errorf("%d trimmed, %v", n, err)
			}
			left(2)
		})
	}
}
