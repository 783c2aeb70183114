package netio

// A hopWatch notices when what arrives comes by another path: when its hop
// limit changes and stays changed. Paths that alternate packet by packet are
// no change.
type hopWatch struct {
	now, next int // hop limits; 0: none seen
	seen      int // how often next in a row
	changes   int
}

// hopsInRow is how many datagrams in a row make a new path.
const hopsInRow = 10

// see takes in the hop limit of one datagram; 0 is not known.
func (h *hopWatch) see(limit int) {
	switch {
	case limit == 0:
	case h.now == 0:
		h.now = limit
	case limit == h.now:
		h.seen = 0
	case limit == h.next:
		if h.seen++; h.seen >= hopsInRow {
			h.now, h.seen = limit, 0
			h.changes++
		}
	default:
		h.next, h.seen = limit, 1
	}
}
