package steer

import (
	"bufio"
	"fmt"
	"io"
	"time"

	"unbloat/internal/keep/follow"
	"unbloat/unit"
)

// LogMost is how long a log of what is measured and decided gets, in bytes: then the next
// is begun. With load it is filled in half a day.
const LogMost = 64 << 20

// A logbook writes the log of a controller. It is of the Follower's goroutine.
type logbook struct {
	*follow.Recorder
	open func() (io.WriteCloser, error)
	file io.WriteCloser // nil: it could not be opened
	to   *bufio.Writer
	n    int
	told unit.Instant // when it was last flushed
}

func openLogbook(c *follow.Controller, open func() (io.WriteCloser, error), now unit.Instant) (*logbook, error) {
	l := &logbook{open: open}
	err := l.next()
	l.Recorder = follow.NewRecorder(c, now, l)
	return l, err
}

func (l *logbook) next() (err error) {
	l.n = 0
	if l.file, err = l.open(); err != nil {
		return fmt.Errorf("write the log of decisions: %w", err)
	}
	l.to = bufio.NewWriterSize(l.file, 32<<10)
	return nil
}

// Write implements io.Writer. What can't be written is left out.
func (l *logbook) Write(b []byte) (int, error) {
	if l.file == nil {
		return len(b), nil
	}
	l.n += len(b)
	return l.to.Write(b)
}

// round begins the next file where one is full.
func (l *logbook) round(now unit.Instant) error {
	const flushEvery = time.Second // so that one can watch it
	if l.n < LogMost {
		if l.file == nil || now.Sub(l.told) < flushEvery {
			return nil
		}
		l.told = now
		return l.to.Flush()
	}
	err := l.Close()
	if err == nil {
		err = l.next()
	}
	l.Restart(now, l)
	return err
}

// Close ends the log.
func (l *logbook) Close() error {
	if l.file == nil {
		return nil
	}
	err := l.to.Flush()
	if e := l.file.Close(); err == nil {
		err = e
	}
	l.file = nil
	return err
}
