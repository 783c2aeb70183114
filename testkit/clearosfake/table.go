package clearosfake

import "math/bits"

// A table is a Lua 5.1 table with string keys. Its iteration order matters: it
// decides which interface is first and which of two errors is reported.
type table[V any] struct {
	nodes []node[V]
	free  int // nodes from here on are taken
}

type node[V any] struct {
	key   string
	value V
	used  bool
}

// hash is Lua's hash of a string.
func hash(s string) uint32 {
	h := uint32(len(s))
	step := len(s)>>5 + 1
	for i := len(s); i >= step; i -= step {
		h ^= h<<5 + h>>2 + uint32(s[i-1])
	}
	return h
}

func (t *table[V]) at(key string) int { return int(hash(key) & uint32(len(t.nodes)-1)) }

func (t *table[V]) find(key string) int {
	for i := range t.nodes {
		if t.nodes[i].used && t.nodes[i].key == key {
			return i
		}
	}
	return -1
}

func (t *table[V]) get(key string) (v V, has bool) {
	if i := t.find(key); i >= 0 {
		return t.nodes[i].value, true
	}
	return v, false
}

// put sets a key. A new key goes to its main position: a key there that is not
// in its own main position moves to a free node, otherwise the new key does.
func (t *table[V]) put(key string, v V) {
	if i := t.find(key); i >= 0 {
		t.nodes[i].value = v
		return
	}
	if len(t.nodes) == 0 {
		t.grow(1)
		t.put(key, v)
		return
	}
	n := node[V]{key: key, value: v, used: true}
	main := t.at(key)
	if !t.nodes[main].used {
		t.nodes[main] = n
		return
	}
	for t.free--; t.free >= 0 && t.nodes[t.free].used; t.free-- {
	}
	switch {
	case t.free < 0:
		t.grow(t.len() + 1)
		t.put(key, v)
	case t.at(t.nodes[main].key) != main:
		t.nodes[t.free], t.nodes[main] = t.nodes[main], n
	default:
		t.nodes[t.free] = n
	}
}

func (t *table[V]) len() (n int) {
	for _, x := range t.nodes {
		if x.used {
			n++
		}
	}
	return n
}

// grow makes room for n keys and inserts the existing ones again, last first.
func (t *table[V]) grow(n int) {
	old := t.nodes
	size := 1 << bits.Len(uint(n-1))
	t.nodes, t.free = make([]node[V], size), size
	for i := len(old) - 1; i >= 0; i-- {
		if old[i].used {
			t.put(old[i].key, old[i].value)
		}
	}
}

// keys returns them as Lua's pairs does.
func (t *table[V]) keys() (out []string) {
	for _, x := range t.nodes {
		if x.used {
			out = append(out, x.key)
		}
	}
	return out
}
