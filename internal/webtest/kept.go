package webtest

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"regexp"
	"sync"
	"time"

	"unbloat/internal/store"
	"unbloat/internal/verdict"
)

// keptID is what an address says of a kept result: the first 128 bits of its id,
// which is a hash of all its figures. Shorter ones are not looked up, because
// then results could be found by trying.
const keptID = 32

// A Kept store has its results in a file or a database, so that their addresses
// outlive the program. Close it when the last request has been answered.
type Kept interface {
	Store
	io.Closer
	// Waiting returns how many results wait for the database, and how many it
	// has refused.
	Waiting() (waiting, refused int)
}

// Keeping says where and for how long results of visitors are kept.
type Keeping struct {
	Place string        // a file, which is made if need be, or a database: see store.Open
	Most  int           // at most so many, the newest; 0: any number
	For   time.Duration // no longer than so; 0: for ever
	Tool  string        // the program's version, which is filed with each
	Spool string        // folder in which results wait for a database that is away
	Log   *slog.Logger  // nil: no log
}

// OpenKept opens what keeps results. It is one that `unbloat history --store`
// reads, and nothing else should be kept there. In a build without SQLite the
// error wraps store.ErrOmitted. A database need not be reachable.
func OpenKept(ctx context.Context, k Keeping) (Kept, error) {
	if k.Log == nil {
		k.Log = slog.New(slog.DiscardHandler)
	}
	if store.IsDatabase(k.Place) {
		return openShared(k)
	}
	f, err := store.Open(ctx, k.Place)
	if err != nil {
		return nil, err
	}
	return &kept{file: f, keeping: k}, nil
}

// record returns the record of a visitor's result and the ticket for it.
func (k Keeping) record(t *verdict.Test) (store.Record, Ticket, error) {
	r, err := store.NewRecord(store.KindTest, t, time.Now())
	if err != nil {
		return r, Ticket{}, err
	}
	token := rand.Text()
	r.Tool, r.Owner = k.Tool, store.OwnerOf(token)
	if r, err = r.Identified(); err != nil {
		return r, Ticket{}, err
	}
	return r, Ticket{r.ID[:keptID], token}, nil
}

// tidyEvery is how often results that are too old are removed.
const tidyEvery = 10 * time.Minute

// tidy removes results that are too many or too old.
func (k Keeping) tidy(ctx context.Context, s *store.Store) error {
	if k.Most > 0 {
		if _, err := s.Trim(ctx, k.Most); err != nil {
			return err
		}
	}
	if k.For > 0 {
		if _, err := s.Expire(ctx, time.Now().Add(-k.For)); err != nil {
			return err
		}
	}
	return nil
}

// told returns an error of the store as one of this package.
func told(id string, err error) error {
	switch {
	case errors.Is(err, store.ErrNotFound):
		return fmt.Errorf("result %s: %w", id, ErrNotFound)
	case errors.Is(err, store.ErrNotOwner):
		return fmt.Errorf("result %s: %w", id, ErrNotOwner)
	case errors.Is(err, store.ErrAway):
		return fmt.Errorf("result %s: %w: %w", id, ErrAway, err)
	}
	return err
}

// knownID reports whether an id is as long as those that are handed out.
func knownID(id string) bool { return regexp.MustCompile(`^[0-9a-f]{32}$`).MatchString(id) }

// testOf reads the result of a record.
func testOf(id string, r store.Record) (*verdict.Test, error) {
	t := &verdict.Test{}
	if err := json.Unmarshal(r.Result, t); err != nil {
		return nil, fmt.Errorf("read result %s: %w", id, err)
	}
	return t, nil
}

// kept keeps results in a file of this machine.
type kept struct {
	mu      sync.Mutex // a store.Store belongs to one goroutine
	file    *store.Store
	keeping Keeping
	saved   time.Time // when old ones were removed
}

// Save implements Store.
func (k *kept) Save(ctx context.Context, t *verdict.Test) (Ticket, error) {
	r, ticket, err := k.keeping.record(t)
	if err != nil {
		return Ticket{}, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, err := k.file.Add(ctx, []store.Record{r}); err != nil {
		return Ticket{}, err
	}
	if k.keeping.Most > 0 || time.Since(k.saved) > tidyEvery {
		k.saved = time.Now()
		if err := k.keeping.tidy(ctx, k.file); err != nil {
			return Ticket{}, err
		}
	}
	return ticket, nil
}

// Load implements Store.
func (k *kept) Load(ctx context.Context, id string) (*verdict.Test, error) {
	if !knownID(id) {
		return nil, told(id, store.ErrNotFound)
	}
	k.mu.Lock()
	r, err := k.file.Get(ctx, id)
	k.mu.Unlock()
	if err != nil {
		return nil, told(id, err)
	}
	if k.keeping.For > 0 && time.Since(r.Time) > k.keeping.For {
		return nil, told(id, store.ErrNotFound)
	}
	return testOf(id, r)
}

// Delete implements Store.
func (k *kept) Delete(ctx context.Context, id, token string) error {
	if !knownID(id) {
		return told(id, store.ErrNotFound)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return told(id, k.file.Withdraw(ctx, id, token))
}

// Waiting implements Kept: nothing ever waits.
func (k *kept) Waiting() (waiting, refused int) { return 0, 0 }

// Close implements io.Closer.
func (k *kept) Close() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.file.Close()
}
