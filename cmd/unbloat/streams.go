package main

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"sync"

	"github.com/charmbracelet/x/term"

	"unbloat/internal/visible"
)

// An outlet is standard output or standard error, and the one place where what is
// printed becomes harmless to a terminal, whoever said it. It remembers the first
// error of writing, such as a full disk, so that printing code need not check each.
type outlet struct {
	file *os.File
	text *visible.Writer

	mu   sync.Mutex
	err  error // the first
	used bool  // something was written
}

func newOutlet(f *os.File) *outlet {
	o := &outlet{file: f}
	o.text = visible.NewWriter(unescaped{o})
	return o
}

// Write prints text.
func (o *outlet) Write(b []byte) (int, error) { return o.text.Write(b) }

// Stat and Fd tell a terminal from a file, and how wide it is.
func (o *outlet) Stat() (fs.FileInfo, error) { return o.file.Stat() }
func (o *outlet) Fd() uintptr                { return o.file.Fd() }

// unescaped is an outlet for what is no text: sequences with which the program itself
// moves the cursor, and files.
type unescaped struct{ *outlet }

func (o unescaped) Write(b []byte) (int, error) {
	n, err := o.file.Write(b)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.used = true
	if o.err == nil {
		o.err = err
	}
	return n, err
}

// raw returns w without the escaping of text.
func raw(w io.Writer) io.Writer {
	if o, is := w.(*outlet); is {
		return unescaped{o}
	}
	return w
}

// errInterrupted says that a signal ended what waited for standard input.
var errInterrupted = errors.New("interrupted")

// An inlet is standard input whose reader hears signals: a read that waits ends with
// errInterrupted as soon as the context ends.
type inlet struct {
	ctx  context.Context
	file io.Reader
	rest []byte
	err  error
}

// Read reads like the file. A read that a signal ended goes on behind it until the
// program ends, since nothing else ends the read of a terminal.
func (i *inlet) Read(b []byte) (int, error) {
	if i.ctx.Err() != nil {
		return 0, errInterrupted
	}
	if len(i.rest) == 0 && i.err == nil {
		type piece struct {
			b   []byte
			err error
		}
		next := make(chan piece, 1)
		go func() {
			b := make([]byte, 32<<10)
			n, err := i.file.Read(b)
			next <- piece{b[:n], err}
		}()
		select {
		case <-i.ctx.Done():
			return 0, errInterrupted
		case p := <-next:
			i.rest, i.err = p.b, p.err
		}
	}
	if len(i.rest) == 0 {
		return 0, i.err
	}
	n := copy(b, i.rest)
	i.rest = i.rest[n:]
	return n, nil
}

// Fd tells a terminal from a file.
func (i *inlet) Fd() uintptr {
	if f, is := i.file.(*os.File); is {
		return f.Fd()
	}
	return ^uintptr(0)
}

// isKeyboard reports whether somebody can be asked on in.
func isKeyboard(in io.Reader) bool {
	f, is := in.(interface{ Fd() uintptr })
	return is && term.IsTerminal(f.Fd())
}
