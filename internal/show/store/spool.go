package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// A Spool is a folder in which results wait for a database that may be away.
// What Put has returned for is on the disk, and stays there until it was
// delivered. A result that is delivered a second time, because nobody heard that
// it had arrived, is the same row: its id is a hash of its content. Methods may
// be called by several goroutines, and several programs may share the folder.
type Spool struct {
	dir  string
	most int   // results
	size int64 // of all of them, in bytes

	mu      sync.Mutex
	waiting map[string]waiting // by id
	bytes   int64
	aside   int // that the database refuses
}

// waiting is a result in the folder, or one that is about to be there.
type waiting struct {
	size    int64
	written bool
}

// ErrSpoolFull says that no more results may wait.
var ErrSpoolFull = errors.New("too many results wait for the database")

const (
	spoolSuffix = ".result"
	asideSuffix = ".refused"
)

// OpenSpool opens a folder, which is made if need be, in which at most so many
// results of so many bytes in all may wait. Those that wait since an earlier run
// are still there.
func OpenSpool(dir string, most int, bytes int64) (*Spool, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the folder of waiting results: %w", err)
	}
	s := &Spool{dir: dir, most: most, size: bytes, waiting: map[string]waiting{}}
	files, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("read the folder of waiting results: %w", err)
	}
	for _, f := range files {
		if strings.HasSuffix(f.Name(), asideSuffix) {
			s.aside++
		}
		id, is := strings.CutSuffix(f.Name(), spoolSuffix)
		info, err := f.Info()
		if !is || err != nil { // half-written by a program that was killed, or just delivered
			continue
		}
		s.waiting[id] = waiting{info.Size(), true}
		s.bytes += info.Size()
	}
	return s, nil
}

// Put has an identified result wait. When it returns nil the result is on the
// disk. Errors wrap ErrSpoolFull, or say what the disk does not take.
func (s *Spool) Put(r Record) error {
	text, err := line(r)
	if err != nil {
		return fmt.Errorf("keep the result: %w", err)
	}
	s.mu.Lock()
	if w, there := s.waiting[r.ID]; there && w.written {
		s.mu.Unlock()
		return nil
	}
	if len(s.waiting) >= s.most || s.bytes+int64(len(text)) > s.size {
		n, bytes := len(s.waiting), s.bytes
		s.mu.Unlock()
		return fmt.Errorf("%w: %d of %d bytes are in %s", ErrSpoolFull, n, bytes, s.dir)
	}
	s.waiting[r.ID] = waiting{size: int64(len(text))} // its place is taken, so that the bounds hold
	s.bytes += int64(len(text))
	s.mu.Unlock()
	if err := s.write(r.ID, text); err != nil {
		s.forget(r.ID)
		return fmt.Errorf("keep the result until the database has it: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting[r.ID] = waiting{int64(len(text)), true}
	return nil
}

// write makes the file of a result appear whole or not at all.
func (s *Spool) write(id string, text []byte) error {
	f, err := os.CreateTemp(s.dir, "new-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // of no effect once it is renamed
	_, err = f.Write(text)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), s.file(id)); err != nil {
		return err
	}
	return s.sync()
}

// sync has the disk keep which files are in the folder.
func (s *Spool) sync() error {
	d, err := os.Open(s.dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func (s *Spool) file(id string) string { return filepath.Join(s.dir, id+spoolSuffix) }

func (s *Spool) forget(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bytes -= s.waiting[id].size
	delete(s.waiting, id)
}

// Waiting returns how many results wait, and how many lie aside because the
// database refuses them.
func (s *Spool) Waiting() (waiting, aside int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.waiting), s.aside
}

// Has reports whether a result waits.
func (s *Spool) Has(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, there := s.waiting[id]
	return there
}

// Get returns the waiting result whose id begins with prefix. Errors wrap
// ErrNotFound, also where it has just been delivered.
func (s *Spool) Get(prefix string) (Record, error) {
	s.mu.Lock()
	var id string
	for k := range s.waiting {
		if prefix != "" && strings.HasPrefix(k, prefix) {
			id = k
		}
	}
	s.mu.Unlock()
	if id == "" {
		return Record{}, ErrNotFound
	}
	return s.read(id)
}

func (s *Spool) read(id string) (Record, error) {
	text, err := os.ReadFile(s.file(id))
	if errors.Is(err, fs.ErrNotExist) {
		return Record{}, ErrNotFound
	}
	if err != nil {
		return Record{}, fmt.Errorf("read a waiting result: %w", err)
	}
	var r Record
	if err := json.Unmarshal(text, &r); err != nil {
		return r, fmt.Errorf("read a waiting result: %w: %w", ErrDamaged, err)
	}
	out, err := r.normal()
	if err != nil || out.ID != id {
		return r, fmt.Errorf("read a waiting result: %w: %s is not what was kept", ErrDamaged, id)
	}
	return out, nil
}

// deliveryBatch is how many results travel in one transaction.
const deliveryBatch = 100

// Deliver gives what waits to add, which returns nil once the database keeps all
// of what it was given, and removes it from the folder. It returns how many
// results were delivered. An error of add ends the delivery, and what waits goes
// on waiting; but a result that is damaged, or that add alone refuses with an
// error that wraps ErrRefused, is laid aside, so that it holds up no other.
func (s *Spool) Deliver(ctx context.Context, add func(context.Context, []Record) error) (delivered int, err error) {
	s.mu.Lock()
	ids := slices.DeleteFunc(slices.Sorted(maps.Keys(s.waiting)), func(id string) bool { return !s.waiting[id].written })
	s.mu.Unlock()
	for some := range slices.Chunk(ids, deliveryBatch) {
		var records []Record
		for _, id := range some {
			r, err := s.read(id)
			switch {
			case err == nil:
				records = append(records, r)
			case errors.Is(err, ErrDamaged):
				s.layAside(id)
			case errors.Is(err, ErrNotFound): // another program with this folder delivered it
				s.forget(id)
			default:
				return delivered, err
			}
		}
		n, err := s.deliver(ctx, records, add)
		delivered += n
		if err != nil {
			return delivered, err
		}
	}
	return delivered, nil
}

// deliver delivers some results, one by one if the database refuses them together.
func (s *Spool) deliver(ctx context.Context, records []Record, add func(context.Context, []Record) error) (int, error) {
	if len(records) == 0 {
		return 0, nil
	}
	err := add(ctx, records)
	if errors.Is(err, ErrRefused) && len(records) == 1 {
		s.layAside(records[0].ID)
		return 0, nil
	}
	if errors.Is(err, ErrRefused) {
		sum := 0
		for _, r := range records {
			n, err := s.deliver(ctx, []Record{r}, add)
			sum += n
			if err != nil {
				return sum, err
			}
		}
		return sum, nil
	}
	if err != nil {
		return 0, err
	}
	for _, r := range records {
		if err := os.Remove(s.file(r.ID)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return 0, fmt.Errorf("remove a delivered result: %w", err)
		}
		s.forget(r.ID)
	}
	return len(records), s.sync()
}

// layAside keeps a result that cannot be delivered for a person to look at.
func (s *Spool) layAside(id string) {
	_ = os.Rename(s.file(id), filepath.Join(s.dir, id+asideSuffix)) // if it stays, it is tried again at the next start
	s.forget(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.aside++
}
