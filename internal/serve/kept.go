package serve

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"regexp"
	"time"

	"unbloat/internal/measure/verdict"
	"unbloat/internal/show/store"
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
// reads, and nothing else should be kept there. A database need not be reachable.
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
	return &kept{newShelf(f, func(ctx context.Context) (*store.Store, error) { return store.Open(ctx, k.Place) }, fileWithin), k, time.Time{}}, nil
}

// fileWithin bounds what is done with a file of results, and the wait for those
// before: SQLite itself waits so long for another process that holds the file.
const fileWithin = 30 * time.Second

// A shelf gives the results to one goroutine at a time, as a store.Store wants.
type shelf struct {
	turn   chan struct{} // held while results is used
	open   func(context.Context) (*store.Store, error)
	within time.Duration

	results *store.Store // nil: to be opened
}

func newShelf(results *store.Store, open func(context.Context) (*store.Store, error), within time.Duration) *shelf {
	return &shelf{turn: make(chan struct{}, 1), open: open, within: within, results: results}
}

// use calls do with the results and a context that bounds it, together with the
// wait for others. Errors wrap ErrAway where it had to be given up.
func (s *shelf) use(ctx context.Context, do func(context.Context, *store.Store) error) (err error) {
	ctx, cancel := context.WithTimeout(ctx, s.within)
	defer cancel()
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return fmt.Errorf("%w: others wait for them too: %w", store.ErrAway, ctx.Err())
	}
	if s.results == nil {
		if s.results, err = s.open(ctx); err != nil {
			return err
		}
	}
	return do(ctx, s.results)
}

// close waits for who uses the results, and closes them.
func (s *shelf) close() error {
	s.turn <- struct{}{}
	if s.results == nil {
		return nil
	}
	return s.results.Close()
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

// tidy removes results that are too many or too old. Where that fails it is
// logged, and tried again later: what is kept is kept.
func (k Keeping) tidy(ctx context.Context, s *store.Store) {
	var err error
	if k.Most > 0 {
		_, err = s.Trim(ctx, k.Most)
	}
	if k.For > 0 && err == nil {
		_, err = s.Expire(ctx, time.Now().Add(-k.For))
	}
	if err != nil && ctx.Err() == nil {
		k.Log.Warn("old results stay for now", "reason", err)
	}
}

// load returns a result of a shelf.
func (k Keeping) load(ctx context.Context, id string, from *shelf) (*verdict.Test, error) {
	if !knownID(id) {
		return nil, told(id, store.ErrNotFound)
	}
	var r store.Record
	err := from.use(ctx, func(ctx context.Context, s *store.Store) (err error) {
		r, err = s.Get(ctx, id)
		return err
	})
	if err != nil {
		return nil, told(id, err)
	}
	return k.test(id, r)
}

// test reads the result of a record, unless it is too old.
func (k Keeping) test(id string, r store.Record) (*verdict.Test, error) {
	if k.For > 0 && time.Since(r.Time) > k.For {
		return nil, told(id, store.ErrNotFound)
	}
	t := &verdict.Test{}
	if err := json.Unmarshal(r.Result, t); err != nil {
		return nil, fmt.Errorf("read result %s: %w", id, err)
	}
	return t, nil
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

// kept keeps results in a file of this machine.
type kept struct {
	file    *shelf
	keeping Keeping
	tidied  time.Time // when old ones were removed; while file is held
}

// Save implements Store.
func (k *kept) Save(ctx context.Context, t *verdict.Test) (Ticket, error) {
	r, ticket, err := k.keeping.record(t)
	if err != nil {
		return Ticket{}, err
	}
	err = k.file.use(ctx, func(ctx context.Context, f *store.Store) error {
		if _, err := f.Add(ctx, []store.Record{r}); err != nil {
			return err
		}
		if k.keeping.Most > 0 || time.Since(k.tidied) > tidyEvery {
			k.tidied = time.Now()
			k.keeping.tidy(ctx, f)
		}
		return nil
	})
	if err != nil {
		return Ticket{}, err
	}
	return ticket, nil
}

// Load implements Store.
func (k *kept) Load(ctx context.Context, id string) (*verdict.Test, error) {
	return k.keeping.load(ctx, id, k.file)
}

// Delete implements Store.
func (k *kept) Delete(ctx context.Context, id, token string) error {
	if !knownID(id) {
		return told(id, store.ErrNotFound)
	}
	return told(id, k.file.use(ctx, func(ctx context.Context, f *store.Store) error { return f.Withdraw(ctx, id, token) }))
}

// Waiting implements Kept: nothing ever waits.
func (k *kept) Waiting() (waiting, refused int) { return 0, 0 }

// Close implements io.Closer.
func (k *kept) Close() error { return k.file.close() }
