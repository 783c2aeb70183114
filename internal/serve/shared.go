package serve

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"unbloat/internal/measure/verdict"
	"unbloat/internal/show/store"
)

// shared keeps results in a database that several servers share. A result is
// first written to a folder of this machine, and travels from there: visitors
// measure while the database is away, and what they were told is kept arrives
// once it is back.
type shared struct {
	keeping Keeping
	spool   *store.Spool
	stop    context.CancelFunc
	wake    chan struct{} // a result waits
	done    chan struct{} // closed when nothing is delivered any more
	away    atomic.Bool   // the last delivery failed
	inTime  time.Duration // the constant, but in tests
	reader  *shelf        // for visitors; who delivers has a connection of his own

	mu   sync.Mutex    // held for moments
	news chan struct{} // closed, and made anew, when something was delivered
}

const (
	// Results that may wait, and their bytes: a thousand visitors an hour for
	// two days, at 20 kB each.
	mostWaiting      = 50_000
	mostWaitingBytes = 1 << 30

	// inTime is how long a visitor waits for his result to be where every server
	// finds it; it is kept in either case.
	inTime = 2 * time.Second
	// Pauses between attempts to reach the database.
	leastPause = 200 * time.Millisecond
	mostPause  = 10 * time.Second
	// lastTry bounds the delivery when the server ends.
	lastTry = 5 * time.Second
)

func openShared(k Keeping) (*shared, error) {
	if k.Spool == "" {
		return nil, errors.New("keep results in a database: no folder is known in which they may wait for it; name one with --state-dir")
	}
	spool, err := store.OpenSpool(k.Spool, mostWaiting, mostWaitingBytes)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	s := &shared{
		keeping: k, spool: spool, stop: stop, wake: make(chan struct{}, 1), done: make(chan struct{}), news: make(chan struct{}), inTime: inTime,
		reader: newShelf(nil, func(ctx context.Context) (*store.Store, error) { return store.Open(ctx, k.Place) }, 2*inTime),
	}
	go func() {
		defer close(s.done)
		s.deliver(ctx)
	}()
	return s, nil
}

// deliver brings what waits to the database until ctx is done, and once more
// after that.
func (s *shared) deliver(ctx context.Context) {
	var db *store.Store
	defer func() {
		if db != nil {
			_ = db.Close() // nothing is under way
		}
	}()
	try := func(ctx context.Context) (err error) {
		if db == nil {
			if db, err = store.Open(ctx, s.keeping.Place); err != nil {
				return err
			}
		}
		n, err := s.spool.Deliver(ctx, db.Deliver)
		if n > 0 {
			s.mu.Lock()
			close(s.news)
			s.news = make(chan struct{})
			s.mu.Unlock()
		}
		return err
	}
	pause, tidied, away := leastPause, time.Time{}, false
	for ctx.Err() == nil {
		err := try(ctx)
		if err == nil && time.Since(tidied) > tidyEvery {
			if s.keeping.tidy(ctx, db); ctx.Err() == nil {
				tidied = time.Now()
			}
		}
		waiting, _ := s.spool.Waiting()
		wait := tidyEvery
		switch {
		case ctx.Err() != nil:
		case err != nil:
			if !away {
				s.keeping.Log.Warn("results wait on the disk", "waiting", waiting, "reason", err)
			}
			away, wait, pause = true, pause, min(2*pause, mostPause)
			s.away.Store(true)
		default:
			if away {
				s.keeping.Log.Info("the results that waited were delivered")
			}
			away, pause = false, leastPause
			s.away.Store(false)
		}
		s.rest(ctx, wait, err == nil)
	}
	last, cancel := context.WithTimeout(context.Background(), lastTry)
	defer cancel()
	if err := try(last); err != nil {
		waiting, _ := s.spool.Waiting()
		s.keeping.Log.Warn("results wait on the disk for the next start", "waiting", waiting, "reason", err)
	} else if tidied.IsZero() {
		s.keeping.tidy(last, db)
	}
}

// rest waits, or until a result comes if that may be delivered.
func (s *shared) rest(ctx context.Context, d time.Duration, woken bool) {
	wake := s.wake
	if !woken {
		wake = nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-wake:
	case <-ctx.Done():
	}
}

// Save implements Store.
func (s *shared) Save(ctx context.Context, t *verdict.Test) (Ticket, error) {
	r, ticket, err := s.keeping.record(t)
	if err != nil {
		return Ticket{}, err
	}
	if err := s.spool.Put(r); err != nil {
		return Ticket{}, err
	}
	select {
	case s.wake <- struct{}{}:
	default: // it will wake anyway
	}
	late := time.NewTimer(s.inTime)
	defer late.Stop()
	for {
		s.mu.Lock()
		news := s.news
		s.mu.Unlock()
		if !s.spool.Has(r.ID) || s.away.Load() {
			return ticket, nil
		}
		select {
		case <-news:
		case <-late.C:
			return ticket, nil
		case <-ctx.Done():
			return ticket, nil
		}
	}
}

// Load implements Store.
func (s *shared) Load(ctx context.Context, id string) (*verdict.Test, error) {
	if !knownID(id) {
		return nil, told(id, store.ErrNotFound)
	}
	r, err := s.spool.Get(id)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return s.keeping.load(ctx, id, s.reader)
	case err != nil:
		return nil, told(id, err)
	}
	return s.keeping.test(id, r)
}

// Delete implements Store.
func (s *shared) Delete(ctx context.Context, id, token string) error {
	if !knownID(id) {
		return told(id, store.ErrNotFound)
	}
	if _, err := s.spool.Get(id); err == nil { // it may have arrived all the same: who deletes it there would see it come back
		return fmt.Errorf("result %s waits for the database: %w", id, ErrAway)
	}
	return told(id, s.reader.use(ctx, func(ctx context.Context, db *store.Store) error { return db.Withdraw(ctx, id, token) }))
}

// Waiting implements Kept.
func (s *shared) Waiting() (waiting, refused int) { return s.spool.Waiting() }

// Close implements io.Closer. What still waits is delivered at the next start.
func (s *shared) Close() error {
	s.stop()
	<-s.done
	return s.reader.close()
}
