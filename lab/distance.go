package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"unbloat/lab/scenario"
)

// longestFrame is more than an Ethernet frame of any home.
const longestFrame = 4096

// mostFar is how many frames may be under way in one direction: 30 ms of 100 Mbit/s
// are 250 of them.
const mostFar = 100_000

// A farAway carries frames between two devices, each half a round trip later:
// what tc-netem(8) does in the lab's own guest, on a kernel that need not have it.
type farAway struct {
	one, jitter time.Duration
	loss        float64
	random      *rand.Rand // of one direction
}

// A frame under way.
type frame struct {
	due  time.Time
	data []byte
}

// carry moves frames both ways until a device is closed or ctx ends, and returns
// why it ended; nil if ctx did.
func carry(ctx context.Context, l scenario.Line, seed uint64, near, far *os.File) error {
	stop := context.AfterFunc(ctx, func() { near.Close(); far.Close() })
	defer stop()
	ways := [2]struct{ from, to *os.File }{{near, far}, {far, near}}
	var errs [2]error
	var wg sync.WaitGroup
	for i, w := range ways {
		d := farAway{one: l.RTT / 2, jitter: l.Jitter / 2, loss: l.Loss, random: rand.New(rand.NewPCG(seed, uint64(i)))}
		wg.Go(func() { errs[i] = d.oneWay(w.from, w.to) })
	}
	wg.Wait()
	if ctx.Err() != nil {
		return nil
	}
	return errors.Join(errs[:]...)
}

// oneWay carries frames in one direction, in the order in which they came.
func (d farAway) oneWay(from io.Reader, to io.Writer) error {
	under := make(chan frame, mostFar)
	done := make(chan error, 1)
	go func() {
		var failed error
		for f := range under {
			time.Sleep(time.Until(f.due))
			// A device whose other side is not up, or full, loses frames as a wire does.
			if _, err := to.Write(f.data); errors.Is(err, os.ErrClosed) {
				failed = err
			}
		}
		done <- failed
	}()
	buf := make([]byte, longestFrame)
	var err error
	var n int
	for {
		if n, err = from.Read(buf); err != nil {
			err = fmt.Errorf("carry frames over the distance: %w", err)
			break
		}
		if d.loss > 0 && d.random.Float64() < d.loss {
			continue
		}
		late := d.one
		if d.jitter > 0 {
			late += time.Duration((2*d.random.Float64() - 1) * float64(d.jitter))
		}
		select {
		case under <- frame{time.Now().Add(late), append([]byte(nil), buf[:n]...)}:
		default: // as netem at its limit
		}
	}
	close(under)
	return errors.Join(err, <-done)
}
