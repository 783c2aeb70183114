package nft

import "testing"

// TestCanonical: lines that versions of nft(8) list differently are equal if
// they mean the same.
func TestCanonical(t *testing.T) {
	for _, x := range []struct{ a, b string }{
		{"ct mark and 0x80000000 == 0 goto x", "ct mark & 0x80000000 == 0x00000000 goto x"},
		{"ct mark and 0x80000000 == 0 goto x", "ct mark 0x00000000/1 goto x"},
		{"ct mark and 0xc0000000 == 0x40000000 goto x", "ct mark 0x40000000/2 goto x"},
		{"ct mark set ct mark and 0xf0ffffff or 0x08000000", "ct mark set ct mark & 0xf8ffffff | 0x08000000"},
		{"tcp flags & (fin | syn | rst | psh | ack | urg) == ack drop", "tcp flags ack / fin,syn,rst,psh,ack,urg drop"},
		{"tcp flags & (fin | syn | rst | psh | ack | urg) == ack drop", "meta l4proto tcp tcp flags & (fin | syn | rst | psh | ack | urg) == ack drop"},
		{"meta nfproto ipv4 meta l4proto udp th dport { 19302-19309 } goto x", "meta nfproto ipv4 udp dport 19302-19309 goto x"},
		{"meta nfproto ipv6 meta l4proto ipv6-icmp goto x", "meta l4proto 58 goto x"},
		{"ip6 saddr { fd00::9 } ip6 dscp { 0x2e, 0x28 } goto x", "ip6 saddr fd00::9/128 ip6 dscp { cs5, ef } goto x"},
		{"update @a { ip saddr limit rate over 2048 bytes/second burst 4096 bytes } goto x", "update @a { ip saddr limit rate over 2 kbytes/second burst 4 kbytes } goto x"},
		{"limit rate 5/second burst 5 packets", "limit rate 5/second"},
		{"type filter hook postrouting priority -149; policy accept;", "type filter hook postrouting priority mangle + 1; policy accept;"},
		{"flags dynamic,timeout", "flags timeout,dynamic"},
		{"devices = { eth0, eth1 };", `devices = { "eth1", "eth0" }`},
		{"hook ingress priority 0;", "hook ingress priority filter"},
		{"@th,32,32 and 0x0000f800 != 0 accept", "@th,48,5 != 0 accept"},
		{"@th,32,32 and 0x0000f800 == 0x00000800 accept", "@th,48,5 0x1 accept"},
		{"th dport { 80, 8080-8090 } goto x", "th dport { 8080-8090, 80 } goto x"},
	} {
		if a, b := canonical(x.a), canonical(x.b); a != b {
			t.Errorf("%q is %q, and %q is %q", x.a, a, x.b, b)
		}
	}
	for _, x := range []struct{ a, b string }{
		{"ct mark and 0x80000000 == 0 goto x", "ct mark and 0x40000000 == 0 goto x"},
		{"ct mark and 0x80000000 == 0 goto x", "ct mark and 0x80000000 != 0 goto x"},
		{"ct mark 0x00000000/1 goto x", "ct mark 0x00000000/2 goto x"},
		{"meta nfproto ipv4 goto x", "meta nfproto ipv6 goto x"},
		{"meta l4proto udp goto x", "goto x"},
		{"meta l4proto != udp goto x", "meta l4proto udp goto x"},
		{"udp dport 53 goto x", "tcp dport 53 goto x"},
		{"th dport 53 goto x", "th sport 53 goto x"},
		{"ip saddr 10.0.0.1 goto x", "ip saddr 10.0.0.0/24 goto x"},
		{"@th,32,32 and 0x0000f800 != 0 accept", "@th,48,4 != 0 accept"},
		{"@th,32,32 and 0x0000f800 != 0 accept", "@th,49,5 != 0 accept"},
		{"@th,32,32 and 0x0000f800 != 0 accept", "@th,48,5 == 0 accept"},
		{"@th,32,32 and 0x0000f800 != 0 accept", "@th,48,5 != 1 accept"},
		{"@th,32,32 and 0x0000f900 != 0 accept", "@th,48,5 != 0 accept"},
		{"limit rate 5/second burst 5 packets", "limit rate over 5/second burst 5 packets"},
		{"limit rate 5 bytes/second burst 5 bytes", "limit rate 5/second burst 5 packets"},
		{"goto x", "goto x counter"},
		{"devices = { eth0, eth1 };", "devices = { eth0 }"},
		{"hook ingress priority 0;", "hook ingress priority filter + 10"},
	} {
		if a := canonical(x.a); a == canonical(x.b) {
			t.Errorf("%q and %q are both %q", x.a, x.b, a)
		}
	}
}
