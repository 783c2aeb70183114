package linux

import (
	"fmt"
	"strconv"
	"strings"

	"unbloat/internal/cure/lang/tc"
	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform"
)

// overhead compares the shapers' packet overhead with the line's.
func (e *examination) overhead() {
	l, ok := e.link(e.WAN)
	if !ok {
		e.Skip("packet overhead", "there is no WAN")
		return
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
		e.Skip("packet overhead", "nobody said what the line is; give --link-layer")
		return
	}
	devices := []string{e.WAN}
	for _, s := range e.Shapers {
		if s.Device == e.WAN {
			devices = append(devices, s.IngressTo...)
		}
	}
	for _, dev := range devices {
		tree, err := ReadTree(e.Ctx, e.Runner, dev)
		if err != nil {
			e.Skip("packet overhead on "+dev, err.Error())
			return
		}
		counts, cells, shapes := counted(tree, !l.NoEthernet)
		switch {
		case !shapes:
		case counts < least:
			e.Find(platform.Finding{ID: "overhead", Blocking: true, What: fmt.Sprintf("the shaper on %s counts %d bytes of overhead, and the line adds %d or more", dev, counts, least),
				Why: why + ": small packets are undercounted, so under many of them the queue is in the modem again", Remedy: "unbloat plan --link-layer … and apply it; or tune with --link-layer"})
		case e.LinkLayer == plan.ATM && !cells:
			e.Find(platform.Finding{ID: "overhead", Blocking: true, What: "the shaper on " + dev + " doesn't count ATM's cells", Why: why + ": packets are undercounted by up to a half", Remedy: "unbloat plan --link-layer atm, and apply it"})
		}
	}
}

// counted returns the bytes that a shaper adds to an IP packet, and whether it
// rounds up to ATM cells; shapes is false if it has no rate.
func counted(t tc.Tree, header bool) (overhead int, cells, shapes bool) {
	root, ok := t.Root()
	if !ok || t.Rate() == 0 {
		return 0, false, false
	}
	text := root.Stab["overhead"].Kernel
	if root.Kind == "cake" {
		text = root.Options["overhead"].Kernel
	}
	overhead, _ = strconv.Atoi(text) // not shown: 0
	if root.Kind != "cake" && header {
		overhead += plan.EthernetHeader // included in the kernel's packet length
	}
	return overhead, root.Options["atm"].Kernel == "atm" || root.Stab["linklayer"].Kernel == "atm", true
}

// mtu checks the MTUs of WAN and LAN.
func (e *examination) mtu() {
	wan, ok := e.link(e.WAN)
	if !ok {
		return
	}
	e.LeastMTU(wan.MTU, "ip link set dev "+e.WAN+" mtu 1500")
	lan, ok := e.link(e.LAN)
	if !ok || lan.MTU <= wan.MTU {
		return
	}
	if !strings.Contains(e.ruleset, "maxseg size set") && !strings.Contains(e.Read("iptables-save"), "TCPMSS") {
		e.Unclamped(lan.MTU, wan.MTU, "nft add rule inet filter forward tcp flags syn tcp option maxseg size set rt mtu")
	}
}
