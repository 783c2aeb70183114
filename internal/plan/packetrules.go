package plan

import (
	"unbloat/internal/reason"
	"unbloat/unit"
)

// A Match names a kind of packet by what can be seen of it alone: no
// connection is tracked and no mark is trusted.
type Match string

// Matches.
const (
	// MatchTCPAck is a TCP acknowledgement without data: an IP packet shorter
	// than 128 bytes with the ACK flag and none of SYN, FIN, RST, PSH and URG.
	MatchTCPAck Match = "tcp-ack"
	// MatchSmallUDP is a UDP datagram in an IP packet shorter than 256 bytes:
	// voice, DNS, games, and the acknowledgements of QUIC, but not its data.
	MatchSmallUDP Match = "small-udp"
)

// Lengths of IP packets, header and all, that the matches are of packets below.
const (
	AckBelow      unit.Size = 128 // MatchTCPAck
	SmallUDPBelow unit.Size = 256 // MatchSmallUDP
)

// A Tin is one of CAKE's, from 1; under `precedence` a higher one goes first as
// long as it takes no more than its share of the rate: 7/8 for the second,
// 49/64 for the third. (diffserv4's voice tin has a quarter; on a slow uplink two
// calls take that, and then wait for longer than without any precedence.)
type Tin int

// The tins that rules use.
const (
	TinRest  Tin = 1
	TinAcks  Tin = 2
	TinCalls Tin = 3
)

// A PacketRule gives packets of one kind a tin. What no rule matches goes to TinRest,
// whatever its DSCP says.
type PacketRule struct {
	Match Match `json:"match"`
	Tin   Tin   `json:"tin"`
}

// tinsForRules are the tins that a PacketRule chooses from.
const tinsForRules = "precedence"

// firstUp sets what goes first in the upload. A full packet holds a slow uplink
// for milliseconds: ACKs that wait for several of them come back as bursts of
// download, which then stand at the modem; and a call waits behind those.
func (m *maker) firstUp(s *Shaper) {
	s.Tins = tinsForRules
	s.PacketRules = []PacketRule{{MatchTCPAck, TinAcks}, {MatchSmallUDP, TinCalls}}
	m.because("up.tins", symbol(s.Tins), say(reason.TinsSmallFirst))
}

// checkRules checks the rules of a plan that was read from somewhere.
func (s *Shaper) checkRules(at func(string) string) error {
	if len(s.PacketRules) == 0 {
		return nil
	}
	if s.AQM != CAKE || s.Tins != tinsForRules {
		return fieldError(at("packet_rules"), "need cake with %s", tinsForRules)
	}
	for _, r := range s.PacketRules {
		if r.Match != MatchTCPAck && r.Match != MatchSmallUDP {
			return fieldError(at("packet_rules"), "%q is not %s or %s", r.Match, MatchTCPAck, MatchSmallUDP)
		}
		if r.Tin < TinRest || r.Tin > TinCalls {
			return fieldError(at("packet_rules"), "tin %d is not %d to %d", r.Tin, TinRest, TinCalls)
		}
	}
	return nil
}
