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
	// What became of look-ups: the key's own place, another place of its
	// set, a place newly taken, or one shared for want of a free one.
	direct, hits, misses, collisions uint64
}

// find returns the place for key and reserves it. A place is taken while busy
// says so. newcomer is true when nothing of key's was queued in that place.
func (h *setHash) find(key uint32, busy func(place uint32) bool) (place uint32, newcomer bool) {
	own := key % setPlaces
	if h.keys[own] == key && busy(own) {
		h.direct++
		return own, false
	}
	way, set := own%setWays, own-own%setWays
	for i := range uint32(setWays) {
		if p := set + (way+i)%setWays; h.keys[p] == key {
			if i > 0 {
				h.hits++
			}
			return p, !busy(p)
		}
	}
	for i := range uint32(setWays) {
		if p := set + (way+i)%setWays; !busy(p) {
			h.misses++
			h.keys[p] = key
			return p, true
		}
	}
	h.collisions++
	h.keys[own] = key
	return own, true
}

// lookup returns the place that has been given to key, if it still is key's.
func (h *setHash) lookup(key uint32) (place uint32, ok bool) {
	own := key % setPlaces
	way, set := own%setWays, own-own%setWays
	for i := range uint32(setWays) {
		if p := set + (way+i)%setWays; h.keys[p] == key {
			return p, true
		}
	}
	return 0, false
}
