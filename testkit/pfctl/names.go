package pfctl

import (
	"strconv"
	"strings"
)

// Maximum lengths of names.
const (
	maxInterface = 15
	maxQueue     = 63
	maxTag       = 63
	maxLabel     = 63
)

// keywords are the keywords of pf.conf(5) in this grammar.
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

// protocols are the protocols that have a name in protocols(5).
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
	switch n { // the usual ones, without a search
	case tcp:
		return "tcp"
	case udp:
		return "udp"
	case 112:
		return "vrrp"
	}
	for name, m := range protocols() {
		if m == n {
			return name
		}
	}
	return ""
}

// services is the services(5) of the Linux machine on which the answers were
// recorded: name/port, and /tcp or /udp if the service has only that one.
const services = `tcpmux/1/tcp echo/7 discard/9 systat/11/tcp daytime/13 netstat/15/tcp qotd/17/tcp chargen/19 ftp-data/20/tcp ftp/21/tcp
	fsp/21/udp ssh/22/tcp telnet/23/tcp smtp/25/tcp time/37 whois/43/tcp tacacs/49 domain/53 bootps/67/udp bootpc/68/udp
	tftp/69/udp gopher/70/tcp finger/79/tcp http/80/tcp kerberos/88 iso-tsap/102/tcp acr-nema/104/tcp pop3/110/tcp sunrpc/111
	auth/113/tcp nntp/119/tcp ntp/123/udp epmap/135/tcp netbios-ns/137/udp netbios-dgm/138/udp netbios-ssn/139/tcp imap2/143/tcp
	snmp/161 snmp-trap/162 cmip-man/163 cmip-agent/164 mailq/174/tcp xdmcp/177/udp bgp/179/tcp smux/199/tcp qmtp/209/tcp
	z3950/210/tcp ipx/213/udp ptp-event/319/udp ptp-general/320/udp pawserv/345/tcp zserv/346/tcp rpc2portmap/369 codaauth2/370
	clearcase/371/udp ldap/389 svrloc/427 https/443 snpp/444/tcp microsoft-ds/445/tcp kpasswd/464 submissions/465/tcp
	saft/487/tcp isakmp/500/udp rtsp/554 nqs/607/tcp asf-rmcp/623/udp qmqp/628/tcp ipp/631/tcp ldp/646 exec/512/tcp biff/512/udp
	login/513/tcp who/513/udp shell/514/tcp syslog/514/udp printer/515/tcp talk/517/udp ntalk/518/udp route/520/udp gdomap/538
	uucp/540/tcp klogin/543/tcp kshell/544/tcp dhcpv6-client/546/udp dhcpv6-server/547/udp afpovertcp/548/tcp nntps/563/tcp
	submission/587/tcp ldaps/636 tinc/655 silc/706/tcp kerberos-adm/749/tcp domain-s/853 rsync/873/tcp ftps-data/989/tcp
	ftps/990/tcp telnets/992/tcp imaps/993/tcp pop3s/995/tcp socks/1080/tcp proofd/1093/tcp rootd/1094/tcp openvpn/1194
	rmiregistry/1099/tcp lotusnote/1352/tcp ms-sql-s/1433/tcp ms-sql-m/1434/udp ingreslock/1524/tcp datametrics/1645
	sa-msg-port/1646 kermit/1649/tcp groupwise/1677/tcp l2f/1701/udp radius/1812 radius-acct/1813 cisco-sccp/2000/tcp nfs/2049
	gnunet/2086 rtcm-sc104/2101 gsigatekeeper/2119/tcp gris/2135/tcp cvspserver/2401/tcp venus/2430 venus-se/2431 codasrv/2432
	codasrv-se/2433 mon/2583 dict/2628/tcp f5-globalsite/2792/tcp gsiftp/2811/tcp gpsd/2947/tcp gds-db/3050/tcp icpv2/3130/udp
	isns/3205 iscsi-target/3260/tcp mysql/3306/tcp ms-wbt-server/3389/tcp nut/3493 distcc/3632/tcp daap/3689/tcp svn/3690/tcp
	suucp/4031/tcp sysrqd/4094/tcp sieve/4190/tcp epmd/4369/tcp remctl/4373/tcp f5-iquery/4353/tcp ntske/4460/tcp
	ipsec-nat-t/4500/udp iax/4569/udp mtn/4691/tcp radmin-port/4899/tcp sip/5060 sip-tls/5061 xmpp-client/5222/tcp
	xmpp-server/5269/tcp cfengine/5308/tcp mdns/5353/udp postgresql/5432/tcp freeciv/5556/tcp amqps/5671/tcp amqp/5672/tcp
	x11/6000/tcp x11-1/6001/tcp x11-2/6002/tcp x11-3/6003/tcp x11-4/6004/tcp x11-5/6005/tcp x11-6/6006/tcp x11-7/6007/tcp
	gnutella-svc/6346 gnutella-rtr/6347 redis/6379/tcp sge-qmaster/6444/tcp sge-execd/6445/tcp mysql-proxy/6446/tcp
	babel/6696/udp ircs-u/6697/tcp bbs/7000/tcp afs3-fileserver/7000/udp afs3-callback/7001/udp afs3-prserver/7002/udp
	afs3-vlserver/7003/udp afs3-kaserver/7004/udp afs3-volser/7005/udp afs3-bos/7007/udp afs3-update/7008/udp
	afs3-rmtsys/7009/udp font-service/7100/tcp http-alt/8080/tcp puppet/8140/tcp bacula-dir/9101/tcp bacula-fd/9102/tcp
	bacula-sd/9103/tcp xmms2/9667/tcp nbd/10809/tcp zabbix-agent/10050/tcp zabbix-trapper/10051/tcp amanda/10080/tcp
	dicom/11112/tcp hkp/11371/tcp db-lsp/17500/tcp dcap/22125/tcp gsidcap/22128/tcp wnn6/22273/tcp kerberos4/750
	kerberos-master/751 passwd-server/752/udp krb-prop/754/tcp zephyr-srv/2102/udp zephyr-clt/2103/udp zephyr-hm/2104/udp
	iprop/2121/tcp supfilesrv/871/tcp supfiledbg/1127/tcp poppassd/106/tcp moira-db/775/tcp moira-update/777/tcp
	moira-ureg/779/udp spamd/783/tcp skkserv/1178/tcp predict/1210/udp rmtcfg/1236/tcp xtel/1313/tcp xtelw/1314/tcp
	zebrasrv/2600/tcp zebra/2601/tcp ripd/2602/tcp ripngd/2603/tcp ospfd/2604/tcp bgpd/2605/tcp ospf6d/2606/tcp ospfapi/2607/tcp
	isisd/2608/tcp fax/4557/tcp hylafax/4559/tcp munin/4949/tcp rplay/5555/udp nrpe/5666/tcp nsca/5667/tcp canna/5680/tcp
	syslog-tls/6514/tcp sane-port/6566/tcp ircd/6667/tcp zope-ftp/8021/tcp tproxy/8081/tcp omniorb/8088/tcp
	clc-build-daemon/8990/tcp xinetd/9098/tcp git/9418/tcp zope/9673/tcp webmin/10000/tcp kamanda/10081/tcp amandaidx/10082/tcp
	amidxtape/10083/tcp sgi-cmsd/17001/udp sgi-crsd/17002/udp sgi-gcd/17003/udp sgi-cad/17004/tcp binkp/24554/tcp asp/27374
	csync2/30865/tcp dircproxy/57000/tcp tfido/60177/tcp fido/60179/tcp`

// eachService calls f with every service until f returns false.
func eachService(f func(name string, port int, over string) bool) {
	for entry := range strings.FieldsSeq(services) {
		name, rest, _ := strings.Cut(entry, "/")
		digits, over, one := strings.Cut(rest, "/")
		port, err := strconv.Atoi(digits)
		if err != nil {
			panic("the table of services: " + entry)
		}
		if !one {
			over = "tcp udp"
		}
		if !f(name, port, over) {
			return
		}
	}
}

func servicePort(name string) (port int, ok bool) {
	aliases := map[string]string{"www": "http", "imap": "imap2", "mail": "smtp", "pop-3": "pop3", "webcache": "http-alt"}
	if a, is := aliases[name]; is {
		name = a
	}
	eachService(func(n string, p int, _ string) bool {
		if n == name {
			port, ok = p, true
		}
		return !ok
	})
	return port, ok
}

func serviceName(port int, over string) (name string) {
	eachService(func(n string, p int, o string) bool {
		if p == port && strings.Contains(o, over) {
			name = n
		}
		return name == ""
	})
	return name
}

// tosWords are the names of tos(4) values. ALTQ's grammar has three.
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

// icmpTypes are the names of ICMP types, for IPv4 (af 4) or IPv6 (af 6).
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

// icmpTypeName returns the name that pfctl prints for a type.
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

// unreachCodes are the codes of `unreach`, for IPv4 (af 4) or IPv6 (af 6).
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

// timeouts are the names of timeouts, in the order in which pfctl prints them.
func timeouts() []string {
	return []string{
		"tcp.first", "tcp.opening", "tcp.established", "tcp.closing", "tcp.finwait", "tcp.closed", "udp.first", "udp.single",
		"udp.multiple", "icmp.first", "icmp.error", "other.first", "other.single", "other.multiple", "frag", "interval",
		"adaptive.start", "adaptive.end", "src.track", "tcp.tsdiff",
	}
}
