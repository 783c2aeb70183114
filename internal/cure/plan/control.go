package plan

import "unbloat/reason"

// DHCP returns the UDP ports of servers and clients, of DHCP (RFC 2131 §4.1) and DHCPv6
// (RFC 8415 §7.2). Who is asked need not answer from its own port, so only a packet's
// destination is certain.
func DHCP() []PortRange { return []PortRange{{From: 67, To: 68}, {From: 546, To: 547}} }

// control decides whether control traffic passes before the rules of the shaper. The
// article's rules take it as they take everything.
func (m *maker) control() {
	switch {
	case m.lang.Control.IsZero():
	case m.preferences.Style == StyleArticle:
		m.warning(say(reason.ControlShaped))
	case !m.older:
		m.plan.Control = true
		m.because("control", symbol("icmp, ipv6-icmp, dhcp, dhcpv6"), m.lang.Control)
	}
}
