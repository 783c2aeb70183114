package household

import (
	"context"
	"sync"
	"time"

	"unbloat/internal/measure/phases"
)

// video plays a film whose segments come over HTTP from the server node.
type video struct{ site }

func (v *video) run(ctx context.Context, d time.Duration) (*Outcome, error) {
	down := newMeter()
	var mu sync.Mutex
	var wg sync.WaitGroup
	var worst *VideoResult
	for k := range v.task.Load.Flows {
		wg.Go(func() {
			r := v.play(ctx, d, down, v.task.siteName(1+k%sites))
			mu.Lock()
			defer mu.Unlock()
			if worst == nil || r.PlayedS < worst.PlayedS {
				worst = r
			}
		})
	}
	wg.Wait()
	return &Outcome{Down: down.series(), QoE: QoE{Video: worst}}, nil
}

// play plays for d over one connection, and returns what was seen.
func (v *video) play(ctx context.Context, d time.Duration, down *meter, host string) *VideoResult {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	client := v.task.client(1)
	defer client.CloseIdleConnections()
	start := time.Now()
	var p Player
	for phases.Sleep(ctx, p.Full()) == nil {
		begin := time.Since(start)
		p.Advance(begin)
		quality := p.Choose()
		if err := get(ctx, client, host, int(quality.Bytes(SegmentLength)), down); err != nil {
			continue // the time is over, or the connection broke and the next one may hold
		}
		now := time.Since(start)
		p.Fetched(now, now-begin, quality)
	}
	p.Advance(d)
	return p.Result()
}
