// Package scenario reads scenarios/*.toml: a line, what the household does on
// it, and the cases (ways to run the router) that are compared. The lab runs
// them on a real kernel and the simulator in a model; the format is one.
package scenario

import (
	"fmt"
	"slices"
	"time"

	"unbloat/unit"
)

// A Scenario is one file: a line, loads and cases.
type Scenario struct {
	Name   string `json:"name"`   // letters, digits, - and _
	Title  string `json:"title"`  // one line for people
	Source string `json:"source"` // where the situation was described
	Line   Line   `json:"line"`
	Probe  Probe  `json:"probe"`
	Test   Test   `json:"test"`
	Home   Home   `json:"home"`
	Loads  []Load `json:"load,omitempty"`
	Cases  []Case `json:"case"`
}

// A Line is the access line: what the modem and the provider do to packets.
type Line struct {
	Down       unit.Rate     `json:"down"`
	Up         unit.Rate     `json:"up"`
	RTT        time.Duration `json:"rtt"`         // idle
	BufferDown unit.Size     `json:"buffer_down"` // what the provider queues towards the home
	BufferUp   unit.Size     `json:"buffer_up"`   // what the modem queues
	// HeadDrop is for how long packets wait at most in queues that make room by dropping
	// what waits longest, as Starlink's do; 0: they have buffers, and drop what comes.
	HeadDrop time.Duration `json:"head_drop,omitempty"`
	// EchoOnly says that ICMP timestamps are not answered, echoes alone.
	EchoOnly  bool          `json:"echo_only,omitempty"`
	Jitter    time.Duration `json:"jitter,omitempty"`
	Loss      float64       `json:"loss,omitempty"`     // each way, 0–1
	Overhead  int           `json:"overhead,omitempty"` // bytes a packet costs on the line beyond its Ethernet frame
	MPU       int           `json:"mpu,omitempty"`      // least bytes that a packet occupies on the line
	LinkLayer string        `json:"link_layer,omitempty"`
	Vary      []Change      `json:"vary,omitempty"`
	// Trace is the name of a file with the line's rates over time, beside the
	// scenario's own; Scenario.SetTrace takes its text in, as changes.
	Trace string `json:"trace,omitempty"`
	// TraceFrom is when the trace begins, since the measuring began.
	TraceFrom time.Duration `json:"trace_from,omitempty"`
}

// leastHeadDrop keeps the first window of a TCP flow from being dropped at the least rates.
const leastHeadDrop = 10

// HeadDropPackets is how many full frames a queue of HeadDrop holds at a rate.
func (l Line) HeadDropPackets(rate unit.Rate) int {
	return max(int(rate.Bytes(l.HeadDrop)/fullFrame), leastHeadDrop)
}

const fullFrame = 1514 * unit.Byte

// A Change of the line while the case runs. A rate of zero stays as it was,
// unless Exact is set: then the line carries nothing until the next change.
type Change struct {
	At    time.Duration `json:"at"` // since the measuring began
	Down  unit.Rate     `json:"down,omitempty"`
	Up    unit.Rate     `json:"up,omitempty"`
	Exact bool          `json:"exact,omitempty"`
	// More is how much longer packets take to the home from now on; 0: as long as before.
	More time.Duration `json:"more,omitempty"`
	// Silent says that from now on nobody answers the router's pings.
	Silent bool `json:"silent,omitempty"`
}

// Probe says how latency is sampled. Zero values take the measuring defaults.
type Probe struct {
	Interval time.Duration `json:"interval,omitempty"`
	Bytes    int           `json:"bytes,omitempty"` // UDP payload
}

// Test says how long and with how many flows the phases run, and what the tuner
// is to hold. Zero values take the defaults of measuring and tuning.
type Test struct {
	Seconds   time.Duration `json:"seconds,omitempty"` // of each phase under load
	Idle      time.Duration `json:"idle,omitempty"`
	FlowsDown int           `json:"flows_down,omitempty"` // where the scenario brings no loads
	FlowsUp   int           `json:"flows_up,omitempty"`
	Goal      time.Duration `json:"goal,omitempty"`  // p95 increase
	Whole     bool          `json:"whole,omitempty"` // count the phase with loads from its first instant on, slow start too
}

// Home says how the home's machines are.
type Home struct {
	ECN bool `json:"ecn,omitempty"` // their TCP asks for ECN (net.ipv4.tcp_ecn = 1)
	// Away is how much longer the round trip of each machine is, from the first
	// on: what a VPN or a far server adds. Machines beyond it have 0.
	Away []time.Duration `json:"away,omitempty"`
	// Queues is how many transmit queues every interface has, as network cards for
	// several cores do; 0 and 1: one.
	Queues int `json:"queues,omitempty"`
}

// AwayOf returns how much longer the round trip of a machine is, counted from 1.
func (h Home) AwayOf(host int) time.Duration {
	if host < 1 || host > len(h.Away) {
		return 0
	}
	return h.Away[host-1]
}

// Kinds of load. Those that need another program say so when they start.
const (
	Upload   = "upload"   // greedy TCP flows
	Download = "download" // the same, towards the home
	UDP      = "udp"      // datagrams at a rate, whether they arrive or not
	VoIP     = "voip"     // G.711: 50 packets a second both ways
	Torrent  = "torrent"  // a BitTorrent client in a swarm, both ways
	IMAP     = "imap"     // a mailbox being synchronised
	Web      = "web"      // pages being read
	Game     = "game"     // small datagrams both ways
	DNS      = "dns"      // names being resolved
	SSH      = "ssh"      // keystrokes and their echo
	Video    = "video"    // segments fetched into a player's buffer
	WebRTC   = "webrtc"   // a call with audio and video

	CloudGame    = "cloud-game"    // a game that a server plays: pictures down, input up
	QUICUpload   = "quic-upload"   // greedy flows by HTTP/3
	QUICDownload = "quic-download" // the same, towards the home
)

// A Load is what one machine of the home does during a case.
type Load struct {
	Kind      string        `json:"kind"`
	Flows     int           `json:"flows"`                // at least 1: connections, calls, readers, players
	Host      int           `json:"host"`                 // which machine of the home, from 1
	CC        string        `json:"cc,omitempty"`         // upload, download: TCP congestion control; "" is the kernel's default
	Start     time.Duration `json:"start,omitempty"`      // since the loaded phase began
	Stop      time.Duration `json:"stop,omitempty"`       // 0: at its end
	Rate      unit.Rate     `json:"rate,omitempty"`       // udp: on the wire, each flow; cloud-game: of its pictures
	Bytes     int           `json:"bytes,omitempty"`      // udp, game: payload of a packet; 0: the kind's own
	BytesDown int           `json:"bytes_down,omitempty"` // game: payload of a packet down; 0: the same as up
	Direction string        `json:"direction,omitempty"`  // udp: "up" (default) or "down"
	Peers     int           `json:"peers,omitempty"`      // torrent: how many others are in the swarm
	Transport string        `json:"transport,omitempty"`  // torrent: "tcp" or "utp"
	Messages  int           `json:"messages,omitempty"`   // imap: in the mailbox
	Objects   int           `json:"objects,omitempty"`    // web: of a page, beside its HTML
	Think     time.Duration `json:"think,omitempty"`      // web: between a page and the next
	PPS       int           `json:"pps,omitempty"`        // game: packets a second, each way
	Interval  time.Duration `json:"interval,omitempty"`   // dns, ssh: between questions, between keys
	Bitrate   unit.Rate     `json:"bitrate,omitempty"`    // webrtc: the most that its video sends
	Through   string        `json:"through,omitempty"`    // webrtc: "tls": by TCP; "tunnel": beside an upload in one UDP flow; "": as it is
	DSCP      string        `json:"dscp,omitempty"`       // webrtc: how both ends mark their packets; "": not
}

// How a call's packets may go: by a relay (TURN) over TLS on TCP 443, or in a tunnel
// that carries an upload too, as WireGuard does.
const (
	ThroughTLS    = "tls"
	ThroughTunnel = "tunnel"
)

// CodePoint is the DSCP with which a load's packets are marked.
func (l Load) CodePoint() uint8 {
	switch l.DSCP {
	case "af41":
		return 34
	case "nqb":
		return 45
	case "ef":
		return 46
	}
	return 0
}

// A Case is one way to run the router.
type Case struct {
	Name   string `json:"name"`
	Router Router `json:"router"`
	Marked string `json:"marked,omitempty"` // the DSCP of its calls, as Load.DSCP; "": what each load says
}

// Of returns the scenario as a case has it: with the case's own mark on its calls.
func (s *Scenario) Of(name string) (*Scenario, error) {
	c, err := s.Case(name)
	if err != nil || c.Marked == "" {
		return s, err
	}
	out := *s
	out.Loads = slices.Clone(s.Loads)
	for i := range out.Loads {
		if out.Loads[i].Kind == WebRTC {
			out.Loads[i].DSCP = c.Marked
		}
	}
	return &out, nil
}

// Router modes: nothing is done, unbloat finds the shaping, a Fix is given, the
// daemon keeps it in place; and what the daemon is compared with: CAKE that always
// knows what the line carries, and cake-autorate.
const (
	ModeNone     = "none"
	ModeTune     = "tune"
	ModeFix      = "fix"
	ModeDaemon   = "daemon"
	ModeOracle   = "oracle"
	ModeAutorate = "cake_autorate"
)

// A Router says what the home's router does in a case.
type Router struct {
	Mode   string  `json:"mode"`
	Fix    *Fix    `json:"fix,omitempty"`
	Daemon *Daemon `json:"daemon,omitempty"` // of ModeAutorate too: its rates and bounds
	Oracle float64 `json:"oracle,omitempty"` // share of what the line carries that the shapers have, 0–1
}

// A Daemon is what the configuration of `unbloat daemon` says of the WAN.
type Daemon struct {
	Down      unit.Rate `json:"down"` // what the line usually carries
	Up        unit.Rate `json:"up"`
	Follow    bool      `json:"follow,omitempty"`     // follow the line between these bounds
	LeastDown unit.Rate `json:"least_down,omitempty"` // 0: it is learnt
	MostDown  unit.Rate `json:"most_down,omitempty"`  // 0: it is learnt
	LeastUp   unit.Rate `json:"least_up,omitempty"`
	MostUp    unit.Rate `json:"most_up,omitempty"`
}

// A Fix is a shaping chosen by hand: what is not given is planned.
type Fix struct {
	AQM      string        `json:"aqm,omitempty"`
	Down     unit.Rate     `json:"down,omitempty"`
	Up       unit.Rate     `json:"up,omitempty"`
	Target   time.Duration `json:"target,omitempty"`
	Interval time.Duration `json:"interval,omitempty"`
	ECN      *bool         `json:"ecn,omitempty"`
	Limit    int           `json:"limit,omitempty"` // packets
	Quantum  unit.Size     `json:"quantum,omitempty"`
	Side     string        `json:"side,omitempty"` // ifb or lan: where the download is shaped
	Table    bool          `json:"flow_table,omitempty"`
	Tins     string        `json:"tins,omitempty"`    // cake: besteffort, diffserv4, …
	Classes  string        `json:"classes,omitempty"` // on or off; "": what the plan makes of the rest
	Rules    []string      `json:"rules,omitempty"`   // that give traffic a class, as `unbloat plan --rule` takes them
	// Classifier is what applies the classes, nft or bpf; "": nft.
	Classifier string `json:"classifier,omitempty"`
	Framing    string `json:"framing,omitempty"` // what the line adds to each packet, as `unbloat tune` writes it
}

// Hosts returns how many machines the home needs.
func (s *Scenario) Hosts() int {
	n := 1
	for _, l := range s.Loads {
		n = max(n, l.Host)
	}
	return max(n, len(s.Home.Away))
}

// Case returns the named case.
func (s *Scenario) Case(name string) (Case, error) {
	for _, c := range s.Cases {
		if c.Name == name {
			return c, nil
		}
	}
	return Case{}, fmt.Errorf("scenario %s has no case %q", s.Name, name)
}

// defaultLoaded is how long a phase with loads lasts.
const defaultLoaded = 30 * time.Second

// LoadedFor returns how long the phase lasts in which the loads run.
func (s *Scenario) LoadedFor() time.Duration {
	if s.Test.Seconds > 0 {
		return s.Test.Seconds
	}
	return defaultLoaded
}
