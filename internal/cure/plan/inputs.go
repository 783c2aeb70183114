package plan

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"unbloat/internal/cure/classify"
	"unbloat/unit"
)

// A Line describes the internet line. Its rates are what the modem carries,
// including the line's overhead; 0 means not known.
type Line struct {
	Down      unit.Rate     `json:"down_bps,omitempty"`
	Up        unit.Rate     `json:"up_bps,omitempty"`
	RTT       time.Duration `json:"rtt_ns,omitempty"`           // idle round trip to the servers used most; 0: not known
	LinkLayer LinkLayer     `json:"link_layer,omitempty"`       // "": Ethernet
	Overhead  int           `json:"overhead,omitempty"`         // as Shaper.Overhead; 0: the usual value of the link layer
	MPU       int           `json:"mpu,omitempty"`              // 0: the usual value of the link layer
	Measured  bool          `json:"framing_measured,omitempty"` // LinkLayer, Overhead and MPU were measured on this line, and are exact
	// What the line carried when they were; 0: not known.
	MeasuredDown unit.Rate `json:"framing_down_bps,omitempty"`
	MeasuredUp   unit.Rate `json:"framing_up_bps,omitempty"`
	Varies       bool      `json:"varies,omitempty"` // its rates change, and the shapers' follow them
}

// WithFraming returns the line with a framing that was measured on it: bytes added to each
// IP packet, the least that one occupies, and whether it is cut into ATM's cells.
func (l Line) WithFraming(overhead, mpu int, atm bool) Line {
	l.LinkLayer, l.Overhead, l.MPU, l.Measured = Ethernet, overhead, mpu, true
	if atm {
		l.LinkLayer = ATM
	}
	return l
}

// rateClass is how many times more or less a line may carry than when its framing was
// measured: beyond it the line is another, with a framing of its own.
const rateClass = 1.5

// FramingHolds reports whether the framing was measured on the line as it is now, with these rates.
func (l Line) FramingHolds(down, up unit.Rate) bool {
	same := func(then, now unit.Rate) bool {
		return then == 0 || now == 0 || float64(max(then, now)) <= rateClass*float64(min(then, now))
	}
	return l.Measured && same(l.MeasuredDown, down) && same(l.MeasuredUp, up)
}

// FramingText is the measured framing as WithFramingText reads it, in the words of
// tc-cake(8): "overhead 40 mpu 0 atm down 6Mbit/s up 700kbit/s"; "" if none was measured.
func (l Line) FramingText() string {
	if !l.Measured {
		return ""
	}
	cells := "noatm"
	if l.LinkLayer == ATM {
		cells = "atm"
	}
	s := fmt.Sprintf("overhead %d mpu %d %s", l.Overhead, l.MPU, cells)
	for _, d := range []struct {
		name string
		rate unit.Rate
	}{{"down", l.MeasuredDown}, {"up", l.MeasuredUp}} {
		if d.rate != 0 {
			s += " " + d.name + " " + strings.ReplaceAll(d.rate.String(), " ", "")
		}
	}
	return s
}

// WithFramingText returns the line with a framing that FramingText has written.
func (l Line) WithFramingText(s string) (Line, error) {
	bad := func(why string) (Line, error) {
		return l, fmt.Errorf("framing %q: %s; it is as `unbloat tune` writes it: \"overhead 40 mpu 0 atm down 6Mbit/s up 700kbit/s\"", s, why)
	}
	atm, overhead := false, false
	words := strings.Fields(s)
	for len(words) > 0 {
		word := words[0]
		words = words[1:]
		if word == "atm" || word == "noatm" {
			atm = word == "atm"
			continue
		}
		if len(words) == 0 {
			return bad("nothing stands behind " + word)
		}
		var err error
		switch value := words[0]; word {
		case "overhead":
			overhead = true
			l.Overhead, err = bytesIn(value)
		case "mpu":
			l.MPU, err = bytesIn(value)
		case "down":
			l.MeasuredDown, err = unit.ParseRate(value)
		case "up":
			l.MeasuredUp, err = unit.ParseRate(value)
		default:
			return bad(word + " is unknown")
		}
		if err != nil {
			return bad(err.Error())
		}
		words = words[1:]
	}
	if !overhead {
		return bad("it has no overhead")
	}
	return l.WithFraming(l.Overhead, l.MPU, atm), nil
}

// mostMPU is the most of Shaper.MPU, and of Overhead.
const mostMPU = 256

// bytesIn reads a number of bytes that a line may add, or a packet have at least.
func bytesIn(s string) (int, error) {
	n, err := strconv.Atoi(s)
	if err == nil && (n < 0 || n > mostMPU) {
		err = fmt.Errorf("%d bytes: must be 0 to %d", n, mostMPU)
	}
	return n, err
}

// Capabilities describe the router: what it can do, and what it lacks.
type Capabilities struct {
	Platform     string              `json:"platform"`
	Language     *Language           `json:"-"` // what its configuration can express
	WAN          string              `json:"wan"`
	LAN          string              `json:"lan,omitempty"`
	OneLAN       bool                `json:"one_lan,omitempty"`        // every machine of the home is behind LAN; false: some may be behind others
	MTU          int                 `json:"mtu,omitempty"`            // IP bytes on the WAN; 0: 1500
	PointToPoint bool                `json:"point_to_point,omitempty"` // the WAN has no Ethernet header: ppp, tun, wireguard
	AQMs         []AQM               `json:"aqms,omitempty"`           // what the kernel supports; nil: as the platform's current release
	Assumed      bool                `json:"assumed,omitempty"`        // no router was asked; these are a current router's capabilities
	Untried      string              `json:"untried,omitempty"`        // why the kernel could not be tried, so that the platform's current release is assumed; "": it was tried, or nobody looked
	IFB          bool                `json:"ifb"`                      // the kernel has ifb devices
	NoRules      bool                `json:"no_rules,omitempty"`       // it lacks u32 filters with skbedit, which give small packets priority
	NoClasses    string              `json:"no_classes,omitempty"`     // why nftables can't give classes to what rules name; "": it can
	NoBPF        string              `json:"no_bpf,omitempty"`         // why it has no BPF program that judges how flows behave; "": it can have
	SlowBPF      string              `json:"slow_bpf,omitempty"`       // why that would cost it much; "": it would not
	NoMarks      bool                `json:"no_marks,omitempty"`       // it lacks the ctinfo action, which restores the class of arriving packets
	OthersMarks  []string            `json:"others_marks,omitempty"`   // rules of other programs that write, copy or compare the bits of marks that classes use
	Work         Work                `json:"work,omitzero"`            // what its cores carry; zero: not known
	Resolver     string              `json:"resolver,omitempty"`       // configuration file with which its dnsmasq fills the sets of domain rules; "": not known
	NoResolver   string              `json:"no_resolver,omitempty"`    // why its resolver cannot fill them; "": it can, or nobody looked
	Hosts        map[string][]string `json:"hosts,omitempty"`          // addresses or MAC addresses of the home's machines, by name (lower case)
	Offloads     []Offload           `json:"offloads,omitempty"`       // which offloads can be switched off; nil: tso, gso and gro everywhere
}

// Side is where the download is shaped.
type Side string

// Sides. Linux has no queue on ingress, so it redirects the WAN's ingress to an
// ifb device; OpenBSD shapes the LAN's egress, and so can Linux; dummynet shapes
// inbound packets on the WAN itself.
const (
	SideIFB Side = "ifb"
	SideLAN Side = "lan"
	SideIn  Side = "in"
)

// Style selects our own plan or the platform's article.
type Style string

// Styles. StyleArticle sets what the platform's article sets and leaves the rest
// to the kernel's defaults; the plan's reasons say how it differs.
const (
	StyleDefault Style = ""
	StyleArticle Style = "article"
)

// oldArticle is what StyleArticle was called; flags and older plans may have it.
const oldArticle Style = "seed"

// UnmarshalText reads a style. It takes any text; Make refuses an unknown style.
func (s *Style) UnmarshalText(b []byte) error {
	*s = Style(b).current()
	return nil
}

// current returns the style by its current name.
func (s Style) current() Style {
	if s == oldArticle {
		return StyleArticle
	}
	return s
}

// Direction names one direction of the line.
type Direction = classify.Direction

// Directions, seen from the home.
const (
	DirectionDown = classify.Down
	DirectionUp   = classify.Up
)

// Preferences are the user's choices. The zero value leaves everything to the
// plan, which then shapes both directions as well as the router can.
type Preferences struct {
	Goal      time.Duration    `json:"goal_ns,omitempty"` // p95 increase to aim for; 0: DefaultGoal
	AQM       AQM              `json:"aqm,omitempty"`     // "": the best one that the kernel supports
	Side      Side             `json:"side,omitempty"`    // "": the platform's usual
	Style     Style            `json:"style,omitempty"`
	Only      Direction        `json:"only,omitempty"` // shape only this direction; "": both
	Down      RatePreference   `json:"down,omitzero"`
	Up        RatePreference   `json:"up,omitzero"`
	Target    time.Duration    `json:"target_ns,omitempty"`   // fq_codel only
	Interval  time.Duration    `json:"interval_ns,omitempty"` // CAKE: its `rtt`
	Latency   time.Duration    `json:"latency_ns,omitempty"`  // FIFO: longest wait in it; 0: Goal, or 100 ms
	ECN       *bool            `json:"ecn,omitempty"`         // nil: by the rate
	Limit     int              `json:"limit,omitempty"`       // packets
	Flows     int              `json:"flows,omitempty"`       // fq_codel only
	Quantum   unit.Size        `json:"quantum,omitempty"`     // fq_codel only
	Tins      string           `json:"tins,omitempty"`        // CAKE only; "": besteffort
	AckFilter *bool            `json:"ack_filter,omitempty"`  // CAKE only; nil: by the line's asymmetry
	FlowsDown int              `json:"flows_down,omitempty"`  // CAKE with classes: number of parallel downloads to size the queue for; 0: a few
	Classes   ClassPreferences `json:"classes,omitzero"`
	// FlowTable has the kernel carry established connections past most of its work on
	// packets (nftables' flow table, in software): less work for a weak router, and no classes.
	FlowTable bool `json:"flow_table,omitempty"`
	// Limits are what single machines may carry at most.
	Limits []HardLimit `json:"limits,omitempty"`
}

// A RatePreference is a rate, or a fraction of the measured rate. The zero value
// leaves the rate to the plan.
type RatePreference struct {
	Rate     unit.Rate
	Fraction float64 // 0 < Fraction ≤ 1; used if Rate is 0
}

// IsZero reports whether the rate is left to the plan.
func (w RatePreference) IsZero() bool { return w == RatePreference{} }

// String prints the preference in the form that ParseRatePreference reads.
func (w RatePreference) String() string {
	switch {
	case w.Rate != 0:
		return w.Rate.String()
	case w.Fraction != 0:
		return strconv.FormatFloat(w.Fraction, 'g', -1, 64)
	default:
		return ""
	}
}

// ParseRatePreference reads a rate such as "950 kbit/s", or a fraction of the
// measured rate such as "95%" or "0.95". The empty string
// leaves the rate to the plan.
func ParseRatePreference(s string) (RatePreference, error) {
	s = strings.TrimSpace(s)
	if s == "" {
		return RatePreference{}, nil
	}
	num, percent := strings.CutSuffix(s, "%")
	f, err := strconv.ParseFloat(strings.TrimSpace(num), 64)
	if err != nil {
		r, err := unit.ParseRate(s)
		return RatePreference{Rate: r}, err
	}
	if percent {
		f /= 100
	}
	if !(f > 0 && f <= 1) {
		return RatePreference{}, fmt.Errorf("rate %q: a fraction of the measured rate is above 0 and at most 1 (100%%); a rate has a unit, as in 950kbit", s)
	}
	return RatePreference{Fraction: f}, nil
}

// MarshalText prints the preference as String does, for TOML and JSON.
func (w RatePreference) MarshalText() ([]byte, error) { return []byte(w.String()), nil }

// UnmarshalText reads what ParseRatePreference reads.
func (w *RatePreference) UnmarshalText(b []byte) (err error) {
	*w, err = ParseRatePreference(string(b))
	return err
}

// of returns the rate on a line of the given measured rate, rounded down. Without
// a preference it is the fraction fallback of the measured rate. It is 0 if the
// measured rate is needed and not known.
func (w RatePreference) of(measured unit.Rate, fallback float64) unit.Rate {
	switch {
	case w.Rate != 0:
		return w.Rate
	case w.Fraction != 0:
		return measured.Scale(w.Fraction)
	default:
		return measured.Scale(fallback)
	}
}
