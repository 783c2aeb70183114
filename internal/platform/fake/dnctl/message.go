package dnctl

// A Message is one object of what dnctl hands to the kernel: *Sched, *Link,
// *FlowSet or *Params, which belongs to the object behind it.
type Message any

// Flags of schedulers and flow sets.
const (
	FlagMask      = 0x1
	FlagNoError   = 0x2
	FlagBytes     = 0x8 // the queue's length is in bytes
	FlagRED       = 0x20
	FlagGentleRED = 0x40
	FlagECN       = 0x80
	FlagAQM       = 0x100
	FlagPipe      = 0x1000 // it came by `pipe config`
)

// A Mask is which bits tell flows apart.
type Mask struct {
	Dst, Src         uint32
	DstPort, SrcPort uint16
	Proto            uint8
	Dst6, Src6       int // bits of the prefix
	FlowID           uint32
	Queue            bool
}

// A Sched configures a scheduler. Type "" keeps the one that is there.
type Sched struct {
	Number  int
	Type    string
	Flags   int
	Buckets uint32
	Mask    Mask
}

// A Link configures what a scheduler sends at.
type Link struct {
	Number    int
	Bandwidth uint32 // bit/s; 0: unlimited
	Delay     uint32 // ms
	Burst     uint64 // bytes
}

// A FlowSet configures a queue, or the internal one of a pipe or scheduler.
type FlowSet struct {
	Number, Sched int
	Flags         int
	Size          int    // slots, or bytes with FlagBytes; 0: not given
	Par           [3]int // weight, lmax, priority; -1: not given
	Loss          int    // of 0x7fffffff
	Buckets       uint32
	Mask          Mask
	RED           [4]int // w_q and max_p of 65536, thresholds between them
}

// Params are those of an AQM or a scheduler; -1: not given.
type Params struct {
	Scheduler bool
	Name      string
	Par       [10]int64
}
