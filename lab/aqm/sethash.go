package aqm

// CAKE's hash table: 1024 places in sets of eight (sch_cake.c CAKE_QUEUES,
// CAKE_SET_WAYS).
const (
	setPlaces = 1024
	setWays   = 8
)

// setHash is an eight-way set-associative hash table. A key that meets another
// at its own place moves to a free place of the same set, so that 100 flows
// hardly ever share a queue; a plain table of 1024 places makes 9 of them share.
type setHash struct {
	keys [setPlaces]uint32
}

// find returns the place for key and reserves it. A place is taken while busy
// says so; a key that finds no free one shares its own place with another.
// newcomer is true when nothing of key's was queued in that place.
func (h *setHash) find(key uint32, busy func(place uint32) bool) (place uint32, newcomer bool) {
	if p, ok := h.lookup(key); ok {
		return p, !busy(p)
	}
	for i := range uint32(setWays) {
		if p := way(key, i); !busy(p) {
			h.keys[p] = key
			return p, true
		}
	}
	own := way(key, 0)
	h.keys[own] = key
	return own, true
}

// lookup returns the place that has been given to key, if it still is key's.
func (h *setHash) lookup(key uint32) (place uint32, ok bool) {
	for i := range uint32(setWays) {
		if p := way(key, i); h.keys[p] == key {
			return p, true
		}
	}
	return 0, false
}

// way returns the i-th place in which key may be, its own first.
func way(key, i uint32) uint32 {
	own := key % setPlaces
	return own - own%setWays + (own+i)%setWays
}
