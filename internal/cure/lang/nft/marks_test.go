package nft

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// Each rule as nft(8), iptables-save(8) and ip(8) print it, and whether it writes, copies or
// compares one of the upper eight bits of a mark.
func TestForeign(t *testing.T) {
	for rule, touches := range map[string]bool{
		// wg-quick's
		`meta l4proto udp meta mark set ct mark`:                      true,
		`meta l4proto udp meta mark 0x0000ca6c ct mark set meta mark`: true,
		`meta l4proto udp mark 0x0000ca6c ct mark set mark`:           true, // of older versions
		// that write
		`ct mark set 0x00000001`:      true,
		`ct mark set ip saddr map @m`: true,
		`ct mark set ip saddr map { 10.0.0.1 : 0x00000001, 10.0.0.2 : 0x00000002 }`: true,
		`ct mark set numgen inc mod 2 map { 0 : 0x00000001, 1 : 0x00000002 }`:       true,
		`ct mark set jhash ip saddr mod 2 offset 1`:                                 true,
		`ct mark set ct mark & 0x000000ff`:                                          true,
		`ct mark set ct mark | 0x10000000`:                                          true,
		`ct mark set meta mark & 0x000000ff`:                                        true,
		`ct mark set ct mark map { 0x00000001 : 0x00000002 }`:                       true,
		`ct mark set ct mark << 8`:                                                  true,
		`ct mark set ct mark & 0xffffff01 | 0x00000001`:                             false,
		`ct mark set ct mark and 0xffffff00 or 0x1`:                                 false,
		`ct mark set ct mark | 0x00000100`:                                          false,
		`ct mark set ct mark ^ 0x00000001`:                                          false,
		`ct mark set meta mark & 0x0000ffff | ct mark & 0xffff0000`:                 false,
		`ct mark set (ct mark & 0xffff0000) | (meta mark & 0x01ffffff)`:             true,
		`meta mark set 0x00000001`:                                                  false, // of a packet, and ours are of connections
		`meta mark set meta mark & 0xffffff01 | 0x00000001`:                         false,
		// that copy
		`meta mark set ct mark & 0xffffff01 | 0x00000001`:             true,
		`meta mark set ct mark map { 0x00000001 : 0x00000002 }`:       true,
		`meta mark set ct mark << 8`:                                  true,
		`add @s { ct mark }`:                                          true,
		`meta priority set ct mark`:                                   true,
		`meta mark set ct mark & 0x000000ff`:                          false,
		`meta mark set meta mark & 0xffffff00 | ct mark & 0x000000ff`: false,
		// that compare
		`ct mark 0x00000001 accept`:                                                    true,
		`ct mark != 0x00000000 accept`:                                                 true,
		`ct mark { 0x00000001, 0x00000002 } accept`:                                    true,
		`ct mark @s accept`:                                                            true,
		`ct mark 0x00000001-0x00000005 accept`:                                         true,
		`ct mark < 0x00000005 accept`:                                                  true,
		`ct mark vmap { 0x00000001 : accept, 0x00000002 : drop }`:                      true,
		`ip saddr . ct mark { 10.0.0.1 . 0x00000001 } accept`:                          true,
		`ct mark & 0x3f000000 == 0x00000000 accept`:                                    true,
		`meta mark 0x00000001 accept`:                                                  true,
		`mark 0x0000ca6c accept`:                                                       true,
		`meta mark & 0xff00ffff == 0x00000001 accept`:                                  true,
		`ct mark & 0x00003f00 == 0x00000100 accept`:                                    false,
		`ct mark & 0x00003f00 vmap { 0x00000100 : accept }`:                            false,
		`meta mark & 0x000000ff == 0x00000001 accept`:                                  false,
		`ct mark & 0x000000ff != 0x00000000 meta mark set ct mark & 0x000000ff accept`: false,
		// that only look so
		`log prefix "ct mark set 1" accept comment "meta mark set ct mark"`: false,
		`socket mark 0x00000001 accept`:                                     false,
		`jump mark`:                                                         false,
		`meta nfproto ipv6 fib saddr . mark . iif oif missing drop`:         false, // firewalld's, on each of its routers
		`fib mark . daddr type local meta mark 0x00000001 accept`:           true,
		`tcp dport 22 accept # handle 7, meta mark 1`:                       false,
		// of iptables
		`-A x -j CONNMARK --set-xmark 0x1/0xffffffff`:                                                true,
		`-A x -j CONNMARK --set-xmark 0x1000000/0xff`:                                                true,
		`-A x -j CONNMARK --set-xmark 0x0/0xffffff00`:                                                true,
		`-A x -j CONNMARK --save-mark`:                                                               true,
		`-A x -j CONNMARK --restore-mark`:                                                            true,
		`-A x -m mark --mark 0xca6c -j CONNMARK --save-mark --nfmask 0xffffffff --ctmask 0xffffffff`: true,
		`-A x -j CONNMARK --save-mark --nfmask 0xffffffff --ctmask 0xff`:                             true,
		`-A x -j CONNMARK --restore-mark --nfmask 0xff --ctmask 0xffffffff`:                          true,
		`-A x -j CONNMARK --set-xmark 0x5/0xff --left-shift-mark 2`:                                  true,
		`-A x -m connmark --mark 0x1 -j ACCEPT`:                                                      true,
		`-A x -m connmark ! --mark 0x1 -j ACCEPT`:                                                    true,
		`-A x -m mark ! --mark 0x0 -j RETURN`:                                                        true,
		`-A x -j CONNMARK --set-xmark 0x1/0xff`:                                                      false,
		`-A x -j CONNMARK --save-mark --mask 0xff`:                                                   false,
		`-A mwan3_hook -j CONNMARK --save-mark --nfmask 0x3f00 --ctmask 0x3f00`:                      false,
		`-A mwan3_hook -j CONNMARK --restore-mark --nfmask 0xffffffff --ctmask 0x3f00`:               false,
		`-A x -m connmark ! --mark 0x1/0xff -m mark --mark 0x1/0x3f00 -j ACCEPT`:                     false,
		`-A x -j MARK --set-xmark 0x1/0xffffffff`:                                                    false,
		`-A x -p tcp -j TPROXY --on-port 5 --on-ip 0.0.0.0 --tproxy-mark 0x1/0x1`:                    false,
		// of policy routing
		"32765:\tnot from all fwmark 0xca6c lookup 51820":     true,
		"32764:\tfrom all fwmark 0x1 lookup 1":                true,
		"32763:\tfrom all fwmark 0x1/0xff lookup 2":           false,
		"5210:\tfrom all fwmark 0x80000/0xff0000 lookup main": false,
		"32766:\tfrom all lookup main":                        false,
	} {
		var got []string
		want := ""
		switch {
		case strings.HasPrefix(rule, "-A "):
			got = Foreign("", map[string]string{"iptables": "*mangle\n:x - [0:0]\n" + rule + "\nCOMMIT\n"}, nil)
			want = "iptables -t mangle " + rule
		case strings.Contains(rule, "lookup"):
			got = Foreign("", nil, map[string]string{"ip rule": "0:\tfrom all lookup local\n" + rule + "\n"})
			_, rest, _ := strings.Cut(rule, "\t")
			want = "ip rule: " + rest
		default:
			got = Foreign(fmt.Sprintf("table ip v {\n\tset s {\n\t\ttype mark\n\t}\n\n\tchain a {\n\t\ttype filter hook prerouting priority mangle; policy accept;\n\t\t%s\n\t}\n}\n", rule), nil, nil)
			want = "table ip v: " + rule
		}
		if (len(got) == 1 && got[0] == want) != touches || len(got) > 1 {
			t.Errorf("%s: %q, want it found: %v", rule, got, touches)
		}
	}
}

// Our own tables are passed over, and what iptables manages is named as iptables prints it,
// once, however it is read; a chain is told from a set.
func TestForeignOnce(t *testing.T) {
	ruleset := `table inet unbloat {
	chain down {
		ct mark set ct mark & 0xf0ffffff | 0x05000000
	}
}
table inet unbloat_wan {
	chain down {
		ct mark set ct mark & 0xf0ffffff | 0x05000000
	}
}
table ip mangle {
	chain PREROUTING {
		counter packets 0 bytes 0 meta mark set ct mark
	}
}
table ip6 mangle { # handle 3
	map m {
		typeof ct mark : verdict
		elements = { 0x00000001 : accept }
	}

	chain PREROUTING {
		ct mark vmap { 0x00000001 : accept,
			       0x00000002 : drop }
	}
}
`
	saved := "# Generated by iptables-save\n*mangle\n-A PREROUTING -j CONNMARK --restore-mark\nCOMMIT\n"
	got := Foreign(ruleset, map[string]string{"iptables": saved + saved, "ip6tables": "*filter\nCOMMIT\n"}, nil)
	want := []string{"table ip6 mangle: ct mark vmap { 0x00000001 : accept,", "iptables -t mangle -A PREROUTING -j CONNMARK --restore-mark"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// FuzzForeign: no text of a program makes it panic.
func FuzzForeign(f *testing.F) {
	f.Add("table ip v {\nchain a {\nct mark set ( ct mark & 1 | 2\n}\n}", "*mangle\n-A x -j CONNMARK --set-xmark 1/2 -m mark --mark", "1: fwmark")
	f.Fuzz(func(_ *testing.T, a, b, c string) {
		Foreign(a, map[string]string{"iptables": b}, map[string]string{"ip rule": c})
	})
}
