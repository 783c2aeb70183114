package aqm

import (
	"fmt"
	"time"

	"unbloat/unit"
)

// Dialect names one implementation's reading of CoDel and FQ-CoDel.
type Dialect uint8

// The dialects. Their zero value is the RFCs' own text.
const (
	RFC       Dialect = iota // RFC 8289 (CoDel) and RFC 8290 (FQ-CoDel), with exact square roots
	Linux612                 // Linux 6.12 as of 2026: with commit 815980fe6dbb, which see in codel.go
	Linux73                  // Linux 7.3 and later
	OpenBSD78                // OpenBSD 6.2 to 7.8: fq_codel.c 1.16
	OpenBSD80                // OpenBSD 8.0: fq_codel.c 1.21
	FreeBSD                  // FreeBSD and its heirs, dummynet, hz = 1000
	NS3                      // ns-3's models, whose published tests are tests here
)

// String returns the dialect's name as golden traces write it.
func (d Dialect) String() string { return d.traits().name }

// ParseDialect returns the dialect of that name, as String prints it.
func ParseDialect(name string) (Dialect, error) {
	known := ""
	for d := RFC; d <= NS3; d++ {
		if d.String() == name {
			return d, nil
		}
		if known != "" {
			known += ", "
		}
		known += d.String()
	}
	return 0, fmt.Errorf("unknown implementation %q; known are %s", name, known)
}

// exemption says which small backlog is never signalled, however old it is.
type exemption uint8

const (
	wholeToMTU      exemption = iota // the whole queue's, without the head, ≤ MTU
	flowToMTU                        // the flow's, without the head, ≤ MTU
	flowBelowMTU                     // the flow's, without the head, < MTU
	flowToLargest                    // the flow's, without the head, ≤ the largest packet it ever had
	flowToQuantum                    // the flow's, with the head, ≤ quantum
	restToQuantum                    // the flow's, without the head, ≤ quantum
	dummynetLargest = 500            // what dummynet takes for the largest before it saw one
)

// controlLaw says how interval/√count is computed.
type controlLaw uint8

const (
	lawExact    controlLaw = iota // integer square root, rounded down
	lawNewton16                   // Linux: one Newton step on a 16-bit fraction for each count
	lawTable                      // OpenBSD: 399 table entries, the last for every larger count
	lawDummynet                   // FreeBSD: one Newton step on a 16-bit fraction, count 1 exact
)

// relief says what FQ-CoDel does when it is over its limit.
type relief uint8

const (
	dropHalf      relief = iota // head-drop the flow with most bytes until half of them, or 64 packets, are gone
	dropHalfCount               // head-drop half the packets, at most 64, of the flow with most bytes
	dropOneBytes                // head-drop one packet of the flow with most bytes
	dropOneCount                // head-drop one packet of the flow with most packets
)

// traits is everything in which the dialects differ. Each field's comment says
// who does what, and where that is written.
type traits struct {
	name string

	// tick is the clock's resolution and shift its power-of-two form.
	// Linux counts ns>>10 in 32 bits and compares by serial number (codel.h);
	// OpenBSD counts ns in 64 bits; dummynet µs that advance by a tick of
	// 1/hz s (dn_aqm.h AQM_UNOW). Not reproduced: dummynet's clock, compared
	// without regard to wrapping, is wrong for an instant every 71 minutes.
	shift   uint8
	serial  bool
	tick    time.Duration
	microns bool

	// atOnce: a packet may be dropped at first_above_time (RFC 8289
	// section 5.5, dn_aqm_codel.h, fq_codel.c 1.21), not only after it
	// (codel_impl.h codel_time_after, fq_codel.c 1.16).
	atOnce bool

	// exempt: see exemption. codel_impl.h passes the backlog of the qdisc;
	// RFC 8289 section 5.5 that of the queue; ns-3 codel-queue-disc.cc < MinBytes.
	exempt exemption

	// countLate: the count rises after the drop, and only if dropping goes
	// on (RFC 8289 section 5.5, dn_aqm_codel.h); else with each drop.
	countLate bool

	// law: see controlLaw; fromTwo: the table is entered one place late, so
	// that the first gap is interval/√2 (fq_codel.c before 1.21).
	law     controlLaw
	fromTwo bool

	// minimumGap: a gap is at least one tick, and at most maxDrops packets
	// are dropped at once (Linux 7.3 codel_impl.h). 0 means no bound.
	minimumGap int64
	maxDrops   int

	// minusTwo: re-entry goes on from count − 2 when count > 2 and fewer
	// than 8 intervals passed since drop_next (dn_aqm_codel.h, where a
	// drop_next still ahead also counts as long ago); else from
	// count − lastcount when that is > 1 and fewer than 16 intervals passed.
	// fixedGrace: the 16 intervals are 1.6 s whatever the interval
	// (fq_codel.c before 1.21). narrow: counts have 16 bits (fq_codel.c).
	minusTwo, fixedGrace, narrow bool

	// noECN: never marks (fq_codel.c). freshStart: a flow that becomes
	// active forgets its dropping state (dn_sched_fq_codel.c).
	noECN, freshStart bool

	// relief: see relief. RFC 8290 section 4.1.1 and sch_fq_codel.c drop
	// half; countDrops: sch_fq_codel.c adds these drops to the flow's count.
	// Not reproduced: fq_codel.c 1.21 hands the drops of a batch over one for
	// each enqueue and does not look at the limit meanwhile. That changes no
	// packet's fate, because so few enqueues cannot reach the limit again.
	// fixedLimit: the limit is this constant whatever is configured, and
	// reached at it, not above it (fq_codel.c before 1.21).
	relief     relief
	countDrops bool
	fixedLimit int

	// leastQuantum: a smaller one is taken for this (sch_fq_codel.c fq_codel_change).
	leastQuantum unit.Size

	// alwaysOld: a new flow found empty always becomes old (RFC 8290
	// section 4.2, dn_sched_fq_codel.c), not only while there are old ones
	// (sch_fq_codel.c, fq_codel.c). strictDeficit: a flow is served with a
	// deficit of 0 (dn_sched_fq_codel.c), else only above 0.
	alwaysOld, strictDeficit bool
}

// traits returns what sets the dialect apart.
func (d Dialect) traits() traits {
	linux := traits{
		name: "linux-6.12", shift: 10, serial: true, exempt: wholeToMTU,
		law: lawNewton16, relief: dropHalf, countDrops: true, leastQuantum: 256,
	}
	switch d {
	case RFC:
		return traits{
			name: "rfc", atOnce: true, exempt: flowToMTU, countLate: true,
			law: lawExact, relief: dropHalf, alwaysOld: true,
		}
	case Linux612:
		return linux
	case Linux73:
		linux.name, linux.minimumGap, linux.maxDrops = "linux-7.3", 1, 256
		return linux
	case OpenBSD78:
		return traits{
			name: "openbsd-1.16", exempt: flowToQuantum, law: lawTable, fromTwo: true,
			narrow: true, fixedGrace: true, noECN: true, relief: dropOneBytes, fixedLimit: 1024,
		}
	case OpenBSD80:
		return traits{
			name: "openbsd-1.21", atOnce: true, exempt: restToQuantum, law: lawTable,
			narrow: true, noECN: true, relief: dropHalfCount,
		}
	case FreeBSD:
		return traits{
			name: "freebsd", tick: time.Millisecond, microns: true, atOnce: true,
			exempt: flowToLargest, countLate: true, law: lawDummynet, minusTwo: true,
			freshStart: true, relief: dropOneCount, alwaysOld: true, strictDeficit: true,
		}
	case NS3:
		linux.name, linux.exempt, linux.countDrops, linux.leastQuantum = "ns-3", flowBelowMTU, false, 0
		return linux
	}
	panic(fmt.Sprintf("aqm: no dialect %d", d))
}

// CoDelParams sets CoDel up. DefaultCoDel fills it as an implementation does.
type CoDelParams struct {
	Dialect  Dialect
	Target   time.Duration // acceptable standing delay, usually 5 ms
	Interval time.Duration // about the longest usual round trip, usually 100 ms
	MTU      unit.Size     // backlogs up to this are never signalled; see exemption
	ECN      bool          // mark packets that understand it; ignored by OpenBSD
	// CEThreshold marks every ECN-capable packet that waited longer (Linux
	// ce_threshold); 0 turns it off.
	CEThreshold time.Duration
	Packets     int      // CoDel's limit in packets; FQ-CoDel has its own
	Drop        DropFunc // told of each drop; may be nil
}

// DefaultCoDel returns what the dialect uses when nothing is configured:
// target 5 ms, interval 100 ms, Ethernet's 1514-byte frames, and 1000 packets.
func DefaultCoDel(d Dialect) CoDelParams {
	return CoDelParams{
		Dialect: d, Target: 5 * time.Millisecond, Interval: 100 * time.Millisecond,
		MTU: 1514, Packets: 1000,
	}
}

// FQCoDelParams sets FQ-CoDel up. DefaultFQCoDel fills it as an implementation does.
type FQCoDelParams struct {
	CoDel   CoDelParams // Packets and Drop are used too: the limit of all flows together
	Flows   int         // buckets that flow keys are reduced to, 1–65536; key modulo Flows
	Quantum unit.Size   // bytes of each flow a round; Linux takes 256 for less
	// Memory limits the memory of queued packets, counted as Linux does
	// (memoryOf in store.go); 0 means no such limit.
	Memory unit.Size
	// Batch is how many packets an overflow may drop at once, 0 for the
	// usual 64. Dialects that drop one at a time ignore it.
	Batch int
}

// DefaultFQCoDel returns what the dialect uses when nothing is configured.
func DefaultFQCoDel(d Dialect) FQCoDelParams {
	p := FQCoDelParams{CoDel: DefaultCoDel(d), Flows: 1024, Quantum: 1514, Batch: 64}
	p.CoDel.Packets = 10240
	switch d {
	case RFC, FreeBSD, NS3: // RFC 8290 section 5.2; dn_sched_fq_codel.c fq_codel_sysctl
		p.CoDel.ECN = true
	case Linux612, Linux73: // sch_fq_codel.c fq_codel_init
		p.CoDel.ECN = true
		p.Memory = 32 << 20
	case OpenBSD78, OpenBSD80: // fq_codel.c fqcodel_qlimit
		p.CoDel.Packets = 1024
	}
	return p
}
