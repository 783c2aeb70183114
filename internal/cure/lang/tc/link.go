package tc

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// A Link is one device as ip(8) shows it.
type Link struct {
	Name       string
	Kind       string // "" for hardware
	Up         bool   // administratively up
	Carrier    bool   // the link is up: cable plugged in, PPP session established
	MTU        int
	NoEthernet bool // packets have no Ethernet header: ppp, tun, wireguard
	AltNames   []string
	Below      []string // devices that it stands on: a VLAN's or a tunnel's parent, the ports of a bridge or a bond
}

// Tunnel reports whether packets leave as contents of others, by a line that may carry
// more. A session of PPPoE is no tunnel: it is the line's own way of carrying packets.
func (l Link) Tunnel() bool {
	return slices.Contains([]string{"ipip", "sit", "gre", "gretap", "erspan", "ip6tnl", "ip6gre", "ip6gretap", "ip6erspan", "vti", "vti6", "xfrm",
		"wireguard", "tun", "vxlan", "geneve", "bareudp", "ovpn"}, l.Kind)
}

// Merges reports whether the device merges packets that arrive (GRO). What hands on
// packets that another has received does not, whatever ethtool(8) says of it.
func (l Link) Merges() bool {
	return !slices.Contains([]string{"vlan", "bridge", "bond", "team", "macvlan", "macvtap", "ipvlan", "ipvtap", "vrf", "ppp", "ifb"}, l.Kind)
}

// Stack returns a device and all below it, from the top.
func Stack(links []Link, device string) []Link {
	var out []Link
	var walk func(name string)
	walk = func(name string) {
		i := slices.IndexFunc(links, func(l Link) bool { return l.Name == name })
		if i < 0 || slices.ContainsFunc(out, func(l Link) bool { return l.Name == name }) {
			return
		}
		out = append(out, links[i])
		for _, below := range links[i].Below {
			walk(below)
		}
	}
	walk(device)
	return out
}

// StandsOn reports whether lower is below device.
func StandsOn(links []Link, device, lower string) bool {
	return device != lower && slices.ContainsFunc(Stack(links, device), func(l Link) bool { return l.Name == lower })
}

// ParsePPPoE reads /proc/net/pppoe: the Ethernet devices of the sessions.
func ParsePPPoE(b []byte) (devices []string) {
	for line := range strings.Lines(string(b)) {
		if w := strings.Fields(line); len(w) == 3 && w[0] != "Id" && !slices.Contains(devices, w[2]) {
			devices = append(devices, w[2])
		}
	}
	return devices
}

// ParseLinks reads `ip -j -d link show`. What it doesn't understand of a device, such
// as of a kind of tunnel, it leaves out.
func ParseLinks(b []byte) ([]Link, error) {
	list, err := decodeList(b)
	if err != nil {
		return nil, err
	}
	var out []Link
	ports := map[string][]string{}
	for _, o := range list {
		l := Link{Name: o.text("ifname"), Kind: o.child("linkinfo").text("info_kind")}
		if l.Name == "" {
			continue
		}
		names, _ := o.get("altnames")
		l.AltNames = strings.Fields(flat(names))
		v, _ := o.get("flags")
		flags := strings.Fields(flat(v))
		l.Up, l.Carrier = slices.Contains(flags, "UP"), slices.Contains(flags, "LOWER_UP")
		l.NoEthernet = o.text("link_type") != "ether" && o.text("link_type") != "loopback"
		l.MTU, _ = strconv.Atoi(o.text("mtu"))
		if pairs := []string{"veth", "netkit", "vxcan"}; !slices.Contains(pairs, l.Kind) { // theirs is the other end
			l.Below = []string{o.text("link")}
		}
		ports[o.text("master")] = append(ports[o.text("master")], l.Name)
		out = append(out, l)
	}
	for i, l := range out {
		out[i].Below = slices.DeleteFunc(append(l.Below, ports[l.Name]...), func(name string) bool {
			return name == "lo" || !slices.ContainsFunc(out, func(l Link) bool { return l.Name == name }) // null, or in another namespace
		})
	}
	return out, nil
}

// ParseAddresses reads `ip -j addr show`: addresses with their networks, by device.
func ParseAddresses(b []byte) (map[string][]netip.Prefix, error) {
	list, err := decodeList(b)
	all := map[string][]netip.Prefix{}
	for _, o := range list {
		v, _ := o.get("addr_info")
		infos, _ := v.([]any)
		for _, info := range infos {
			a, _ := info.(object)
			if n, err := netip.ParsePrefix(a.text("local") + "/" + a.text("prefixlen")); err == nil {
				all[o.text("ifname")] = append(all[o.text("ifname")], n)
			}
		}
	}
	return all, err
}

// ParseFeatures reads `ethtool -k X`: the leaf features that can be changed.
// Groups such as tcp-segmentation-offload are left out: the kernel stores only
// their members, which are indented below them.
func ParseFeatures(b []byte) map[string]bool {
	out := map[string]bool{}
	group := ""
	for line := range strings.Lines(string(b)) {
		name, rest, ok := strings.Cut(strings.TrimRight(line, "\n"), ":")
		words := strings.Fields(rest)
		if !ok || len(words) == 0 || words[0] != "on" && words[0] != "off" {
			continue
		}
		if leaf := strings.TrimSpace(name); leaf != name {
			delete(out, group)
			name = leaf
		} else {
			group = name
		}
		if !strings.Contains(rest, "[fixed]") {
			out[name] = words[0] == "on"
		}
	}
	return out
}

// SwitchableOffloads returns the short names of offloads that harm shaping, are
// on and can be turned off.
func SwitchableOffloads(features map[string]bool) []string {
	var out []string
	for _, short := range []string{"tso", "gso", "gro"} {
		if slices.ContainsFunc(FeatureLeaves(short), func(leaf string) bool { return features[leaf] }) {
			out = append(out, short)
		}
	}
	return out
}

// FeatureLeaves returns ethtool's leaf names for a feature's short name.
func FeatureLeaves(short string) []string {
	switch short {
	case "tso":
		return []string{"tx-tcp-segmentation", "tx-tcp-ecn-segmentation", "tx-tcp-mangleid-segmentation", "tx-tcp6-segmentation"}
	case "gso":
		return []string{"generic-segmentation-offload"}
	case "gro":
		return []string{"generic-receive-offload"}
	case "lro":
		return []string{"large-receive-offload"}
	default:
		return []string{short}
	}
}
