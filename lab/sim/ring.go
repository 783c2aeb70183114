package sim

// ring is a queue in one piece of memory, which grows to what has waited at most.
type ring[T any] struct {
	buf       []T // its length is a power of two
	head, len int
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
	r.buf[(r.head+r.len)&(len(r.buf)-1)] = x
	r.len++
}

// at returns entry i, counted from the first; there must be one.
func (r *ring[T]) at(i int) *T { return &r.buf[(r.head+i)&(len(r.buf)-1)] }

// pop takes off the first entry; there must be one.
func (r *ring[T]) pop() T {
	x := r.buf[r.head]
	r.head = (r.head + 1) & (len(r.buf) - 1)
	r.len--
	return x
}
