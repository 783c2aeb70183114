// Package plan decides how a line is to be shaped: from the line's measured
// rates, the latency wished for and what the router can do, it makes a Plan in
// which every number carries its reason. It is pure: it reads no clock, file
// or interface, and knows no platform's language (see internal/lang).
package plan

import (
	"time"

	"unbloat/internal/reason"
	"unbloat/unit"
)

// Schema names the JSON layout of a Plan.
const Schema = "unbloat.plan/1"

// AQM is a queue discipline that can stand behind the shaper, best first.
type AQM string

// The ladder: CAKE shapes and schedules by itself; fq_codel and fifo stand
// behind an HTB class (or a pf queue, or a dummynet pipe). SFQ is what ClearOS's
// own engine has, and is never chosen where something better exists.
const (
	CAKE    AQM = "cake"
	FQCoDel AQM = "fq_codel"
	FIFO    AQM = "fifo"
	SFQ     AQM = "sfq"
)

// LinkLayer says how the line wraps packets, for the shaper's arithmetic.
type LinkLayer string

// Link layers as tc-stab(8) and tc-cake(8) know them.
const (
	Ethernet LinkLayer = "ethernet"
	DOCSIS   LinkLayer = "docsis"
	ATM      LinkLayer = "atm"
	PTM      LinkLayer = "ptm"
)

// A Plan is the whole shaping of one line. Its JSON is read back by `unbloat apply`.
type Plan struct {
	Schema   string          `json:"schema"`
	Platform string          `json:"platform"` // linux, openwrt, …
	WAN      string          `json:"wan"`
	LAN      string          `json:"lan,omitempty"`
	DownBps  unit.Rate       `json:"down_bps"` // 0: this direction is not shaped
	UpBps    unit.Rate       `json:"up_bps"`
	AQM      AQM             `json:"aqm"`
	Goal     time.Duration   `json:"goal_ns"` // the p95 increase that is aimed at
	Down     *Shaper         `json:"down,omitempty"`
	Up       *Shaper         `json:"up,omitempty"`
	Classes  *Classes        `json:"classes,omitempty"` // nil: every flow is treated alike
	Offloads []Offload       `json:"offloads,omitempty"`
	Reasons  []Reason        `json:"reasons"`
	Warnings []reason.Reason `json:"-"`               // what the platform cannot do, or what looks wrong
	Basis    *Basis          `json:"basis,omitempty"` // what it was made from; WithRates starts there
}

// A Basis is what a plan was made from.
type Basis struct {
	Line         Line         `json:"line"`
	Capabilities Capabilities `json:"facts"`
	Preferences  Preferences  `json:"wishes"`
}

// A Shaper is one direction's bottleneck: a rate held on the egress of Device,
// and the queue behind it. A zero field is left to the kernel's default.
//
// Three numbers say how long a packet is. Overhead is what the line adds to an
// IP packet, counted from the IP header on, as CAKE's `overhead` counts (plain
// Ethernet: 14). HeaderLen is how many of those bytes the kernel counts by
// itself on Device: 14 on an Ethernet device, 0 on ppp, tun and wireguard. So:
//   - Overhead == HeaderLen: the kernel's own count is right; say nothing.
//   - otherwise CAKE is told `overhead Overhead` and tc-stab(8), which starts
//     from the kernel's count, is told `overhead StabOverhead()`.
type Shaper struct {
	Device      string        `json:"device"`               // whose egress is shaped
	IngressOf   string        `json:"ingress_of,omitempty"` // ifb: whose ingress is redirected to Device; dummynet: Device itself, shaped inbound
	Rate        unit.Rate     `json:"rate_bps"`
	AQM         AQM           `json:"aqm"`
	Overhead    int           `json:"overhead"`   // bytes the line adds to an IP packet, −64…256
	HeaderLen   int           `json:"header_len"` // of these, bytes the kernel counts by itself: 14 or 0
	MPU         int           `json:"mpu"`        // least bytes a packet occupies on the line, 0…256
	LinkLayer   LinkLayer     `json:"link_layer"`
	Target      time.Duration `json:"target_ns,omitempty"`    // CoDel's acceptable standing delay
	Interval    time.Duration `json:"interval_ns,omitempty"`  // CoDel's window; CAKE: its `rtt`
	ECN         bool          `json:"ecn"`                    // fq_codel: mark instead of drop (CAKE always does)
	Limit       int           `json:"limit,omitempty"`        // packets
	Flows       int           `json:"flows,omitempty"`        // fq_codel's number of queues
	Quantum     unit.Size     `json:"quantum,omitempty"`      // fq_codel's bytes a flow may send a round
	Burst       unit.Size     `json:"burst,omitempty"`        // HTB's bucket
	ClassQ      unit.Size     `json:"class_q,omitempty"`      // HTB's class quantum; 0: as Burst
	Tins        string        `json:"tins,omitempty"`         // CAKE: besteffort, diffserv4, …
	Isolation   string        `json:"isolation,omitempty"`    // CAKE: dual-srchost, dual-dsthost, triple-isolate, …
	NAT         bool          `json:"nat,omitempty"`          // CAKE: look behind the router's own NAT
	Wash        bool          `json:"wash,omitempty"`         // CAKE: clear DSCP after using it
	Ingress     bool          `json:"ingress,omitempty"`      // CAKE: charge dropped packets to the shaper too
	AckFilter   bool          `json:"ack_filter,omitempty"`   // CAKE: thin out redundant TCP ACKs
	PacketRules []PacketRule  `json:"packet_rules,omitempty"` // CAKE without classes: which packets go first, in this order
}

// An Offload is a feature that must be off on Device for the shaper to see real packets.
type Offload struct {
	Device  string `json:"device"`
	Feature string `json:"feature"` // as ethtool(8) names it: tso, gso, gro
}
