//go:build omit_store

package store

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"time"

	"unbloat/internal/budget"
)

// A Store is an open file of results. This build has none.
type Store struct{}

// Open returns an error that wraps ErrOmitted.
func Open(_ context.Context, path string) (*Store, error) {
	return nil, fmt.Errorf("open %s: %w, it was made with the tag omit_store; save results with -o FILE, and compare the files", path, ErrOmitted)
}

// OpenExisting is Open.
func OpenExisting(ctx context.Context, path string) (*Store, error) { return Open(ctx, path) }

// Close does nothing.
func (*Store) Close() error { return nil }

// Add returns ErrOmitted.
func (*Store) Add(context.Context, []Record) (int, error) { return 0, ErrOmitted }

// Deliver returns ErrOmitted.
func (*Store) Deliver(context.Context, []Record) error { return ErrOmitted }

// Trim returns ErrOmitted.
func (*Store) Trim(context.Context, int) (int, error) { return 0, ErrOmitted }

// Expire returns ErrOmitted.
func (*Store) Expire(context.Context, time.Time) (int, error) { return 0, ErrOmitted }

// Delete returns ErrOmitted.
func (*Store) Delete(context.Context, string) error { return ErrOmitted }

// Withdraw returns ErrOmitted.
func (*Store) Withdraw(_ context.Context, _, _ string) error { return ErrOmitted }

// List returns ErrOmitted.
func (*Store) List(context.Context, Filter) ([]Entry, error) { return nil, ErrOmitted }

// Get returns ErrOmitted.
func (*Store) Get(context.Context, string) (Record, error) { return Record{}, ErrOmitted }

// Import returns ErrOmitted.
func (*Store) Import(context.Context, io.Reader) (read, added int, err error) {
	return 0, 0, ErrOmitted
}

// Export returns ErrOmitted.
func (*Store) Export(context.Context, io.Writer, []string) (int, error) { return 0, ErrOmitted }

// Budgets do nothing in this build.
type Budgets struct{}

// OpenBudgets returns ErrOmitted.
func OpenBudgets(string, time.Duration, func() time.Time) (*Budgets, error) { return nil, ErrOmitted }

// Exchange returns ErrOmitted.
func (*Budgets) Exchange(context.Context, map[netip.Addr]budget.Use) (func(netip.Addr) budget.Use, error) {
	return nil, ErrOmitted
}

// Close does nothing.
func (*Budgets) Close() error { return nil }
