package sim

import (
	"unsafe"

	"unbloat/internal/near"
)

// ring is a queue in one piece of memory, which is read and written in order:
// what waits there costs no search through memory, however much it is.
type ring[T any] struct {
	buf       []T // its length is a power of two
	head, len int
}

// Entries are asked for early, so many at a time; those to be read before
// anybody looks at them, farAhead of their turn.
const (
	ringStep  = 16
	ringAhead = farAhead + ringStep
)

// fetch asks for the entries from i on.
func (r *ring[T]) fetch(i int) {
	p := r.at(i - r.head)
	near.Lines(unsafe.Pointer(p), int(unsafe.Sizeof(*p))*ringStep/64)
}

// push appends x.
func (r *ring[T]) push(x T) {
	if r.len == len(r.buf) {
		grown := make([]T, max(64, 2*len(r.buf)))
		for i := range r.len {
			grown[i] = *r.at(i)
		}
		r.buf, r.head = grown, 0
	}
	i := (r.head + r.len) & (len(r.buf) - 1)
	if i%ringStep == 0 {
		r.fetch(i + ringStep)
	}
	r.buf[i] = x
	r.len++
}

// at returns entry i, counted from the first; there must be one.
func (r *ring[T]) at(i int) *T { return &r.buf[(r.head+i)&(len(r.buf)-1)] }

// pop takes off the first entry; there must be one.
func (r *ring[T]) pop() T {
	x := r.buf[r.head]
	if r.head%ringStep == 0 && r.len > ringAhead {
		r.fetch(r.head + ringAhead)
	}
	r.head = (r.head + 1) & (len(r.buf) - 1)
	r.len--
	return x
}
