package store

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"net/netip"
	"slices"
	"time"

	"unbloat/guard"
)

// Budgets tell several servers what one address uses of all of them. In the
// database an address is a hash keyed with a secret of the day. Rows are
// removed when their window is over, and the secret at the end of the day, so
// that no trace of an address remains.
//
// Each server writes its own total, never a difference: a write that may have
// been lost can be repeated without being counted twice.
type Budgets struct {
	store  *Store
	server string // random, and new after each start
	window time.Duration
	now    func() time.Time

	day    int64
	secret []byte
}

// mostUses limits what is read of other servers, and budgetRows the rows of one
// statement.
const (
	mostUses   = 1 << 16
	budgetRows = 500
)

// OpenBudgets prepares the budgets of a window in the database at place, which
// need not be reachable yet. now is time.Now.
func OpenBudgets(place string, window time.Duration, now func() time.Time) (*Budgets, error) {
	s, err := attach(place)
	if err != nil {
		return nil, err
	}
	return &Budgets{store: s, server: rand.Text(), window: window, now: now}, nil
}

// Close ends the use of the database.
func (b *Budgets) Close() error { return b.store.Close() }

// Exchange writes what addresses have used of this server, and returns what any
// address has used of all others.
func (b *Budgets) Exchange(ctx context.Context, own map[netip.Addr]guard.Use) (func(netip.Addr) guard.Use, error) {
	elsewhere := map[string]guard.Use{}
	err := b.store.db.transact(ctx, func() error {
		if err := b.today(ctx); err != nil {
			return err
		}
		if err := b.write(ctx, own); err != nil {
			return err
		}
		since := b.now().Add(-b.window)
		if _, err := b.store.db.exec(ctx, "DELETE FROM budgets WHERE since_ms < ?", since.UnixMilli()); err != nil {
			return err
		}
		return b.store.db.query(ctx, `SELECT who, CAST(sum(bytes) AS BIGINT), CAST(sum(busy_ms) AS BIGINT), min(since_ms)
			FROM budgets WHERE server <> ? GROUP BY who LIMIT ?`, []any{b.server, mostUses}, func(r row) error {
			elsewhere[r.text(0)] = guard.Use{Bytes: r.number(1), Busy: time.Duration(r.number(2)) * time.Millisecond, Since: at(r.number(3))}
			return nil
		})
	})
	if err != nil {
		return nil, b.store.db.explain("share the budgets beside", err)
	}
	secret := b.secret
	return func(a netip.Addr) guard.Use { return elsewhere[who(secret, a)] }, nil
}

// today reads the secret of the day, or makes it.
func (b *Budgets) today(ctx context.Context) error {
	day := b.now().Unix() / int64(24*time.Hour/time.Second)
	if day == b.day {
		return nil
	}
	db := b.store.db
	fresh := make([]byte, sha256.Size)
	_, _ = rand.Read(fresh) // never fails: Go ends the program instead
	if _, err := db.exec(ctx, "DELETE FROM budget_secrets WHERE day < ?", day); err != nil {
		return err
	}
	if _, err := db.exec(ctx, "INSERT INTO budget_secrets (day, secret) VALUES (?, ?) ON CONFLICT (day) DO NOTHING", day, fresh); err != nil {
		return err
	}
	return db.query(ctx, "SELECT secret FROM budget_secrets WHERE day = ?", []any{day}, func(r row) error {
		b.secret, b.day = slices.Clone(r.bytes(0)), day
		return nil
	})
}

// who returns the hash of an address.
func who(secret []byte, a netip.Addr) string {
	h := hmac.New(sha256.New, secret)
	h.Write(a.AsSlice())
	return hex.EncodeToString(h.Sum(nil)[:16])
}

func (b *Budgets) write(ctx context.Context, own map[netip.Addr]guard.Use) error {
	for some := range slices.Chunk(slices.Collect(maps.Keys(own)), budgetRows) {
		var args []any
		for _, a := range some {
			u := own[a]
			args = append(args, who(b.secret, a), b.server, u.Since.UnixMilli(), u.Bytes, u.Busy.Milliseconds())
		}
		_, err := b.store.db.exec(ctx, "INSERT INTO budgets (who, server, since_ms, bytes, busy_ms) VALUES "+placeholders(len(some), 5)+
			` ON CONFLICT (who, server) DO UPDATE SET since_ms = excluded.since_ms, bytes = excluded.bytes, busy_ms = excluded.busy_ms`, args...)
		if err != nil {
			return err
		}
	}
	return nil
}
