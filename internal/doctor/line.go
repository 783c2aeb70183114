package doctor

import (
	"fmt"
	"strconv"
	"strings"

	"unbloat/internal/host/linux"
	"unbloat/internal/mechanism/tc"
	"unbloat/internal/plan"
)

// overhead compares what the shapers count of a packet with what the line adds.
func (e *examination) overhead() bool {
	l, ok := e.link(e.WAN)
	if !ok {
		return e.skip("packet overhead", "there is no WAN")
	}
	pppoe := l.NoEthernet && strings.HasPrefix(e.WAN, "ppp")
	least, why := 0, ""
	switch {
	case e.LinkLayer == plan.DOCSIS:
		least, why = 18, "DOCSIS counts Ethernet frames with their check sequence"
	case e.LinkLayer == plan.ATM:
		least, why = 8, "ATM carries packets in cells of 53 bytes, with 8 more at least"
	case e.LinkLayer == plan.PTM:
		least, why = 22, "VDSL2 frames packets (PTM)"
	case pppoe:
		least, why = 22, "PPPoE adds 8 bytes, and an Ethernet header of 14, which the kernel doesn't count on "+e.WAN
	default:
		return e.skip("packet overhead", "nobody said what the line is; give --link-layer")
	}
	devices := []string{e.WAN}
	for _, s := range e.shapers {
		if s.Device == e.WAN {
			devices = append(devices, s.IngressTo...)
		}
	}
	for _, dev := range devices {
		tree, err := linux.ReadTree(e.ctx, e.Runner, dev)
		if err != nil {
			return e.skip("packet overhead on "+dev, err.Error())
		}
		counts, cells, shapes := counted(tree, !l.NoEthernet)
		switch {
		case !shapes:
		case counts < least:
			e.find(Finding{"overhead", true, fmt.Sprintf("the shaper on %s counts %d bytes of overhead, and the line adds %d or more", dev, counts, least),
				why + ": small packets are undercounted, so under many of them the queue is in the modem again", "unbloat plan --link-layer … and apply it; or tune with --link-layer"})
		case e.LinkLayer == plan.ATM && !cells:
			e.find(Finding{"overhead", true, "the shaper on " + dev + " doesn't count ATM's cells", why + ": packets are undercounted by up to a half", "unbloat plan --link-layer atm, and apply it"})
		}
	}
	return true
}

// counted is what a shaper counts beyond a packet's IP bytes, and whether it
// rounds up to ATM's cells; shapes is false if it holds no rate.
func counted(t tc.Tree, header bool) (overhead int, cells, shapes bool) {
	root, ok := t.Root()
	if !ok || t.Rate() == 0 {
		return 0, false, false
	}
	text := root.Stab["overhead"].Is
	if root.Kind == "cake" {
		text = root.Options["overhead"].Is
	}
	overhead, _ = strconv.Atoi(text) // none is shown: 0
	if root.Kind != "cake" && header {
		overhead += plan.EthernetHeader // the kernel counts it by itself
	}
	return overhead, root.Options["atm"].Is == "atm" || root.Stab["linklayer"].Is == "atm", true
}

// mtu looks at packet sizes on the way.
func (e *examination) mtu() bool {
	wan, ok := e.link(e.WAN)
	if !ok {
		return false
	}
	if wan.MTU < leastIPv6 {
		e.find(lowMTU(e.WAN, wan.MTU, "ip link set dev "+e.WAN+" mtu 1500, or what the provider says"))
	}
	lan, ok := e.link(e.LAN)
	if !ok || lan.MTU <= wan.MTU {
		return true
	}
	if !strings.Contains(e.ruleset, "maxseg size set") && !strings.Contains(e.read("iptables-save"), "TCPMSS") {
		e.find(clampMSS(e.LAN, lan.MTU, e.WAN, wan.MTU, "nft add rule inet filter forward tcp flags syn tcp option maxseg size set rt mtu"))
	}
	return true
}

// leastIPv6 is the least MTU of a link with IPv6 (RFC 8200 §5).
const leastIPv6 = 1280

func lowMTU(dev string, mtu int, remedy string) Finding {
	return Finding{"mtu", true, fmt.Sprintf("the MTU of %s is %d", dev, mtu), "IPv6 needs 1280 bytes (RFC 8200 §5)", remedy}
}

func clampMSS(lan string, lanMTU int, wan string, wanMTU int, remedy string) Finding {
	return Finding{"mss", false, fmt.Sprintf("%s has an MTU of %d, %s one of %d, and nothing clamps TCP's segments", lan, lanMTU, wan, wanMTU),
		"where messages of path MTU discovery are lost, connections hang", remedy}
}
