package pfctl

import "strings"

// Lengths that names may have.
const (
	maxInterface = 15
	maxQueue     = 63
	maxTag       = 63
	maxLabel     = 63
)

// keywords are the words that mean something in today's pf.conf(5), and in that
// of ALTQ's time.
func keywords(g Grammar) map[string]bool {
	both := `all allow-opts anchor antispoof any bandwidth bitmask block block-policy code debug divert-reply divert-to drop
		dup-to file fingerprints flags floating flush for fragment from global group hostid icmp-type icmp6-type if-bound in
		include inet inet6 keep label limit load log loginterface max max-mss max-src-conn max-src-conn-rate max-src-nodes
		max-src-states min-ttl modulate no no-df no-route no-sync on optimization os out overload pass port probability proto
		qlimit queue quick random random-id reassemble reply-to return return-icmp return-icmp6 return-rst round-robin route
		route-to rtable rule ruleset-optimization scrub set skip sloppy source-hash source-track state state-policy
		static-port sticky-address synproxy table tag tagged timeout to tos ttl urpf-failed user`
	now := `af-to binat-to burst default delay divert-packet flows least-states match matches max-pkt-rate min nat-to once
		parent pflow prio quantum rdomain rdr-to received-on state-defaults syncookies weight`
	then := `altq binat binat-anchor cbq crop drop-ovl fastroute hfsc linkshare nat nat-anchor priority priq rdr rdr-anchor
		realtime require-order set-tos tbrsize upperlimit`
	out := map[string]bool{}
	add := func(list string) {
		for _, w := range strings.Fields(list) {
			out[w] = true
		}
	}
	add(both)
	switch g {
	case Today:
		add(now)
	case ALTQ:
		add(then)
	case ALTQWithMatch:
		add(then + " match")
	}
	return out
}

// protocols are those of protocols(5) that have a name.
func protocols() map[string]int {
	return map[string]int{
		"ip": 0, "hopopt": 0, "icmp": 1, "igmp": 2, "ggp": 3, "ipencap": 4, "st": 5, "tcp": 6, "egp": 8, "igp": 9, "pup": 12, "udp": 17, "hmp": 20,
		"xns-idp": 22, "rdp": 27, "ipv6": 41, "ipv6-route": 43, "ipv6-frag": 44, "rsvp": 46, "gre": 47, "esp": 50, "ah": 51,
		"skip": 57, "ipv6-icmp": 58, "ipv6-nonxt": 59, "ipv6-opts": 60, "eigrp": 88, "ospf": 89, "ipip": 94, "etherip": 97,
		"encap": 98, "pim": 103, "ipcomp": 108, "vrrp": 112, "carp": 112, "l2tp": 115, "sctp": 132, "udplite": 136,
	}
}

const (
	icmp  = 1
	tcp   = 6
	udp   = 17
	icmp6 = 58
)

func protocolNumber(name string) (int, bool) {
	if name == "icmp6" || name == "IPv6-ICMP" {
		return icmp6, true
	}
	n, ok := protocols()[name]
	if !ok {
		for own, m := range protocols() {
			if strings.ToUpper(own) == name {
				return m, true
			}
		}
	}
	return n, ok
}

func protocolName(n int) string {
	if n == 112 {
		return "vrrp"
	}
	for name, m := range protocols() {
		if m == n {
			return name
		}
	}
	return ""
}

// A service is one of services(5): tcp, udp or both.
type service struct {
	name string
	port int
	over string
}

func services() []service {
	return []service{
		{"ftp-data", 20, "tcp"}, {"ftp", 21, "tcp"}, {"ssh", 22, "tcp"}, {"telnet", 23, "tcp"}, {"smtp", 25, "tcp"}, {"domain", 53, "tcp udp"},
		{"bootps", 67, "udp"}, {"bootpc", 68, "udp"}, {"tftp", 69, "udp"}, {"http", 80, "tcp"}, {"kerberos", 88, "tcp udp"},
		{"pop3", 110, "tcp"}, {"ntp", 123, "udp"}, {"imap2", 143, "tcp"}, {"snmp", 161, "tcp udp"}, {"ldap", 389, "tcp udp"},
		{"https", 443, "tcp udp"}, {"submissions", 465, "tcp"}, {"syslog", 514, "udp"}, {"rtsp", 554, "tcp udp"}, {"submission", 587, "tcp"},
		{"ipp", 631, "tcp"}, {"ldaps", 636, "tcp udp"}, {"domain-s", 853, "tcp udp"}, {"rsync", 873, "tcp"}, {"imaps", 993, "tcp"}, {"pop3s", 995, "tcp"},
		{"openvpn", 1194, "tcp udp"}, {"nfs", 2049, "tcp udp"}, {"mysql", 3306, "tcp"}, {"ms-wbt-server", 3389, "tcp"},
		{"sip", 5060, "tcp udp"}, {"sip-tls", 5061, "tcp udp"}, {"xmpp-client", 5222, "tcp"}, {"mdns", 5353, "udp"},
		{"postgresql", 5432, "tcp"}, {"ircd", 6667, "tcp"}, {"http-alt", 8080, "tcp"}, {"git", 9418, "tcp"},
	}
}

func servicePort(name string) (int, bool) {
	aliases := map[string]string{"www": "http", "imap": "imap2", "mail": "smtp", "pop-3": "pop3", "webcache": "http-alt"}
	if a, ok := aliases[name]; ok {
		name = a
	}
	for _, s := range services() {
		if s.name == name {
			return s.port, true
		}
	}
	return 0, false
}

func serviceName(port int, over string) string {
	for _, s := range services() {
		if s.port == port && strings.Contains(s.over, over) {
			return s.name
		}
	}
	return ""
}

// tosWords are the names of tos(4) values. Those of ALTQ's time are three.
func tosWords(old bool) map[string]int {
	if old {
		return map[string]int{"lowdelay": 0x10, "throughput": 0x08, "reliability": 0x04}
	}
	return map[string]int{
		"af11": 0x28, "af12": 0x30, "af13": 0x38, "af21": 0x48, "af22": 0x50, "af23": 0x58, "af31": 0x68, "af32": 0x70, "af33": 0x78,
		"af41": 0x88, "af42": 0x90, "af43": 0x98, "critical": 0xa0, "cs0": 0, "cs1": 0x20, "cs2": 0x40, "cs3": 0x60, "cs4": 0x80,
		"cs5": 0xa0, "cs6": 0xc0, "cs7": 0xe0, "ef": 0xb8, "inetcontrol": 0xc0, "lowdelay": 0x10, "netcontrol": 0xe0, "reliability": 0x04, "throughput": 0x08,
	}
}

// icmpTypes are the names of ICMP's types, for IPv4 and IPv6.
func icmpTypes(af int) map[string]int {
	if af == 6 {
		return map[string]int{
			"unreach": 1, "toobig": 2, "timex": 3, "paramprob": 4, "echoreq": 128, "echorep": 129, "listqry": 130, "groupqry": 130,
			"listenrep": 131, "grouprep": 131, "listendone": 132, "groupterm": 132, "routersol": 133, "routeradv": 134,
			"neighbrsol": 135, "neighbradv": 136, "redir": 137, "routrrenum": 138,
		}
	}
	return map[string]int{
		"echoreq": 8, "echorep": 0, "unreach": 3, "squench": 4, "redir": 5, "althost": 6, "routeradv": 9, "routersol": 10, "timex": 11,
		"paramprob": 12, "timereq": 13, "timerep": 14, "inforeq": 15, "inforep": 16, "maskreq": 17, "maskrep": 18, "trace": 30,
	}
}

// icmpTypeName returns the name that is printed for a type.
func icmpTypeName(af, number int) string {
	if af == 6 {
		switch number {
		case 130:
			return "groupqry"
		case 131:
			return "grouprep"
		case 132:
			return "groupterm"
		}
	}
	for name, n := range icmpTypes(af) {
		if n == number {
			return name
		}
	}
	return ""
}

// icmpCodes are the codes of `unreach` for IPv4 and IPv6.
func unreachCodes(af int) map[string]int {
	if af == 6 {
		return map[string]int{"noroute-unr": 0, "admin-unr": 1, "beyond-unr": 2, "addr-unr": 3, "port-unr": 4}
	}
	return map[string]int{
		"net-unr": 0, "host-unr": 1, "proto-unr": 2, "port-unr": 3, "needfrag": 4, "srcfail": 5, "net-unk": 6, "host-unk": 7, "isolate": 8,
		"net-prohib": 9, "host-prohib": 10, "net-tos": 11, "host-tos": 12, "filter-prohib": 13, "host-preced": 14, "cutoff-preced": 15,
	}
}

func unreachName(af, code int) string {
	for name, n := range unreachCodes(af) {
		if n == code {
			return name
		}
	}
	return ""
}

// timeouts are the names that timeouts and states' timeouts may have, in the
// order in which they are printed.
func timeouts() []string {
	return []string{
		"tcp.first", "tcp.opening", "tcp.established", "tcp.closing", "tcp.finwait", "tcp.closed", "udp.first", "udp.single",
		"udp.multiple", "icmp.first", "icmp.error", "other.first", "other.single", "other.multiple", "frag", "interval",
		"adaptive.start", "adaptive.end", "src.track", "tcp.tsdiff",
	}
}
