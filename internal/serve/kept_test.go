package serve

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/ncruces/go-sqlite3"

	"unbloat/internal/measure/verdict"
	"unbloat/internal/show/store"
)

// submit runs a test as the server sees it: a session, and its result.
func submit(t *testing.T, url string, sub *Submission) Saved {
	t.Helper()
	_, hello := open(t, url)
	text, err := json.Marshal(sub)
	if err != nil {
		t.Fatal(err)
	}
	status, answer, _ := request(t, "POST", url+"/api/results?session="+hello.Session, bytes.NewReader(text), "Content-Type", "application/json")
	var saved Saved
	if err := json.Unmarshal([]byte(answer), &saved); err != nil || status != http.StatusOK {
		t.Fatalf("%d %.200s: %v", status, answer, err)
	}
	return saved
}

// A result that is kept has its ticket, though the old ones can't be removed.
func TestKeptThoughNoneIsRemoved(t *testing.T) {
	file := filepath.Join(t.TempDir(), "page.db")
	k, err := OpenKept(t.Context(), Keeping{Place: file, Most: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	db, err := sqlite3.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Exec(`CREATE TRIGGER refuse BEFORE DELETE ON results BEGIN SELECT RAISE(ABORT, 'nothing is removed'); END`); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	for n := range 2 {
		ticket, err := k.Save(t.Context(), Judge(cases()["good"], verdict.Meta{Time: time.Now().UTC().Format(time.RFC3339), Label: fmt.Sprint(n)}))
		if err != nil {
			t.Fatalf("result %d: %v", n, err)
		}
		if _, err := k.Load(t.Context(), ticket.ID); err != nil {
			t.Error(err)
		}
	}
}

// After a restart of the server a result has the same address and the same
// bytes. Only the newest are kept. The beginning of an address is not enough to
// get a result.
func TestKept(t *testing.T) {
	file := filepath.Join(t.TempDir(), "page.db")
	fetch := func(t *testing.T, url, id string) (int, string) {
		status, text, _ := request(t, "GET", url+"/api/results/"+id, nil)
		return status, text
	}
	now := time.Date(2026, 11, 21, 20, 0, 0, 0, time.UTC)
	start := func(t *testing.T) string {
		k, err := OpenKept(t.Context(), Keeping{Place: file, Most: 2, Tool: "v1"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { // runs after the handler has ended
			if err := k.Close(); err != nil {
				t.Error(err)
			}
		})
		_, url := serve(t, PageOptions{Store: k, Name: "here", Now: func() time.Time { return now }})
		return url
	}
	line := fakeLine{rttUs: 20_000, jitterUs: 900, downUs: 3_000, upUs: 12_000, downBps: 50e6, upBps: 10e6}
	var first Saved
	var before string
	t.Run("kept", func(t *testing.T) {
		url := start(t)
		first = submit(t, url, line.submission(rand.New(rand.NewPCG(1, 1))))
		status, text := fetch(t, url, first.ID)
		if before = text; len(first.ID) != keptID || status != http.StatusOK {
			t.Fatalf("id %q: %d %.100s", first.ID, status, text)
		}
		info, err := os.Stat(file)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("one result: %d bytes of JSON, a file of %d", len(text), info.Size())
	})
	t.Run("after a restart", func(t *testing.T) {
		url := start(t)
		if status, text := fetch(t, url, first.ID); status != http.StatusOK || text != before {
			t.Errorf("%d, %d bytes of %d", status, len(text), len(before))
		}
		for _, id := range []string{first.ID[:8], first.ID[:31], first.ID + "0", first.ID[:31] + "g", "%25"} {
			if status, _ := fetch(t, url, id); status != http.StatusNotFound {
				t.Errorf("id %q: %d", id, status)
			}
		}
		for i := range uint64(2) {
			now = now.Add(time.Minute)
			submit(t, url, line.submission(rand.New(rand.NewPCG(2, i))))
		}
		if status, _ := fetch(t, url, first.ID); status != http.StatusNotFound {
			t.Errorf("the oldest of three in two places: %d", status)
		}
	})
	s, err := store.OpenExisting(t.Context(), file)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	list, err := s.List(t.Context(), store.Filter{Label: "browser"})
	if err != nil || len(list) != 2 || list[0].Tool != "v1" || list[0].Server != "here" {
		t.Errorf("as `unbloat history` sees it: %+v, %v", list, err)
	}
}

// Another program's file is refused and not changed.
func TestKeptForeign(t *testing.T) {
	file := filepath.Join(t.TempDir(), "page.db")
	if err := os.WriteFile(file, bytes.Repeat([]byte("not a database "), 100), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenKept(t.Context(), Keeping{Place: file, Most: 10}); !errors.Is(err, store.ErrNoStore) {
		t.Errorf("a file of text: %v", err)
	}
}

// One address may save a few results, but not push out everybody else's.
func TestKeepingIsLimited(t *testing.T) {
	m := NewMemory(10_000)
	_, url := serve(t, PageOptions{Store: m, Limits: PageLimits{Sessions: 1000, PerAddress: 1000}})
	line := fakeLine{rttUs: 20_000, downUs: 3_000, upUs: 12_000, downBps: 50e6, upBps: 10e6, seconds: 1}
	sub := line.submission(rand.New(rand.NewPCG(1, 1)))
	kept := 0
	for range keptBurst + 5 {
		saved := submit(t, url, sub)
		if saved.ID != "" {
			kept++
		} else if saved.Error == "" || saved.Test == nil {
			t.Errorf("not kept, and no word: %+v", saved)
		}
	}
	if kept != keptBurst {
		t.Errorf("%d kept, want %d", kept, keptBurst)
	}
}

func TestQuota(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	q := newQuota(3, time.Second)
	a, b := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	got := 0
	for range 10 {
		if q.take(a, now) {
			got++
		}
	}
	if got != 3 || !q.take(b, now) {
		t.Errorf("%d of 3, or another address was refused", got)
	}
	if now = now.Add(1500 * time.Millisecond); !q.take(a, now) || q.take(a, now) {
		t.Error("one comes back each second")
	}
	for i := range 3 * mostAllowances {
		q.take(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), now)
	}
	if len(q.of) > mostAllowances {
		t.Errorf("%d addresses are remembered", len(q.of))
	}
}

var _ Store = (*kept)(nil)
