package serve

import (
	"cmp"
	"context"
	"errors"
	"log"
	"log/slog"
	"maps"
	"net"
	"slices"
	"sort"
	"sync"
	"time"
)

// A refusedKind is a kind of refusal with one counter. An attacker can cause
// any number of refusals, but only a limited number of kinds.
type refusedKind struct{ protocol, reason string }

// refusals counts refusals by kind.
type refusals struct {
	mu     sync.Mutex
	counts map[refusedKind]int64 // since the start
	told   map[refusedKind]int64 // of these, in the log already
}

func newRefusals() *refusals {
	return &refusals{counts: map[refusedKind]int64{}, told: map[refusedKind]int64{}}
}

func (r *refusals) add(protocol, reason string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts[refusedKind{protocol, reason}]++
}

// all returns how often each kind was refused, sorted.
func (r *refusals) all() (kinds []refusedKind, counts map[refusedKind]int64) {
	r.mu.Lock()
	counts = maps.Clone(r.counts)
	r.mu.Unlock()
	kinds = slices.Collect(maps.Keys(counts))
	sort.Slice(kinds, func(i, j int) bool {
		return cmp.Or(cmp.Compare(kinds[i].protocol, kinds[j].protocol), cmp.Compare(kinds[i].reason, kinds[j].reason)) < 0
	})
	return kinds, counts
}

// tellEvery is the interval of the log's lines about refusals.
const tellEvery = time.Minute

// tell logs the numbers of refusals at intervals until ctx is done, and the
// rest then.
func (r *refusals) tell(ctx context.Context, log *slog.Logger) {
	t := time.NewTicker(tellEvery)
	defer t.Stop()
	for ctx.Err() == nil {
		select {
		case <-t.C:
		case <-ctx.Done():
		}
		r.sum(log)
	}
}

// sum logs a line for each kind that was refused since the last time.
func (r *refusals) sum(log *slog.Logger) {
	kinds, counts := r.all()
	for _, k := range kinds {
		if n := counts[k] - r.told[k]; n > 0 {
			log.Info("refused", "protocol", k.protocol, "reason", k.reason, "count", n, "ever", counts[k])
			r.told[k] = counts[k]
		}
	}
}

// httpLog returns a logger for package http's server. It counts the lines
// instead of logging them, as every client can cause any number.
func (r *refusals) httpLog(l *slog.Logger) *log.Logger {
	return log.New(lineCounter{r, l}, "", 0)
}

type lineCounter struct {
	refusals *refusals
	log      *slog.Logger
}

func (c lineCounter) Write(b []byte) (int, error) {
	c.refusals.add(protocolWeb, "connection failed")
	c.log.Debug("refused", "protocol", protocolWeb, "reason", string(b))
	return len(b), nil
}

// plain returns an error's text without the addresses of the connection, which
// must not be stored.
func plain(err error) string {
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Op + ": " + op.Err.Error()
	}
	return err.Error()
}
