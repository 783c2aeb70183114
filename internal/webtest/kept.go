package webtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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

// A Kept store has its results in a file, so that their addresses outlive the
// program. Close it when the last request has been answered.
type Kept interface {
	Store
	io.Closer
}

type kept struct {
	mu   sync.Mutex // a store.Store belongs to one goroutine
	file *store.Store
	most int
	tool string
}

// OpenKept opens the file of results at path, which is made if need be. It
// keeps the newest n results of visitors; tool is the program's version, which
// is filed with each. The file is one that `unbloat history --store` reads, and
// nothing else should be kept in it. In a build without SQLite the error wraps
// store.ErrOmitted.
func OpenKept(ctx context.Context, path string, n int, tool string) (Kept, error) {
	f, err := store.Open(ctx, path)
	if err != nil {
		return nil, err
	}
	return &kept{file: f, most: max(n, 1), tool: tool}, nil
}

// Save implements Store.
func (k *kept) Save(ctx context.Context, t *verdict.Test) (string, error) {
	r, err := store.NewRecord(store.KindTest, t, time.Now())
	if err != nil {
		return "", err
	}
	r.Tool = k.tool
	if r, err = r.Identified(); err != nil {
		return "", err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, err := k.file.Add(ctx, []store.Record{r}); err != nil {
		return "", err
	}
	if _, err := k.file.Trim(ctx, k.most); err != nil {
		return "", err
	}
	return r.ID[:keptID], nil
}

// Load implements Store.
func (k *kept) Load(ctx context.Context, id string) (*verdict.Test, error) {
	if !regexp.MustCompile(`^[0-9a-f]{32}$`).MatchString(id) {
		return nil, fmt.Errorf("result %s: %w", id, ErrNotFound)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	r, err := k.file.Get(ctx, id)
	if errors.Is(err, store.ErrNotFound) {
		return nil, fmt.Errorf("result %s: %w", id, ErrNotFound)
	}
	if err != nil {
		return nil, err
	}
	t := &verdict.Test{}
	if err := json.Unmarshal(r.Result, t); err != nil {
		return nil, fmt.Errorf("read result %s: %w", id, err)
	}
	return t, nil
}

// Close implements io.Closer.
func (k *kept) Close() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.file.Close()
}
