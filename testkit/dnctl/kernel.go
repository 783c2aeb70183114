package dnctl

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// A scheduler is one of the kernel's, with its link. The FIFO of a pipe has the
// pipe's number plus 65536.
type scheduler struct {
	number   int
	kind     string // wf2q+, fq_codel …
	flags    int
	buckets  uint32
	mask     Mask
	link     Link
	linked   bool
	internal int // number of its own flow set; 0: none
	par      [10]int64
}

// A flowset is a queue, or the internal queue of a scheduler.
type flowset struct {
	FlowSet
	aqm string
	par [10]int64
}

// types are the kernel's schedulers, each with whether it has a queue for each
// flow set, which the kernel calls multi-queue.
func types() map[string]bool {
	return map[string]bool{"wf2q+": true, "rr": true, "qfq": true, "prio": true, "fifo": false, "fq_codel": false, "fq_pie": false}
}

// configure processes the messages of one command, as the kernel does. It
// returns false when the kernel refuses one; those before it stay in effect.
func (m *Machine) configure(all []Message) bool {
	if m.scheds == nil {
		m.scheds, m.flowsets = map[int]*scheduler{}, map[int]*flowset{}
	}
	var par *Params
	for _, x := range all {
		ok := true
		switch x := x.(type) {
		case *Params:
			par = x
		case *Sched:
			ok = m.configureSched(*x, par)
		case *Link:
			ok = m.configureLink(*x)
		case *FlowSet:
			ok = m.configureFlowSet(*x, par)
		}
		if !ok {
			return false
		}
	}
	return true
}

func (m *Machine) configureSched(x Sched, par *Params) bool {
	if x.Number <= 0 || x.Number >= maxID {
		return false
	}
	kind := strings.ToLower(x.Type)
	if _, ok := types()[kind]; !ok && kind != "" {
		return false
	}
	byPipe := x.Flags&FlagPipe != 0
	x.Flags &^= FlagPipe
	s := m.scheds[x.Number]
	switch {
	case kind == "" && s != nil && byPipe: // the pipe keeps its scheduler
	case kind == "" && s == nil && byPipe:
		m.place(x.Number, "wf2q+", Sched{}, nil)
	case kind == "" && s == nil:
		m.place(x.Number, "wf2q+", x, par)
	case kind == "":
		m.place(x.Number, s.kind, x, par)
	default:
		m.place(x.Number, kind, x, par)
	}
	if fifo := x.Number + maxID; byPipe || m.scheds[fifo] == nil {
		m.place(fifo, "fifo", x, nil)
	}
	return true
}

// place creates or replaces a scheduler, and keeps its link.
func (m *Machine) place(number int, kind string, x Sched, par *Params) {
	s := m.scheds[number]
	if s == nil || s.kind != kind {
		was := s
		s = &scheduler{number: number, kind: kind}
		if was != nil {
			s.link, s.linked = was.link, was.linked
		}
		s.par = [10]int64{5000, 100000, 1, 1514, 10240, 1024}
		if kind == "fq_pie" {
			s.par = [10]int64{15000, 15000, 150000, 8192 * 99 / 1000, 1024, 10240, 19, 1514, 10240, 1024}
		}
		m.scheds[number] = s
	}
	s.flags, s.buckets, s.mask = x.Flags&FlagMask, x.Buckets, x.Mask
	if s.flags != 0 {
		s.buckets = bound(s.buckets, 64, 1, 65536)
	}
	if !types()[kind] {
		if s.internal == 0 {
			s.internal = number + maxID
		}
		if m.flowsets[s.internal] == nil {
			m.configureFlowSet(FlowSet{Number: s.internal, Sched: number}, nil)
		}
	}
	if par != nil && par.Scheduler {
		switch kind {
		case "fq_codel":
			s.par = codelPar(par.Par, 100e6)
			for i, most := range []int64{9000, 20480, 65536} {
				s.par[3+i] = bound(or(par.Par[3+i], []int64{1514, 10240, 1024}[i]), 1, 1, most)
			}
		case "fq_pie":
			for i, v := range par.Par {
				if v >= 0 {
					s.par[i] = v
				}
			}
		}
	}
	for _, fs := range m.flowsets {
		if fs.Sched == number {
			m.attach(fs)
		}
	}
}

// codelPar returns CoDel's parameters as the kernel stores them.
func codelPar(given [10]int64, mostInterval int64) (par [10]int64) {
	par[0] = bound(or(given[0], 5000), 1, 1, 5e6)
	par[1] = bound(or(given[1], 100000), 1, 1, mostInterval)
	par[2] = max(given[2], 0)
	return par
}

// or returns v, or the default if v was not given.
func or(v, deflt int64) int64 {
	if v < 0 {
		return deflt
	}
	return v
}

// bound limits v to low and high. What is too low becomes the default.
func bound[T int | int64 | uint32](v, deflt, low, high T) T {
	if v < low {
		return min(max(deflt, low), high)
	}
	return min(v, high)
}

func (m *Machine) configureLink(x Link) bool {
	if x.Number <= 0 || x.Number >= maxID {
		return false
	}
	for _, n := range []int{x.Number, x.Number + maxID} {
		s := m.scheds[n]
		if s == nil {
			return false
		}
		s.link, s.linked = x, true
	}
	return true
}

func (m *Machine) configureFlowSet(x FlowSet, par *Params) bool {
	if x.Number <= 0 || x.Number >= 3*maxID {
		return false
	}
	was := m.flowsets[x.Number]
	if was == nil && x.Sched == 0 {
		return false
	}
	fs := &flowset{FlowSet: x}
	limit := m.SlotLimit
	if limit == 0 {
		limit = 100
	}
	if fs.Flags&FlagBytes != 0 {
		fs.Size = bound(fs.Size, 16384, 1500, 1<<20)
	} else {
		fs.Size = bound(fs.Size, 50, 1, limit)
	}
	if fs.Flags&FlagMask != 0 {
		fs.Buckets = bound(fs.Buckets, 64, 1, 65536)
	} else {
		fs.Buckets = 1
	}
	for i, v := range fs.Par {
		switch {
		case v != -1:
		case was != nil:
			fs.Par[i] = was.Par[i]
		default:
			fs.Par[i] = 0
		}
	}
	if fs.Sched == 0 {
		fs.Sched = was.Sched
	}
	if par != nil && !par.Scheduler && fs.Flags&FlagAQM != 0 {
		fs.aqm = par.Name
		if par.Name == "codel" {
			fs.par = codelPar(par.Par, 5e6)
		} else {
			fs.par = [10]int64{15000, 15000, 150000, 8192 * 99 / 1000, 1024, 10240, pieCapDrop | pieDerand | pieDRE}
			for i, v := range par.Par[:7] {
				if v >= 0 {
					fs.par[i] = v
				}
			}
		}
	}
	m.flowsets[x.Number] = fs
	m.attach(fs)
	// a flow set that `pipe config` gives to a FIFO is that scheduler's
	// internal one
	if s := m.scheds[fs.Sched]; s != nil && !types()[s.kind] && x.Number == s.number+maxID {
		s.internal = x.Number
	}
	return true
}

// attach limits the weight of a flow set as its scheduler does.
func (m *Machine) attach(fs *flowset) {
	if s := m.scheds[fs.Sched]; s != nil && s.kind == "wf2q+" {
		fs.Par[0] = bound(fs.Par[0], 1, 1, 100)
	}
}

// remove runs `pipe|queue|sched delete N…` and `ipfw delete N…`. What does not
// exist is reported, but the exit code is 0, as without a terminal.
func (r *run) remove(kind int, av []string) {
	if len(av) == 0 {
		r.fail(exitUsage, "missing rule specification")
	}
	if r.matches(av[0], "set") {
		r.unknown("sets")
	}
	for _, w := range av {
		if !digit(w) {
			break
		}
		if strings.Contains(w, "-") {
			r.unknown("ranges of numbers")
		}
		n := atoi(w)
		if kind == 0 {
			r.removeRule(n & 0xffff)
			continue
		}
		if !r.Machine.removeNumber(kind, n) {
			r.warn("rule 1: setsockopt(IP_DUMMYNET_DEL): Invalid argument")
		}
	}
}

// removeNumber deletes an object and reports whether all of it existed. A pipe
// is a scheduler and a FIFO; a scheduler cannot be deleted alone.
func (m *Machine) removeNumber(kind, n int) bool {
	switch kind {
	case pipeCommand:
		there := true
		for _, n := range []int{n, n + maxID} {
			if m.scheds[n] == nil {
				there = false
				continue
			}
			delete(m.flowsets, n+maxID)
			delete(m.scheds, n)
		}
		return there
	case queueCommand:
		_, there := m.flowsets[n]
		if n < 1 || n >= maxID {
			return false
		}
		delete(m.flowsets, n)
		return there
	}
	return false
}

// flush deletes all of dummynet, or all rules of ipfw but the last.
func (r *run) flush(kind int) {
	switch {
	case kind != 0:
		if !r.testOnly {
			r.scheds, r.flowsets = nil, nil
		}
	default:
		if !r.testOnly {
			r.rules = slices.DeleteFunc(r.rules, func(x rule) bool { return x.number != lastRule })
		}
		if !r.quiet {
			r.out.WriteString("Flushed all rules.\n")
		}
	}
}

// list runs `pipe|queue|sched show` and `ipfw list`.
func (r *run) list(kind int, av []string) {
	if len(av) > 0 {
		r.unknown("lists of some numbers")
	}
	switch kind {
	case 0:
		for _, x := range r.rules {
			r.out.WriteString(x.text + "\n")
		}
	case queueCommand:
		for _, n := range slices.Sorted(maps.Keys(r.flowsets)) {
			if n >= maxID {
				continue
			}
			r.out.WriteString(r.flowsets[n].shown())
			if c, ok := r.Counted[n]; ok {
				fmt.Fprintf(&r.out, "BKT Prot ___Source IP/port____ ____Dest. IP/port____ Tot_pkt/bytes Pkt/Byte Drp\n"+
					"  0 ip           0.0.0.0/0             0.0.0.0/0     %4d %8d %2d %4d %3d\n", c.Packets, c.Bytes, c.BacklogPackets, c.BacklogBytes, c.Drops)
			}
		}
	default:
		for _, n := range slices.Sorted(maps.Keys(r.scheds)) {
			if (n < maxID) == (kind == schedCommand) {
				r.out.WriteString(r.shownScheduler(r.scheds[n]))
			}
		}
	}
}

// shownScheduler prints a pipe or a scheduler: its link, its internal flow set,
// the scheduler, and its queues.
func (r *run) shownScheduler(s *scheduler) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%05d: %s %4d ms burst %s\n", s.number%maxID, shownRate(float64(s.link.Bandwidth)), s.link.Delay, shownBurst(r, s.link.Burst))
	if fs := r.flowsets[s.internal]; fs != nil && s.internal != 0 {
		b.WriteString(fs.shown())
	}
	fmt.Fprintf(&b, " sched %d type %s flags 0x%x %d buckets 0 active\n", s.number, strings.ToUpper(s.kind), s.flags, s.buckets)
	if s.kind == "fq_codel" {
		ecn := "NoECN"
		if s.par[2]&1 != 0 {
			ecn = "ECN"
		}
		fmt.Fprintf(&b, " FQ_CODEL target %s interval %s quantum %d limit %d flows %d %s\n", shownTime(s.par[0]), shownTime(s.par[1]), s.par[3], s.par[4], s.par[5], ecn)
	}
	if s.kind == "fq_pie" {
		r.unknown("how FQ-PIE is shown")
	}
	if s.flags&FlagMask != 0 {
		b.WriteString(s.mask.shown())
	}
	children := ""
	for _, n := range slices.Sorted(maps.Keys(r.flowsets)) {
		if n < maxID && r.flowsets[n].Sched == s.number {
			children += fmt.Sprintf("%d ", n)
		}
	}
	if children != "" {
		b.WriteString("   Children flowsets: " + children + "\n")
	}
	return b.String()
}

// shown prints a flow set.
func (fs *flowset) shown() string {
	size := fmt.Sprintf("%3d sl.", fs.Size)
	if fs.Flags&FlagBytes != 0 {
		size = fmt.Sprintf("%d B", fs.Size)
		if fs.Size >= 8192 {
			size = fmt.Sprintf("%d KB", fs.Size/1024)
		}
	}
	if fs.Loss != 0 {
		size += fmt.Sprintf("plr %f", float64(fs.Loss)/0x7fffffff)
	}
	drops := "droptail"
	switch {
	case fs.Flags&FlagRED != 0:
		g, ecn := ' ', ""
		if fs.Flags&FlagGentleRED != 0 {
			g = 'G'
		}
		if fs.Flags&FlagECN != 0 {
			ecn = " (ecn)"
		}
		drops = fmt.Sprintf("\n\t %cRED w_q %f min_th %d max_th %d max_p %f%s", g, float64(fs.RED[0])/(1<<redScale), fs.RED[1], fs.RED[2], float64(fs.RED[3])/(1<<redScale), ecn)
	case fs.aqm == "codel":
		drops = fmt.Sprintf(" AQM CoDel target %s interval %s", shownTime(fs.par[0]), shownTime(fs.par[1]))
		if fs.par[2]&1 != 0 {
			drops = drops + " ECN"
		} else {
			drops = drops + " NoECN"
		}
	case fs.aqm != "":
		drops = " AQM type PIE"
	}
	s := fmt.Sprintf("q%05d %s 0 flows (%d buckets) sched %d weight %d lmax %d pri %d %s\n", fs.Number, size, fs.Buckets, fs.Sched, fs.Par[0], fs.Par[1], fs.Par[2], drops)
	if fs.Flags&FlagMask != 0 {
		s += fs.Mask.shown()
	}
	return s
}

func (m Mask) shown() string {
	if m.Dst6 != 0 || m.Src6 != 0 || m.FlowID != 0 {
		return fmt.Sprintf("\n        mask: proto: 0x%02x, flow_id: 0x%08x,  …/0x%04x -> …/0x%04x\n", m.Proto, m.FlowID, m.SrcPort, m.DstPort)
	}
	queue := ""
	if m.Queue {
		queue = "queue,"
	}
	return fmt.Sprintf("    mask: %s 0x%02x 0x%08x/0x%04x -> 0x%08x/0x%04x\n", queue, m.Proto, m.Src, m.SrcPort, m.Dst, m.DstPort)
}

func shownRate(bits float64) string {
	switch {
	case bits == 0:
		return "unlimited     "
	case bits >= 1e9:
		return fmt.Sprintf("%7.3f Gbit/s", bits/1e9)
	case bits >= 1e6:
		return fmt.Sprintf("%7.3f Mbit/s", bits/1e6)
	case bits >= 1e3:
		return fmt.Sprintf("%7.3f Kbit/s", bits/1e3)
	}
	return fmt.Sprintf("%7.3f bit/s ", bits)
}

// shownBurst prints a burst as humanize_number(3) does, small ones only.
func shownBurst(r *run, bytes uint64) string {
	if bytes >= 1000 {
		r.unknown("how a burst of %d bytes is shown", bytes)
	}
	return fmt.Sprintf("%d", bytes)
}

// shownTime prints a time in µs as the tool does: from one second on with an f
// before the s.
func shownTime(us int64) string {
	switch {
	case us < 0:
		return ""
	case us == 0:
		return "0"
	case us < 1000:
		return fmt.Sprintf("%dus", us)
	case us < 1e6:
		return general(float32(us)/1000) + "ms"
	}
	return general(float32(us)/1e6) + "fs"
}

// general prints a float as C's %g does.
func general(f float32) string {
	s := fmt.Sprintf("%.6g", f)
	if !strings.Contains(s, "e") && strings.Contains(s, ".") {
		s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
	}
	return s
}

// State prints everything that the kernel stores and uses, unrounded: two
// kernels with equal texts are equal.
func (m *Machine) State() string {
	var b strings.Builder
	for _, n := range slices.Sorted(maps.Keys(m.scheds)) {
		s := *m.scheds[n]
		if !strings.HasPrefix(s.kind, "fq_") {
			s.par = [10]int64{}
		}
		fmt.Fprintf(&b, "%+v\n", s)
	}
	for _, n := range slices.Sorted(maps.Keys(m.flowsets)) {
		fs := *m.flowsets[n]
		s := m.scheds[fs.Sched]
		if n >= maxID && (s == nil || s.internal != n) {
			continue
		}
		if s != nil && !types()[s.kind] {
			fs.Par = [3]int{} // this scheduler has no weights
		}
		fmt.Fprintf(&b, "%+v\n", fs)
	}
	for _, name := range slices.Sorted(maps.Keys(m.tables)) {
		fmt.Fprintf(&b, "table %s %s %v\n", name, m.tables[name].kind, m.tables[name].fields)
	}
	for _, r := range m.rules {
		b.WriteString(r.text + "\n")
	}
	return b.String()
}
