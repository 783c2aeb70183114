package dnctl

// A Message is one object that dnctl gives to the kernel: *Sched, *Link,
// *FlowSet, or the *Params of the object after it.
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
	FlagPipe      = 0x1000 // set by `pipe config`
)

// A Mask is which bits tell flows apart.
type Mask struct {
	Dst, Src         uint32
	DstPort, SrcPort uint16
	Proto            uint8
	Dst6, Src6       int // lengths of prefixes in bits
	FlowID           uint32
	Queue            bool
}

// A Sched configures a scheduler. Type "" keeps the existing type.
type Sched struct {
	Number  int
	Type    string
	Flags   int
	Buckets uint32
	Mask    Mask
}

// A Link configures the link of a scheduler.
type Link struct {
	Number    int
	Bandwidth uint32 // bit/s; 0: unlimited
	Delay     uint32 // ms
	Burst     uint64 // bytes
}

// A FlowSet configures a queue, or the internal queue of a pipe or scheduler.
type FlowSet struct {
	Number, Sched int
	Flags         int
	Size          int    // slots, or bytes with FlagBytes; 0: not given
	Par           [3]int // weight, lmax, priority; -1: not given
	Loss          int    // probability, 0x7fffffff is 1
	Buckets       uint32
	Mask          Mask
	RED           [4]int // w_q and max_p in units of 1/65536, the thresholds between them
}

// Params are the parameters of an AQM or a scheduler; -1: not given.
type Params struct {
	Scheduler bool
	Name      string
	Par       [10]int64
}
