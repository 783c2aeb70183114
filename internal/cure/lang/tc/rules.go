package tc

import (
	"strconv"

	"unbloat/internal/cure/plan"
)

// A family holds the u32 matches for one IP version.
type family struct {
	protocol      string
	pref          int
	ack, smallUDP []string
}

// families returns the matches as `tc filter show` prints them: 32-bit value
// and mask at an offset from the IP header.
func families() []family {
	return []family{
		{
			protocol: "ip", pref: OurPref,
			// header of 20 bytes and total length below 128; TCP; flags ACK alone
			ack: words(at("0x5000000", "0xf00ff80", 0), at("0x60000", "0xff0000", 8), at("0x100000", "0x3f0000", 32)),
			// total length below 256; UDP
			smallUDP: words(at("0x0", "0xff00", 0), at("0x110000", "0xff0000", 8)),
		},
		{
			protocol: "ipv6", pref: OurPref + 1,
			// payload length below 128 and next header TCP; flags ACK alone
			ack: words(at("0x600", "0xff80ff00", 4), at("0x100000", "0x3f0000", 52)),
			// payload length below 256 and next header UDP
			smallUDP: words(at("0x1100", "0xff00ff00", 4)),
		},
	}
}

// ruleFilters returns the filters on CAKE that set the priority from which it
// takes a packet's tin (tc-cake(8), "tin override"): one per rule, and one for
// everything else.
func ruleFilters(rules []plan.PacketRule) []Filter {
	if len(rules) == 0 {
		return nil
	}
	var out []Filter
	for i, f := range families() {
		add := func(match []string, tin plan.Tin) {
			out = append(out, Filter{
				Kind: "u32", Parent: OurRoot, Protocol: f.protocol, Pref: f.pref,
				// u32 numbers its tables from 800, and the filters in each from 800
				Handle: strconv.FormatInt(int64(0x800+i), 16) + "::" + strconv.FormatInt(int64(0x800+len(out)%(len(rules)+1)), 16),
				Args:   words(match, []string{"action", "skbedit", "priority", OurRoot + strconv.Itoa(int(tin))}),
			})
		}
		for _, r := range rules {
			match := f.ack
			if r.Match == plan.MatchSmallUDP {
				match = f.smallUDP
			}
			add(match, r.Tin)
		}
		add(at("0x0", "0x0", 0), plan.TinRest)
	}
	return out
}

func at(value, mask string, offset int) []string {
	return []string{"match", "u32", value, mask, "at", strconv.Itoa(offset)}
}

func words(parts ...[]string) []string {
	var out []string
	for _, p := range parts {
		out = append(out, p...)
	}
	return out
}
