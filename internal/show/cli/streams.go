package cli

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"sync"

	"github.com/charmbracelet/x/term"

	"unbloat/guard"
)

// An Outlet is standard output or standard error, and the one place where what is
// printed becomes harmless to a terminal, whoever said it. It remembers the first
// error of writing, such as a full disk, so that printing code need not check each.
type Outlet struct {
	file *os.File
	text *guard.VisibleWriter

	mu   sync.Mutex
	err  error // the first
	used bool  // something was written
}

func newOutlet(f *os.File) *Outlet {
	o := &Outlet{file: f}
	o.text = guard.NewVisibleWriter(unescaped{o})
	return o
}

// Write prints text.
func (o *Outlet) Write(b []byte) (int, error) { return o.text.Write(b) }

// Stat tells a terminal from a file.
func (o *Outlet) Stat() (fs.FileInfo, error) { return o.file.Stat() }

// Fd says how wide a terminal is, as a file does.
func (o *Outlet) Fd() uintptr { return o.file.Fd() }

// File is the terminal or file itself, for what draws a screen.
func (o *Outlet) File() *os.File { return o.file }

// unescaped is an outlet for what is no text: sequences with which the program itself
// moves the cursor, and files.
type unescaped struct{ *Outlet }

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

// Raw returns w without the escaping of text.
func Raw(w io.Writer) io.Writer {
	if o, is := w.(*Outlet); is {
		return unescaped{o}
	}
	return w
}

// ErrInterrupted says that a signal ended what waited for standard input.
var ErrInterrupted = errors.New("interrupted")

// An Inlet is standard input whose reader hears signals: a read that waits ends with
// ErrInterrupted as soon as the context ends.
type Inlet struct {
	ctx  context.Context
	file io.Reader
	rest []byte
	err  error
}

// NewInlet returns an Inlet that reads file until ctx ends.
func NewInlet(ctx context.Context, file io.Reader) *Inlet { return &Inlet{ctx: ctx, file: file} }

// Read reads like the file. A read that a signal ended goes on behind it until the
// program ends, since nothing else ends the read of a terminal.
func (i *Inlet) Read(b []byte) (int, error) {
	if i.ctx.Err() != nil {
		return 0, ErrInterrupted
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
			return 0, ErrInterrupted
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
func (i *Inlet) Fd() uintptr {
	if f, is := i.file.(*os.File); is {
		return f.Fd()
	}
	return ^uintptr(0)
}

// IsKeyboard reports whether somebody can be asked on in.
func IsKeyboard(in io.Reader) bool {
	f, is := in.(interface{ Fd() uintptr })
	return is && term.IsTerminal(f.Fd())
}
