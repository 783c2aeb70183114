package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"unbloat/testkit/await"
)

// identified returns the i-th record with its id.
func identified(t testing.TB, i int) Record {
	t.Helper()
	r, err := nthRecord(i, 200).Identified()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// In whatever order results arrive, deliveries fail, answers are lost and
// programs restart: everything that was put into the spool arrives, and is in
// the database once.
func TestSpoolLosesNothing(t *testing.T) {
	away := errors.New("away")
	base := t.TempDir()
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		dir := filepath.Join(base, strconv.Itoa(n))
		s, err := OpenSpool(dir, 1000, 1<<30)
		if err != nil {
			rt.Fatal(err)
		}
		kept, put := map[string]int{}, map[string]bool{}
		deliver := func(how string) {
			waiting, _ := s.Waiting()
			_, err := s.Deliver(rt.Context(), func(_ context.Context, some []Record) error {
				if how == "away" {
					return away
				}
				for _, r := range some {
					kept[r.ID] = 1 // by id: ON CONFLICT DO NOTHING
				}
				if how == "answer lost" {
					return away
				}
				return nil
			})
			if want := how != "well" && waiting > 0; (err != nil) != want || want && !errors.Is(err, away) {
				rt.Fatalf("%s: %v", how, err)
			}
		}
		for _, step := range rapid.SliceOfN(rapid.SampledFrom([]string{"put", "put", "put", "away", "answer lost", "well", "again"}), 1, 30).Draw(rt, "steps") {
			switch step {
			case "put":
				r := identified(t, rapid.IntRange(0, 20).Draw(rt, "result"))
				if err := s.Put(r); err != nil {
					rt.Fatal(err)
				}
				put[r.ID] = true
				if got, err := s.Get(r.ID[:32]); err != nil || got.ID != r.ID {
					rt.Fatalf("%v", err)
				}
			case "again":
				if s, err = OpenSpool(dir, 1000, 1<<30); err != nil {
					rt.Fatal(err)
				}
			default:
				deliver(step)
			}
		}
		deliver("well")
		if len(kept) != len(put) {
			rt.Fatalf("%d of %d arrived", len(kept), len(put))
		}
		if waiting, aside := s.Waiting(); waiting != 0 || aside != 0 {
			rt.Fatalf("%d wait, %d lie aside", waiting, aside)
		}
		if files, _ := os.ReadDir(dir); len(files) != 0 {
			rt.Fatalf("%d files are left", len(files))
		}
	})
}

// A directory that has reached its limit of files or bytes accepts no more. A
// result that the database refuses, or that is damaged on the disk, is set
// aside and does not block the others.
func TestSpoolBounds(t *testing.T) {
	dir := t.TempDir()
	s, err := OpenSpool(dir, 3, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 4 {
		if err := s.Put(identified(t, i)); (err == nil) != (i < 3) || err != nil && !errors.Is(err, ErrSpoolFull) {
			t.Errorf("result %d: %v", i, err)
		}
	}
	small, err := OpenSpool(t.TempDir(), 100, 500)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(small.Put(identified(t, 1)), small.Put(identified(t, 2))); !errors.Is(err, ErrSpoolFull) {
		t.Errorf("500 bytes took two results: %v", err)
	}
	bad, broken := identified(t, 1).ID, identified(t, 2).ID
	if err := os.WriteFile(s.file(broken), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	var got []string
	n, err := s.Deliver(t.Context(), func(_ context.Context, some []Record) error {
		if slices.ContainsFunc(some, func(r Record) bool { return r.ID == bad }) {
			return fmt.Errorf("too large: %w", ErrRefused)
		}
		for _, r := range some {
			got = append(got, r.ID)
		}
		return nil
	})
	if n != 1 || err != nil || len(got) != 1 || got[0] != identified(t, 0).ID {
		t.Errorf("%d delivered, %v: %v", n, err, got)
	}
	if waiting, aside := s.Waiting(); waiting != 0 || aside != 2 {
		t.Errorf("%d wait, %d lie aside", waiting, aside)
	}
	again, err := OpenSpool(dir, 3, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	if waiting, aside := again.Waiting(); waiting != 0 || aside != 2 {
		t.Errorf("after a restart %d wait, %d lie aside", waiting, aside)
	}
}

const spoolerEnv = "UNBLOAT_TEST_SPOOLER"

// TestSpoolerHelper puts results into the spool until it is killed, and prints
// the id of each when it is on the disk.
func TestSpoolerHelper(t *testing.T) {
	dir := os.Getenv(spoolerEnv)
	if dir == "" {
		t.Skip("SKIPPED: it only runs as a child of TestSpoolKilled")
	}
	s, err := OpenSpool(dir, 1<<20, 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; ; i++ {
		r, err := nthRecord(os.Getpid()*100_000+i, 5000).Identified()
		if err == nil {
			err = s.Put(r)
		}
		if err != nil {
			t.Fatal(err)
		}
		fmt.Println("KEPT", r.ID)
	}
}

// kill -9 at any time leaves every result that was put, intact, and nothing
// else.
func TestSpoolKilled(t *testing.T) {
	await.NotShort(t)
	dir := t.TempDir()
	var ids []string
	for round := range 8 {
		cmd := exec.Command(os.Args[0], "-test.run", "^TestSpoolerHelper$")
		cmd.Env = append(os.Environ(), spoolerEnv+"="+dir)
		var out strings.Builder
		cmd.Stdout = &out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(60+37*round) * time.Millisecond)
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		ids = append(ids, keptIDs(out.String())...)
	}
	s, err := OpenSpool(dir, 1<<20, 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]bool{}
	if _, err := s.Deliver(t.Context(), func(_ context.Context, some []Record) error {
		for _, r := range some {
			got[r.ID] = true
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		if !got[id] {
			t.Errorf("%.8s was on the disk, and is not delivered", id)
		}
	}
	if _, aside := s.Waiting(); aside != 0 {
		t.Errorf("%d are damaged", aside)
	}
	t.Logf("%d results were put before the kills, %d delivered", len(ids), len(got))
	if len(ids) == 0 {
		t.Error("nothing was ever put: the test proves nothing")
	}
}
