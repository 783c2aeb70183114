package plan

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"regexp"
	"slices"
	"strings"
	"time"

	"unbloat/reason"
	"unbloat/unit"
)

// MaxRate is the highest rate that any shaper here can hold.
const MaxRate unit.Rate = 1e12

// A Language describes what a platform's configuration can express, and the
// limits of its shaper. It is data: each platform provides its own, and this
// package knows none of them. A reason in it says why something is missing; a
// zero reason means that it is not missing.
type Language struct {
	Platform       string // the platform's name
	WAN, LAN       string // usual names of the interfaces
	OwnNames       bool   // the configuration names interfaces wan, lan, opt1 …, not as the kernel does
	AQMs           []AQM  // what its current release supports, best first
	Modules        bool   // a missing AQM may be a kernel module that is not loaded
	Sides          []Side // where a download can be shaped, the usual side first
	Step           unit.Rate
	MaxRate        unit.Rate
	Limit          int           // largest limit of a fq_codel, in packets
	FIFOLimit      int           // largest limit of a FIFO, in packets
	FIFOLeast      int           // smallest; 0: one
	Target         time.Duration // largest; 0: 100 s
	Interval       time.Duration // largest; 0: 100 s
	Flows          int           // largest number of queues of a fq_codel
	Quantum        unit.Size     // largest, in bytes
	HTB            bool          // the shaper is Linux's HTB: burst, class quantum, offloads
	PacketRules    bool          // a filter can put single packets into a tin of CAKE
	FlowTable      bool          // established connections can take a short way through the kernel that shapers still see
	HardLimits     bool          // a single machine can have a limit of its own
	Classes        bool          // flows can be classified by their behaviour
	BPF            bool          // a BPF program on the shaper can classify them
	BPFOmitted     bool          // but this build has none
	Weights        bool          // a class is a weight: it has no limit, and a single queue for its flows
	ClassesAsked   AQM           // this AQM has classes by explicit rules only, and only on request
	ClassesUnasked reason.Reason // why there are no classes unless asked for
	ClassesLost    reason.Reason // why there can be no classes, or what they lack
	NoCoDel        reason.Reason // why CoDel's target and interval cannot be set
	NoECN          reason.Reason // why ECN cannot be set
	NoOverhead     reason.Reason // why overhead cannot be set
	Rates          reason.Reason // which rates can be set; zero: any
	RatesWhy       reason.Reason // why no other rates
	Control        reason.Reason // why control traffic must pass before the rules of the shaper, and how; zero: the shaper doesn't hold it up
	NotAlone       reason.Reason // why the download cannot be shaped without the upload
	Engine         *Engine       // the platform's own shaper, which we can use instead of ours; nil: none
	Rules          RuleLimits
	Article        Article
}

// An Engine is the platform's own shaper. It queues in SFQ, and is used only on
// request.
type Engine struct {
	Name     string        // as in "its own engine"
	NotAlone reason.Reason // why it cannot shape a single direction
	Names    reason.Reason // set if it accepts only interface names of letters and digits
	// It divides a direction into bands by per cent. Some of them have no class.
	Bands    int
	BandRate unit.Rate     // smallest rate of a band
	BandWhy  reason.Reason // why not less
	NoIPv6   reason.Reason // which band all IPv6 goes to
}

// BandShare returns the smallest share that a band may have of a rate, in per
// cent, rounded up.
func (e *Engine) BandShare(r unit.Rate) int { return int((100*e.BandRate + r - 1) / r) }

// reserve returns the largest sum of the classes' guarantees, in per cent of a
// rate.
func (e *Engine) reserve(r unit.Rate) int {
	return 100 - (e.Bands-len(AllClasses()))*e.BandShare(r)
}

// RuleLimits are the limits of explicit rules on a platform that does not classify
// by behaviour. The text of each reason follows the platform's name, as in "… is
// left out: NAME knows addresses, not names".
type RuleLimits struct {
	Domains         reason.Reason // of rules that name domains
	DSCP            reason.Reason // of rules that match a DSCP
	Unmarked        reason.Reason // of rules that match DSCP 0
	UnnamedDSCP     reason.Reason // of DSCPs other than be, ef, af11 … af43 and cs1 … cs7
	IPv6            reason.Reason // of rules with IPv6 addresses
	Direction       reason.Reason // of rules for one direction
	SCTP            reason.Reason // of rules for SCTP
	HomeDown        reason.Reason // of download rules that match the home's address, which NAT hides
	HomeDownAlone   reason.Reason // why such a rule applies to the upload only
	AcksFirst       bool          // pure ACKs are interactive without a rule
	SecondQueue     bool          // a connection's pure ACKs and low-delay packets have a queue of their own
	ByConnection    bool          // rules match a connection's first packet only
	HomeNAT         reason.Reason // of rules that match a machine of the home, whose address NAT hides
	OpenedOutside   bool          // rules for a machine of the home miss connections opened from outside
	TranslatedPorts bool          // home ports are matched after NAT
}

// An Article describes how the platform's article shapes, for StyleArticle.
type Article struct {
	Down, Up  float64 // of the measured rates
	AQM       AQM
	Rounds    bool // it rounds its rates to two digits
	NoQuantum bool // it does not set HTB's class quantum
}

// Assume returns the capabilities of a current router of the platform, to plan
// without asking a router. Empty interface names become the platform's usual ones.
func (l *Language) Assume(wan, lan string) Capabilities {
	f := Capabilities{Platform: l.Platform, Language: l, WAN: wan, LAN: lan, AQMs: l.AQMs, Assumed: true, IFB: true}
	f.WAN = cmp.Or(f.WAN, l.WAN)
	f.LAN = cmp.Or(f.LAN, l.LAN)
	f.PointToPoint = bareIP(f.WAN)
	return f
}

// bareIP reports whether a device of this name usually carries IP packets
// without an Ethernet header.
func bareIP(device string) bool {
	return slices.ContainsFunc([]string{"ppp", "tun", "wg"}, func(prefix string) bool { return strings.HasPrefix(device, prefix) })
}

// MaxInterfaceName is the longest name of a device on Linux (IFNAMSIZ − 1).
const MaxInterfaceName = 15

// IFBName returns the name of the ifb device for wan's ingress: "ifb4" and the
// name, or a hash of the name if that is too long. Two long names could be equal
// when cut.
func IFBName(wan string) string {
	if name := "ifb4" + wan; len(name) <= MaxInterfaceName {
		return name
	}
	h := fnv.New32a()
	h.Write([]byte(wan))
	return fmt.Sprintf("ifb-%08x", h.Sum32())
}

// OwnName returns our name for what a WAN has of its own, in letters, digits and underscores:
// "unbloat_eth0_2e7" for eth0.7.
func OwnName(wan string) string {
	return "unbloat_" + special.ReplaceAllStringFunc(wan, func(c string) string { return fmt.Sprintf("_%02x", c) })
}

var special = regexp.MustCompile(`[^0-9A-Za-z]`)

// checkName refuses device names that no kernel accepts, and those that a command
// line could take for something else.
func checkName(field, name string) error {
	switch {
	case name == "":
		return fieldError(field, "an interface's name is missing")
	case len(name) > MaxInterfaceName:
		return fieldError(field, "%q has %d characters; an interface's name has at most %d", name, len(name), MaxInterfaceName)
	case name[0] == '-' || name == "." || name == "..":
		return fieldError(field, "%q is not an interface's name", name)
	}
	for _, c := range []byte(name) {
		letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
		if !letter && !strings.ContainsRune("._-@+", rune(c)) {
			return fieldError(field, "%q has the character %q; use letters, digits, and . _ - @ +", name, c)
		}
	}
	return nil
}
