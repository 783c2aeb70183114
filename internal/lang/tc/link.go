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
}

// ParseLinks reads `ip -j -d link show`. What it doesn't understand of a device, such
// as of a kind of tunnel, it leaves out.
func ParseLinks(b []byte) ([]Link, error) {
	list, err := decodeList(b)
	if err != nil {
		return nil, err
	}
	var out []Link
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
		out = append(out, l)
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
