package plan

import (
	"unbloat/reason"
	"unbloat/unit"
)

// A Match is a kind of packet. It is recognised by the packet itself, without
// connection tracking and without its DSCP.
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

// Lengths of IP packets with their headers. A match takes only shorter packets.
const (
	AckBelow      unit.Size = 128 // MatchTCPAck
	SmallUDPBelow unit.Size = 256 // MatchSmallUDP
)

// A Tin is one of CAKE's tins, from 1. With `precedence` a higher tin has priority
// up to its share of the rate: 7/8 for the second, 49/64 for the third. diffserv4
// gives its voice tin a quarter; on a slow upload two calls take more than that,
// and then wait longer than without any priority.
type Tin int

// HTBMinor is the minor number of a tin's HTB class. The shaper's inner class uses
// none from 0x10 on.
func (t Tin) HTBMinor() int { return 0x10 + int(t) }

// Minor is the minor number of a tin's class below the shaper's root qdisc: with
// CAKE the number of the tin.
func (p Plan) Minor(d Direction, t Tin) int {
	s := p.Up
	if d == DirectionDown {
		s = p.Down
	}
	if s != nil && s.AQM == CAKE {
		return int(t)
	}
	return t.HTBMinor()
}

// CallTins returns the tins of CAKE that calls take in a direction, beside other traffic that
// does not wait; nil: none that are theirs. One with pictures is interactive, not voice.
func (p Plan) CallTins(d Direction) []int {
	s := p.Up
	if d == DirectionDown {
		s = p.Down
	}
	switch {
	case s == nil || s.AQM != CAKE || s.Tins != tinsForRules:
		return nil
	case p.Classes != nil:
		return []int{int(tinOf(Voice)), int(tinOf(Interactive))}
	case len(s.PacketRules) > 0:
		return []int{int(TinCalls)}
	}
	return nil
}

// The tins that rules use.
const (
	TinRest  Tin = 1
	TinAcks  Tin = 2
	TinCalls Tin = 3
)

// A PacketRule puts packets of one kind into a tin. All other packets go to
// TinRest, whatever their DSCP.
type PacketRule struct {
	Match Match `json:"match"`
	Tin   Tin   `json:"tin"`
}

// tinsForRules is the keyword of CAKE for the tins of PacketRules.
const tinsForRules = "precedence"

// firstUp gives ACKs and small UDP packets priority in the upload. A full packet
// occupies a slow upload for milliseconds. ACKs that wait for several of them
// cause bursts of download, which queue in front of the modem and delay calls.
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
