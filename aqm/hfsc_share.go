package aqm

// Link sharing of HFSC: virtual times and upper limits (sch_hfsc.c init_vf and
// update_vf). All times are in ns, real or virtual.

// join lets leaf i take part in link sharing, and the ancestors that were idle.
func (h *HFSC) join(i int, now int64) {
	for starts := true; i > 0; i = h.classes[i].Parent {
		c := &h.classes[i]
		parent := &h.classes[c.Parent]
		if starts {
			starts = c.active == 0
			c.active++
		}
		if starts {
			h.begin(c, parent)
			if c.UpperLimit.set() {
				c.limit.lower(c.UpperLimit, now, c.total)
				c.mine = c.limit.when(c.total)
			}
		}
		h.refit(c, parent)
		if c.Parent == 0 && starts {
			parent.active++
		}
	}
}

// begin gives a class that becomes busy its virtual time: the middle of its
// busy siblings', so that it neither owes for its idleness nor profits from it.
func (h *HFSC) begin(c, parent *hfscClass) {
	latest, siblings := int64(0), false
	for _, j := range parent.children {
		if s := &h.classes[j]; s != c && s.active > 0 {
			latest = max(latest, s.vt)
			siblings = true
		}
	}
	if siblings {
		vt := latest
		if parent.childMinVT != 0 {
			vt = (parent.childMinVT + latest) / 2
		}
		if parent.period != c.ofPeriod || vt > c.vt {
			c.vt = vt
		}
	} else {
		c.vt = parent.childOffset
		parent.childMinVT = 0
	}
	c.virtual.lower(c.LinkShare, c.vt, c.total)
	c.vtAdjust = 0
	c.period++
	c.ofPeriod = parent.period
	if parent.active == 0 {
		c.ofPeriod++
	}
}

// refit recomputes when c's limits let it send, and when its parent's children do.
func (h *HFSC) refit(c, parent *hfscClass) {
	c.fit = max(c.mine, c.childFit)
	first, some := far, false
	for _, j := range parent.children {
		if s := &h.classes[j]; s.active > 0 {
			first, some = min(first, s.fit), true
		}
	}
	if !some {
		first = 0
	}
	parent.childFit = first
}

// account charges a packet of leaf i to it and its ancestors. ends says that
// the leaf is empty now.
func (h *HFSC) account(i int, wire int64, ends bool) {
	ends = ends && h.classes[i].LinkShare.set()
	for ; i > 0; i = h.classes[i].Parent {
		c := &h.classes[i]
		parent := &h.classes[c.Parent]
		c.total += wire
		if !c.LinkShare.set() || c.active == 0 {
			continue
		}
		if ends {
			c.active--
			ends = c.active == 0
		}
		c.vt = c.virtual.when(c.total) + c.vtAdjust
		if c.vt < parent.childMinVT { // it was passed over for its limit: no credit for that
			c.vtAdjust += parent.childMinVT - c.vt
			c.vt = parent.childMinVT
		}
		if c.UpperLimit.set() {
			c.mine = c.limit.when(c.total)
		}
		if ends {
			parent.childOffset = max(parent.childOffset, c.vt)
			if c.Parent == 0 {
				parent.active--
			}
		}
		h.refit(c, parent)
	}
}
