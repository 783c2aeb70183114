// Package plan decides how to shape a line. From the line's measured rates, the
// latency goal and what the router can do it makes a Plan in which every number
// has a reason. It is pure: it reads no clock, file or interface, and it knows
// no platform's configuration language (see internal/cure/lang).
package plan

import (
	"slices"
	"time"

	"unbloat/reason"
	"unbloat/unit"
)

// Schema names the JSON layout of a Plan.
const Schema = "unbloat.plan/1"

// AQM is a queue discipline that can stand behind the shaper, best first.
type AQM string

// Queue disciplines. CAKE shapes and schedules by itself; fq_codel and fifo are
// attached to an HTB class, a pf queue or a dummynet pipe. ClearOS's own engine
// has SFQ, which a plan uses only where there is nothing better, or on request.
const (
	CAKE    AQM = "cake"
	FQCoDel AQM = "fq_codel"
	FIFO    AQM = "fifo"
	SFQ     AQM = "sfq"
)

// LinkLayer is the line's framing, which the shaper needs to compute a packet's size.
type LinkLayer string

// Link layers as tc-stab(8) and tc-cake(8) know them.
const (
	Ethernet LinkLayer = "ethernet"
	DOCSIS   LinkLayer = "docsis"
	ATM      LinkLayer = "atm"
	PTM      LinkLayer = "ptm"
)

// A Plan is the complete shaping of one line. `unbloat apply` reads its JSON.
type Plan struct {
	Schema   string        `json:"schema"`
	Platform string        `json:"platform"` // linux, openwrt, …
	WAN      string        `json:"wan"`
	LAN      string        `json:"lan,omitempty"`
	DownBps  unit.Rate     `json:"down_bps"` // 0: this direction is not shaped
	UpBps    unit.Rate     `json:"up_bps"`
	AQM      AQM           `json:"aqm"`
	Goal     time.Duration `json:"goal_ns"` // p95 increase of the round trip to aim for
	Down     *Shaper       `json:"down,omitempty"`
	Up       *Shaper       `json:"up,omitempty"`
	Classes  *Classes      `json:"classes,omitempty"` // nil: one class for all flows
	Offloads []Offload     `json:"offloads,omitempty"`
	// FlowTable names the devices between which established connections take the short
	// way through the kernel; nil: none.
	FlowTable []string `json:"flow_table,omitempty"`
	// Limits are what single machines may carry at most.
	Limits []HardLimit `json:"limits,omitempty"`
	// Control says that ICMP, ICMPv6 and DHCP (IPv6's neighbour discovery and router
	// advertisements among them) pass before the rules of the shaper.
	Control  bool            `json:"control,omitempty"`
	Reasons  []Reason        `json:"reasons"`
	Warnings []reason.Reason `json:"-"`               // what the platform cannot do, or what looks wrong
	Basis    *Basis          `json:"basis,omitempty"` // what it was made from, which WithRates needs
}

// A Basis is what a plan was made from.
type Basis struct {
	Line         Line         `json:"line"`
	Capabilities Capabilities `json:"facts"`
	Preferences  Preferences  `json:"wishes"`
}

// A Shaper limits one direction to a rate, on the egress of Device, and manages
// the queue there. A field that is zero keeps the kernel's default.
//
// Two numbers are needed for the size of a packet on the line. Overhead is what
// the line adds to an IP packet, as CAKE's `overhead` keyword counts it (plain
// Ethernet: 14). HeaderLen is the part of it that the kernel already counts on
// Device: 14 on an Ethernet device, 0 on ppp, tun and wireguard.
//   - Overhead == HeaderLen: the kernel's count is right, and nothing is set.
//   - Otherwise CAKE gets `overhead Overhead`. tc-stab(8), which adds to the
//     kernel's count, gets `overhead StabOverhead()`.
type Shaper struct {
	Device      string        `json:"device"`               // whose egress is shaped
	IngressOf   string        `json:"ingress_of,omitempty"` // ifb: whose ingress is redirected to Device; dummynet: Device itself, shaped inbound
	Rate        unit.Rate     `json:"rate_bps"`
	AQM         AQM           `json:"aqm"`
	Overhead    int           `json:"overhead"`   // bytes the line adds to an IP packet, −64…256
	HeaderLen   int           `json:"header_len"` // the part of Overhead that the kernel already counts: 14 or 0
	MPU         int           `json:"mpu"`        // smallest size of a packet on the line in bytes, 0…256
	LinkLayer   LinkLayer     `json:"link_layer"`
	Target      time.Duration `json:"target_ns,omitempty"`    // CoDel's target: the standing delay that it accepts
	Interval    time.Duration `json:"interval_ns,omitempty"`  // CoDel's window; CAKE: its `rtt`
	ECN         bool          `json:"ecn"`                    // fq_codel: mark instead of drop (CAKE always does)
	Limit       int           `json:"limit,omitempty"`        // packets
	Flows       int           `json:"flows,omitempty"`        // fq_codel's number of queues
	Quantum     unit.Size     `json:"quantum,omitempty"`      // fq_codel: bytes that a flow may send per round
	Burst       unit.Size     `json:"burst,omitempty"`        // HTB's bucket
	ClassQ      unit.Size     `json:"class_q,omitempty"`      // HTB's class quantum; 0: as Burst
	Tins        string        `json:"tins,omitempty"`         // CAKE: besteffort, diffserv4, …
	Isolation   string        `json:"isolation,omitempty"`    // CAKE: dual-srchost, dual-dsthost, triple-isolate, …
	NAT         bool          `json:"nat,omitempty"`          // CAKE: look behind the router's own NAT
	Wash        bool          `json:"wash,omitempty"`         // CAKE: clear DSCP after using it
	Ingress     bool          `json:"ingress,omitempty"`      // CAKE: count dropped packets against the rate too
	AckFilter   bool          `json:"ack_filter,omitempty"`   // CAKE: thin out redundant TCP ACKs
	PacketRules []PacketRule  `json:"packet_rules,omitempty"` // CAKE without classes: which packets have priority; the first match counts
}

// An Offload is a feature that must be off on Device for the shaper to see real packets.
type Offload struct {
	Device  string `json:"device"`
	Feature string `json:"feature"`         // as ethtool(8) names it: tso, gso, gro
	Below   string `json:"below,omitempty"` // the WAN or LAN that Device is below: the port of a VLAN or of a bridge
}

// Beneath reports whether device is in the plan only since it is below the WAN or LAN:
// no more of it is changed than its offloads.
func (p Plan) Beneath(device string) bool {
	return device != p.WAN && device != p.LAN && slices.ContainsFunc(p.Offloads, func(o Offload) bool { return o.Device == device && o.Below != "" })
}
