package flows

import (
	"cmp"
	"net/netip"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A Lease is what a DHCP server knows of a machine.
type Lease struct {
	Name string // "": it gave none
	MAC  string // in lower case with colons; "": not known
}

// Leases are by address.
type Leases map[netip.Addr]Lease

// mostLeases are remembered.
const mostLeases = 4096

func (l Leases) add(address, name, mac string) {
	a, err := netip.ParseAddr(address)
	if err != nil || len(l) >= mostLeases {
		return
	}
	was := l[a]
	l[a] = Lease{Name: cmp.Or(nameOf(name), was.Name), MAC: cmp.Or(macOf(mac), was.MAC)}
}

// nameOf is a name as it may be shown: a machine says of itself what it likes.
func nameOf(s string) string {
	const most = 63
	s = strings.Trim(s, `"`)
	if s == "*" || s == "-" || !utf8.ValidString(s) {
		return ""
	}
	s = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, s)
	for len(s) > most {
		_, size := utf8.DecodeLastRuneInString(s)
		s = s[:len(s)-size]
	}
	return s
}

func macOf(s string) string {
	s = strings.ToLower(s)
	if len(s) != 17 || strings.Trim(s, "0123456789abcdef:") != "" {
		return ""
	}
	return s
}

// Read takes in the file of leases of any server: dnsmasq's, ISC's (also OpenBSD's)
// or Kea's.
func (l Leases) Read(text string) {
	switch first, _, _ := strings.Cut(strings.TrimSpace(text), "\n"); {
	case strings.HasPrefix(first, "address,"):
		l.kea(text, first)
	case strings.Contains(text, "\nlease ") || strings.HasPrefix(text, "lease ") || strings.Contains(text, "iaaddr "):
		l.isc(text)
	default:
		l.dnsmasq(text)
	}
}

// dnsmasq reads lines of: expiry, MAC (IPv6: IAID), address, name, client ID.
func (l Leases) dnsmasq(text string) {
	for line := range strings.Lines(text) {
		if w := strings.Fields(line); len(w) >= 4 {
			l.add(w[2], w[3], w[1])
		}
	}
}

// isc reads blocks: lease 192.0.2.7 { … hardware ethernet 02:…; client-hostname "x"; }
// and iaaddr 2001:db8::7 { … } in those of IPv6. The last of an address holds.
func (l Leases) isc(text string) {
	address, name, mac := "", "", ""
	for line := range strings.Lines(text) {
		w := strings.Fields(strings.TrimRight(strings.TrimSpace(line), ";"))
		switch {
		case len(w) >= 3 && (w[0] == "lease" || w[0] == "iaaddr") && w[2] == "{":
			address, name, mac = w[1], "", ""
		case len(w) >= 3 && w[0] == "hardware" && w[1] == "ethernet":
			mac = w[2]
		case len(w) >= 2 && w[0] == "client-hostname":
			name = strings.Join(w[1:], " ")
		case len(w) >= 1 && w[0] == "}" && address != "":
			l.add(address, name, mac)
			address = ""
		}
	}
}

// kea reads its lease file: CSV whose first line names the columns. A comma in a
// value is written as &#x2c.
func (l Leases) kea(text, head string) {
	at := map[string]int{}
	for i, name := range strings.Split(strings.TrimSpace(head), ",") {
		at[name] = i
	}
	for line := range strings.Lines(text) {
		w := strings.Split(strings.TrimSpace(line), ",")
		of := func(name string) string {
			i, ok := at[name]
			if !ok || i >= len(w) {
				return ""
			}
			return strings.ReplaceAll(w[i], "&#x2c", ",")
		}
		if s := of("state"); s == "" || s == "0" {
			l.add(of("address"), strings.TrimSuffix(of("hostname"), "."), of("hwaddr"))
		}
	}
}

// LeaseFiles are where DHCP servers keep their leases, on any platform.
func LeaseFiles() []string {
	return []string{
		"/tmp/dhcp.leases",                // OpenWrt
		"/var/lib/misc/dnsmasq.leases",    // Debian
		"/var/lib/dnsmasq/dnsmasq.leases", // Fedora
		"/var/db/dnsmasq.leases",          // FreeBSD, OPNsense
		"/var/lib/dhcp/dhcpd.leases",      // ISC on Debian
		"/var/lib/dhcpd/dhcpd.leases",     // ISC on RHEL, ClearOS
		"/var/dhcpd/var/db/dhcpd.leases",  // ISC on OPNsense and pfSense
		"/var/dhcpd/var/db/dhcpd6.leases", //
		"/var/db/dhcpd.leases",            // OpenBSD
		"/var/lib/kea/kea-leases4.csv",    // Kea on Linux
		"/var/lib/kea/kea-leases6.csv",    //
		"/var/db/kea/kea-leases4.csv",     // on FreeBSD
		"/var/db/kea/kea-leases6.csv",     //
		"/var/lib/kea/dhcp4.leases",       // older
	}
}
