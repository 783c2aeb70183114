package plan

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"time"

	"unbloat/internal/reason"
	"unbloat/unit"
)

// MaxRate is the highest rate that any shaper here can hold.
const MaxRate unit.Rate = 1e12

// A Language is what a platform's own configuration can say, and what its
// shaper makes of it. It is data: each platform gives its own, and this package
// knows none of them. A reason in it says what the language lacks; the zero one,
// that it lacks nothing.
type Language struct {
	Platform       string // the platform's name
	WAN, LAN       string // what interfaces are usually called
	OwnNames       bool   // interfaces have the router's own names (wan, lan, opt1 …), not the kernel's
	AQMs           []AQM  // what its current release has, best first
	Modules        bool   // an AQM that is missing may be a kernel module that is not loaded
	Sides          []Side // how a download can be shaped, the usual one first
	Step           unit.Rate
	MaxRate        unit.Rate
	Limit          int           // most packets of a fq_codel
	FIFOLimit      int           // most packets of a FIFO
	FIFOLeast      int           // fewest; 0: one
	Target         time.Duration // most; 0: 100 s
	Interval       time.Duration // most; 0: 100 s
	Flows          int           // most queues of a fq_codel
	Quantum        unit.Size     // most bytes
	HTB            bool          // the shaper is Linux's HTB: burst, class quantum, offloads
	PacketRules    bool          // single packets can be given a tin by what they are
	Classes        bool          // flows can be divided into classes by how they behave
	Weights        bool          // a class is a weight: it has no limit, and one queue for all its flows
	ClassesAsked   AQM           // with this one, by explicit rules alone, and only where somebody asks
	ClassesUnasked reason.Reason // why there are none where nobody asks
	ClassesLost    reason.Reason // why they cannot be, or what of them cannot be told
	NoCoDel        reason.Reason // why CoDel's target and interval cannot be set
	NoECN          reason.Reason // why ECN cannot be set
	NoOverhead     reason.Reason // why overhead cannot be told
	Rates          reason.Reason // which rates can be told; zero: any
	RatesWhy       reason.Reason // why no others
	NotAlone       reason.Reason // why the download cannot be shaped without the upload
	Engine         *Engine       // the platform's own shaper, beside the one that we bring; nil: none
	Rules          RuleLimits
	Article        Article
}

// An Engine is a shaper of the platform's own, which queues in SFQ and is used
// where that is asked for.
type Engine struct {
	Name     string        // as in "its own engine"
	NotAlone reason.Reason // why it shapes no direction alone
	Names    reason.Reason // which names of interfaces it takes, if letters and digits alone
	// It divides a direction into bands by per cent, of which some have no class.
	Bands    int
	BandRate unit.Rate     // the least that a band may have
	BandWhy  reason.Reason // why no less
	NoIPv6   reason.Reason // where all IPv6 goes, whatever its class
}

// BandShare returns the least part of a rate that a band may have, in per cent
// rounded up.
func (e *Engine) BandShare(r unit.Rate) int { return int((100*e.BandRate + r - 1) / r) }

// reserve returns how many per cent of a rate the classes may be guaranteed
// together.
func (e *Engine) reserve(r unit.Rate) int {
	return 100 - (e.Bands-len(AllClasses()))*e.BandShare(r)
}

// RuleLimits say what an explicit rule can't mean on a platform that has no
// classes by behaviour. Each reason is what follows the platform's name in "… is
// left out: NAME knows addresses, not names".
type RuleLimits struct {
	Domains         reason.Reason // of rules that name domains
	DSCP            reason.Reason // of rules that go by a mark
	Unmarked        reason.Reason // of rules for the mark 0
	UnnamedDSCP     reason.Reason // of marks other than be, ef, af11 … af43 and cs1 … cs7
	IPv6            reason.Reason // of rules with IPv6 addresses
	Direction       reason.Reason // of rules for one direction
	SCTP            reason.Reason // of rules for that protocol
	HomeDown        reason.Reason // of rules for a download by the home's address, which NAT hides
	HomeDownAlone   reason.Reason // that such a rule counts for the upload alone
	AcksFirst       bool          // acknowledgements without data are interactive without a rule
	SecondQueue     bool          // a connection's acknowledgements, and packets that ask for low delay, have a queue of their own
	ByConnection    bool          // a rule is matched once, by a connection's first packet
	HomeNAT         reason.Reason // of rules for a machine of the home, whose address NAT hides
	OpenedOutside   bool          // rules by a machine of the home do not find connections opened from outside
	TranslatedPorts bool          // home ports are those that NAT gave
}

// An Article is how the platform's article shapes, for StyleArticle.
type Article struct {
	Down, Up  float64 // of the measured rates
	AQM       AQM
	Rounds    bool // it rounds its rates to two digits
	NoQuantum bool // it leaves HTB's class quantum alone
}

// Assume returns what a current router of the platform has, for planning
// without access to one. Empty interface names become the platform's usual ones.
func (l *Language) Assume(wan, lan string) Capabilities {
	f := Capabilities{Platform: l.Platform, Language: l, WAN: wan, LAN: lan, AQMs: l.AQMs, Assumed: true, IFB: true}
	if f.WAN == "" {
		f.WAN = l.WAN
	}
	if f.LAN == "" {
		f.LAN = l.LAN
	}
	f.PointToPoint = bareIP(f.WAN)
	return f
}

// bareIP reports whether a device of this name usually carries IP packets
// without an Ethernet header.
func bareIP(device string) bool {
	return slices.ContainsFunc([]string{"ppp", "tun", "wg"}, func(prefix string) bool { return strings.HasPrefix(device, prefix) })
}

// MaxInterfaceName is how long Linux lets a device's name be (IFNAMSIZ − 1).
const MaxInterfaceName = 15

// IFBName returns the name of the ifb device that takes wan's ingress: "ifb4"
// and the name, or a hash of it where that is too long. A truncated name might
// be another device's.
func IFBName(wan string) string {
	if name := "ifb4" + wan; len(name) <= MaxInterfaceName {
		return name
	}
	h := fnv.New32a()
	h.Write([]byte(wan))
	return fmt.Sprintf("ifb-%08x", h.Sum32())
}

// checkName refuses what no kernel takes as a device's name, and what could be
// read as something else on a command line.
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
