//go:build linux

package store

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"unbloat/guard"
	"unbloat/testkit/pgtest"
)

// Each server learns what an address used at the others, even if a row is
// written twice. Rows expire with their window, and the database contains no
// address.
func TestBudgets(t *testing.T) {
	db := pgtest.Start(t, "fsync=off")
	now := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	clock := func() time.Time { return now }
	var servers []*Budgets
	for range 3 {
		b, err := OpenBudgets(db.URL(), time.Hour, clock)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { b.Close() })
		servers = append(servers, b)
	}
	a, b := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::")
	use := func(bytes int64, busy time.Duration) map[netip.Addr]guard.Use {
		return map[netip.Addr]guard.Use{a: {Since: now, Bytes: bytes, Busy: busy}, b: {Since: now, Bytes: 1}}
	}
	say := func(server int, own map[netip.Addr]guard.Use) func(netip.Addr) guard.Use {
		t.Helper()
		f, err := servers[server].Exchange(t.Context(), own)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	say(0, use(100, time.Second))
	say(1, use(30, time.Minute))
	say(1, use(50, time.Minute)) // it has grown: the larger value counts, not the sum
	say(1, use(50, time.Minute)) // the same again
	if got := say(2, nil)(a); got.Bytes != 150 || got.Busy != 61*time.Second {
		t.Errorf("the third server hears %+v", got)
	}
	if got := say(0, nil)(a); got.Bytes != 50 {
		t.Errorf("the first server hears %+v: its own is not elsewhere", got)
	}
	if got := say(0, nil)(netip.MustParseAddr("192.0.2.2")); got.Bytes != 0 {
		t.Errorf("another address: %+v", got)
	}
	rows := 0
	err := servers[0].store.db.query(t.Context(), "SELECT who, server FROM budgets", nil, func(r row) error {
		rows++
		if strings.ContainsFunc(r.text(0), notHex) || len(r.text(0)) != 32 {
			t.Errorf("who: %q", r.text(0))
		}
		return nil
	})
	if err != nil || rows != 4 {
		t.Errorf("%d rows, %v", rows, err)
	}
	db.Kill()
	if _, err := servers[2].Exchange(t.Context(), use(7, 0)); err == nil {
		t.Error("a database that is away answered")
	}
	db.Restart()
	say(2, use(7, 0))
	if got := say(0, nil)(a); got.Bytes != 57 {
		t.Errorf("after the database was away: %+v", got)
	}
	before := servers[0].secret
	now = now.Add(61 * time.Minute)
	if got := say(0, nil)(a); got.Bytes != 0 {
		t.Errorf("after its window: %+v", got)
	}
	now = now.Add(24 * time.Hour)
	say(1, use(9, 0))
	if got := say(0, nil)(a); got.Bytes != 9 || string(servers[0].secret) == string(before) {
		t.Errorf("the next day: %+v", got)
	}
	if n, err := servers[0].store.one(t.Context(), "SELECT count(*) FROM budget_secrets"); n != 1 || err != nil {
		t.Errorf("%d secrets are kept, %v", n, err)
	}
}
