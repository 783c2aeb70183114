// Package guard stands between us and strangers. It takes what others say (a router, a
// test server, a program, a file) within a bound of bytes and one of time, tells places
// that only root can have made from others, gives each connection its place, and makes
// text harmless that may not be ours.
package guard

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"unbloat/unit"
)

// What an answer exceeded; errors of Take and Read wrap one of them.
var (
	ErrLong = errors.New("it says too much")
	ErrLate = errors.New("it takes too long")
)

// A Limit is how much may be said, and how long that may take.
type Limit struct {
	Size unit.Size     // in all
	Time time.Duration // from the question to the end; 0: as long as the context lasts
}

// Take calls do, which asks and writes what it hears to out and errOut, and
// returns what was written. Beyond the limit the context of do ends, nothing
// more is taken, and the error says so, whatever do returns; then what was heard
// so far is not an answer, and is not returned. do must return soon after its
// context has ended; what it leaves behind may go on writing, in vain.
func (l Limit) Take(ctx context.Context, do func(ctx context.Context, out, errOut io.Writer) error) (out, errOut []byte, err error) {
	ctx, cut := context.WithCancel(ctx)
	defer cut()
	late := fmt.Errorf("%w: it did not end within %v", ErrLate, l.Time)
	if l.Time > 0 {
		var done context.CancelFunc
		ctx, done = context.WithTimeoutCause(ctx, l.Time, late)
		defer done()
	}
	a := &answer{left: l.Size, cut: cut}
	said, complained := part{answer: a}, part{answer: a}
	err = do(ctx, &said, &complained)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.over = true
	switch {
	case a.long:
		return nil, nil, fmt.Errorf("%w: more than %v", ErrLong, l.Size)
	case err != nil && context.Cause(ctx) == late:
		return nil, nil, late
	}
	return said.text.Bytes(), complained.text.Bytes(), err
}

// Read reads r to its end, within the limit of bytes: of what is here already, such as a file.
func (l Limit) Read(r io.Reader) ([]byte, error) {
	out, _, err := l.Take(context.Background(), func(_ context.Context, out, _ io.Writer) error {
		_, err := io.Copy(out, r)
		return err
	})
	return out, err
}

// An answer is what is taken of one.
type answer struct {
	cut func() // ends the question

	mu   sync.Mutex
	left unit.Size
	long bool // more was said than fits
	over bool // nothing more is taken
}

// A part is one stream of an answer.
type part struct {
	*answer
	text bytes.Buffer
}

func (p *part) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.over && unit.Size(len(b)) > p.left {
		p.long, p.over = true, true
		p.cut()
	}
	if p.over {
		return 0, ErrLong
	}
	p.left -= unit.Size(len(b))
	return p.text.Write(b)
}
