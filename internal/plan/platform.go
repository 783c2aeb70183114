package plan

import (
	"fmt"
	"hash/fnv"
	"math"
	"slices"
	"strings"
	"time"

	"unbloat/unit"
)

// Names of the platforms a plan can be made for.
const (
	Linux       = "linux"
	OpenWrt     = "openwrt"
	OPNsense    = "opnsense"
	FreeBSD     = "freebsd"
	PfSense     = "pfsense"
	OpenBSD     = "openbsd"
	OpenBSDAltq = "openbsd-altq"
	ClearOS     = "clearos"
)

// Platforms returns the platforms' names, in the contract's order.
func Platforms() []string {
	return []string{Linux, OpenWrt, OPNsense, FreeBSD, PfSense, OpenBSD, OpenBSDAltq, ClearOS}
}

// MaxRate is the highest rate that any shaper here can hold.
const MaxRate unit.Rate = 1e12

// A platform is what a router's own language can express. Its source is
// reference/platforms.md and the verdict vectors beside it.
type platform struct {
	name           string
	wan, lan       string // what interfaces are usually called
	aqms           []AQM  // what its current release has, best first
	sides          []Side // how a download can be shaped, the usual one first
	step           unit.Rate
	max            unit.Rate
	limit          int           // most packets of a fq_codel
	fifoLimit      int           // most packets of a FIFO
	fifoLeast      int           // fewest; 0: one
	target         time.Duration // most; 0: maxTime
	interval       time.Duration
	flows          int
	quantum        unit.Size
	codel          string // why target and interval cannot be set; "" if they can
	ecn            string // why ECN cannot be set; "" if it can
	overhead       string // why overhead cannot be told; "" if it can
	rates          string // which rates can be told; "": any
	ratesWhy       string // why no others
	upToo          bool   // the download cannot be shaped alone
	rules          bool   // packets can be given a tin by what they are
	classes        bool   // flows can be divided into classes
	classesAsked   AQM    // with this one, by explicit rules alone, and only where somebody asks
	classesUnasked string // why there are none where nobody asks
	classesLost    string // why they cannot be, or what of them cannot be told
	weights        bool   // a class is a weight: it has no limit, and one queue for all its flows
	htb            bool   // the shaper is Linux's HTB: burst, class quantum, offloads
	seedDown       float64
	seedUp         float64
	seedAQM        AQM
	seedRounds     bool // the article rounds its rates to two digits
	interfaceNames bool // WAN and LAN are netdevs, of at most 15 characters; otherwise wan, lan, optN
}

// platformOf returns what is known of the named platform.
func platformOf(name string) (platform, error) {
	switch name {
	case Linux, OpenWrt, ClearOS:
		return linuxPlatform(name), nil
	case OPNsense, FreeBSD, PfSense:
		return dummynetPlatform(name), nil
	case OpenBSD, OpenBSDAltq:
		return pfPlatform(name), nil
	default:
		return platform{}, fieldError("platform", "%q is unknown; use one of %s", name, strings.Join(Platforms(), ", "))
	}
}

func linuxPlatform(name string) platform {
	p := platform{
		name: name, wan: "eth0", lan: "eth1",
		aqms: []AQM{CAKE, FQCoDel, FIFO}, sides: []Side{SideIFB, SideLAN},
		step: 1, max: MaxRate,
		limit: math.MaxInt32, fifoLimit: math.MaxInt32, flows: 65536, quantum: 1 << 20,
		htb: true, rules: name == Linux, classes: name != ClearOS, interfaceNames: true,
		seedDown: 0.85, seedUp: 0.95, seedAQM: FQCoDel, seedRounds: true, // seed 003: 13 of 15, 0.95 of 1
	}
	switch name {
	case OpenWrt:
		p.wan, p.lan = "wan", "br-lan"
		p.aqms, p.sides = []AQM{CAKE, FQCoDel}, []Side{SideIFB}
		p.step = unit.KbitPerSecond
		p.rates, p.ratesWhy = "whole kbit/s", "/etc/config/sqm takes no others; what is wished is rounded down"
	case ClearOS:
		p.wan, p.lan = "ppp0", "eth1"
		p.aqms = []AQM{FQCoDel, SFQ} // its kernel (3.10) has no CAKE
		p.classesAsked = SFQ
		p.classesUnasked = "its kernel (3.10) cannot mark flows by how they behave; for traffic that a rule names ClearOS's own engine has classes with a part that is theirs, and no AQM: --aqm sfq"
		p.classesLost = "its kernel (3.10) cannot mark flows by how they behave: without a rule that names it a flow is normal, and only DNS and ping go first; ClearOS's engine marks IPv4 alone"
		p.sides = []Side{SideIFB, SideLAN}
		p.step = unit.KbitPerSecond
		p.rates, p.ratesWhy = "whole kbit/s", "network.conf takes no others; what is wished is rounded down"
		// Seed 001 enters the speeds themselves.
		p.seedDown, p.seedUp, p.seedAQM, p.seedRounds = 1, 1, SFQ, false
	}
	return p
}

func dummynetPlatform(name string) platform {
	p := platform{
		name: name, wan: "igb0", lan: "igb1",
		aqms: []AQM{FQCoDel, FIFO}, sides: []Side{SideIn},
		// UINT32_MAX itself comes out as 0, which is unlimited.
		step: 1, max: math.MaxUint32 - 1,
		limit: 20480, fifoLimit: 100, fifoLeast: 2, flows: 65535, quantum: 9000,
		target: 5 * time.Second, interval: 100 * time.Second,
		overhead:       "dummynet counts IP packets alone and cannot be told of more",
		rates:          "whole numbers, at most 4.29 Gbit/s",
		ratesWhy:       "dnctl(8) reads 9.5Mbit/s as 9 bit/s, so a fraction is written in the next smaller unit; the kernel counts bit/s in 32 bits",
		interfaceNames: true,
		classesLost:    "dummynet's fq_codel takes all queues of a pipe for one and looks at no weight, so rules would sort packets for nothing; it lets flows that send little go first by itself",
		seedDown:       0.97, seedUp: 0.97, seedAQM: FQCoDel, // seed 000
	}
	p.upToo = name == PfSense
	p.classesAsked, p.weights = FQCoDel, true
	p.classesUnasked = p.classesLost + "; a rule that names traffic (--rule, --classes) has WF2Q+ in its place, with a queue of its own weight for each class"
	first := "only DNS, ping and acknowledgements without data go first"
	if name == PfSense {
		first = "only DNS and ping go first; pf gives a connection its queues once, so acknowledgements are of its class"
	}
	p.classesLost = "dummynet does not know how a flow behaves: without a rule that names it a flow is normal, and " + first + "; WF2Q+ has one CoDel queue for a class, so its flows and machines wait for each other"
	if name == OPNsense {
		p.wan, p.lan, p.interfaceNames = "wan", "lan", false
		p.interval = 10 * time.Second // its model's
	}
	return p
}

func pfPlatform(name string) platform {
	p := platform{
		name: name, wan: "em0", lan: "em1",
		aqms: []AQM{FQCoDel, FIFO}, sides: []Side{SideLAN},
		step: 1, max: 100 * unit.GbitPerSecond,
		limit: 65535, fifoLimit: 65535, flows: 32767, quantum: 65535,
		codel:          "pf.conf(5) has no word for CoDel's target and interval; they are 5 ms and 100 ms",
		ecn:            "pf's flow queues drop and never mark",
		overhead:       "pf counts Ethernet frames and cannot be told of more",
		interfaceNames: true,
		classesAsked:   FQCoDel,
		classesUnasked: "pf does not know how a flow behaves; a rule that names traffic (--rule, --classes) has a queue made for it",
		classesLost:    "pf does not know how a flow behaves: without a rule that names it a flow is normal, and only DNS, ping and acknowledgements without data go first",
		seedDown:       0.92, seedUp: 0.92, seedAQM: FQCoDel, seedRounds: true, // seed 004: 110 of 120, 11 of 12
	}
	if name == OpenBSDAltq {
		p.aqms, p.classesAsked = []AQM{FIFO}, FIFO
		p.classesUnasked = "ALTQ has one short FIFO for everything here; its latency is what all traffic gets. pf does not know how a flow behaves, but a rule that names traffic (--rule, --classes) has a queue made for its class"
		p.classesLost += "; ALTQ has one FIFO for a class, so its flows and machines wait for each other"
		p.max = math.MaxUint32 // u_int32_t in struct pf_altq
		p.rates, p.ratesWhy = "at most 4.29 Gbit/s", "ALTQ counts bit/s in 32 bits"
		// Seed 002: 1 of 1.1 Mbit/s; "typical would be 97 %".
		p.seedDown, p.seedUp, p.seedAQM, p.seedRounds = 0.97, 1/1.1, FIFO, false
	}
	return p
}

// AssumedFacts returns what a current router of the platform has, for planning
// without access to one. Empty interface names become the platform's usual ones.
func AssumedFacts(name, wan, lan string) (Facts, error) {
	p, err := platformOf(name)
	if err != nil {
		return Facts{}, err
	}
	f := Facts{Platform: name, WAN: wan, LAN: lan, AQMs: p.aqms, IFB: true}
	if f.WAN == "" {
		f.WAN = p.wan
	}
	if f.LAN == "" {
		f.LAN = p.lan
	}
	f.PointToPoint = bareIP(f.WAN)
	return f, nil
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
