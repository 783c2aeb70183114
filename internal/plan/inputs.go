package plan

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"unbloat/internal/classify"
	"unbloat/unit"
)

// A Line is what is known of the internet line. Its rates are what the modem
// carries, counted with the line's own overhead; 0 means not known.
type Line struct {
	Down      unit.Rate     `json:"down_bps,omitempty"`
	Up        unit.Rate     `json:"up_bps,omitempty"`
	RTT       time.Duration `json:"rtt_ns,omitempty"`     // idle round trip to what is used most; 0: not known
	LinkLayer LinkLayer     `json:"link_layer,omitempty"` // "": Ethernet
	Overhead  int           `json:"overhead,omitempty"`   // bytes beyond the IP packet, as Shaper.Overhead; 0: the link layer's usual
	MPU       int           `json:"mpu,omitempty"`        // 0: the link layer's usual
}

// Capabilities are what is known of the router.
type Capabilities struct {
	Platform     string              `json:"platform"`
	Language     *Language           `json:"-"` // what its configuration can say
	WAN          string              `json:"wan"`
	LAN          string              `json:"lan,omitempty"`
	MTU          int                 `json:"mtu,omitempty"`            // IP bytes on the WAN; 0: 1500
	PointToPoint bool                `json:"point_to_point,omitempty"` // the WAN has no Ethernet header: ppp, tun, wireguard
	AQMs         []AQM               `json:"aqms,omitempty"`           // what the kernel has; nil: what the platform's current release has
	Assumed      bool                `json:"assumed,omitempty"`        // no router was asked: this is what a current one of the platform has
	Untried      string              `json:"untried,omitempty"`        // why nobody could try what the kernel has, so that the platform's current release is assumed; "" if it was tried, or nobody looked
	IFB          bool                `json:"ifb"`                      // the kernel has ifb devices
	NoRules      bool                `json:"no_rules,omitempty"`       // it has no u32 filters with skbedit, which put small packets first
	NoClasses    string              `json:"no_classes,omitempty"`     // why packets cannot be divided into classes; "" if they can
	NoMarks      bool                `json:"no_marks,omitempty"`       // it has no ctinfo action, which tells arriving packets their class
	Resolver     string              `json:"resolver,omitempty"`       // the file by which its dnsmasq fills the sets of rules that name domains; "": not known
	NoResolver   string              `json:"no_resolver,omitempty"`    // why it has no resolver that can; "" if it has, or nobody looked
	Hosts        map[string][]string `json:"hosts,omitempty"`          // machines of the home by name (lower case): addresses or MAC addresses
	Offloads     []Offload           `json:"offloads,omitempty"`       // what can be switched off; nil: tso, gso and gro everywhere
}

// Side says where the download is shaped.
type Side string

// Sides. Linux has no queue on ingress, so it redirects the WAN's ingress to an
// ifb device; seed 003 and OpenBSD shape the LAN's egress; dummynet shapes
// inbound packets on the WAN itself.
const (
	SideIFB Side = "ifb"
	SideLAN Side = "lan"
	SideIn  Side = "in"
)

// Style says whose habits the plan follows.
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

// Preferences are what somebody wants of the plan. The zero value wants the best
// that the router can do, in both directions. Numbers that are zero are derived.
type Preferences struct {
	Goal      time.Duration    `json:"goal_ns,omitempty"` // p95 increase to aim at; 0: DefaultGoal
	AQM       AQM              `json:"aqm,omitempty"`     // "": the best the kernel has
	Side      Side             `json:"side,omitempty"`    // "": the platform's usual
	Style     Style            `json:"style,omitempty"`
	Only      Direction        `json:"only,omitempty"` // shape only this direction; "": both
	Down      RatePreference   `json:"down,omitzero"`
	Up        RatePreference   `json:"up,omitzero"`
	Target    time.Duration    `json:"target_ns,omitempty"`   // fq_codel only
	Interval  time.Duration    `json:"interval_ns,omitempty"` // CAKE: its `rtt`
	Latency   time.Duration    `json:"latency_ns,omitempty"`  // FIFO: how long it may be; 0: Goal, or 100 ms
	ECN       *bool            `json:"ecn,omitempty"`         // nil: by the rate
	Limit     int              `json:"limit,omitempty"`       // packets
	Flows     int              `json:"flows,omitempty"`       // fq_codel only
	Quantum   unit.Size        `json:"quantum,omitempty"`     // fq_codel only
	Tins      string           `json:"tins,omitempty"`        // CAKE only; "": besteffort
	AckFilter *bool            `json:"ack_filter,omitempty"`  // CAKE only; nil: by the line's asymmetry
	FlowsDown int              `json:"flows_down,omitempty"`  // CAKE with classes: how many downloads at once the queue is to suit; 0: a few
	Classes   ClassPreferences `json:"classes,omitzero"`
}

// A RatePreference is a rate, or a fraction of the measured one. The zero value
// leaves it to the plan.
type RatePreference struct {
	Rate     unit.Rate
	Fraction float64 // 0 < Fraction ≤ 1; used if Rate is 0
}

// IsZero reports whether nothing is wished.
func (w RatePreference) IsZero() bool { return w == RatePreference{} }

// String prints the wish so that ParseRatePreference reads the same back.
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
// measured rate such as "95%" or "0.95". The empty string is no wish.
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

// MarshalText prints the wish; UnmarshalText reads it from TOML and JSON strings.
func (w RatePreference) MarshalText() ([]byte, error) { return []byte(w.String()), nil }

// UnmarshalText reads what ParseRatePreference reads.
func (w *RatePreference) UnmarshalText(b []byte) (err error) {
	*w, err = ParseRatePreference(string(b))
	return err
}

// of returns the wished rate on a line measured at `measured`, rounded down, or
// fallback of it; 0 if that is unknown.
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
