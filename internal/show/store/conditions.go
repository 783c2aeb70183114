package store

import (
	"io/fs"
	"strings"
)

// LinkKind returns the kind of link of an interface, by Linux's /sys (sys):
// wifi, wwan, ppp, wireguard, bridge, vlan, tunnel, loopback, ethernet; "" if
// it is unknown, as on other systems.
func LinkKind(sys fs.FS, iface string) string {
	dir := "class/net/" + iface
	if iface == "" || strings.Contains(iface, "/") || !fs.ValidPath(dir) {
		return ""
	}
	read := func(name string) string {
		b, err := fs.ReadFile(sys, dir+"/"+name)
		if err != nil {
			return ""
		}
		return string(b)
	}
	for _, l := range strings.Split(read("uevent"), "\n") {
		if kind, ok := strings.CutPrefix(l, "DEVTYPE="); ok {
			if kind == "wlan" {
				return "wifi"
			}
			return strings.TrimSpace(kind)
		}
	}
	for _, name := range []string{"wireless", "phy80211"} {
		if _, err := fs.Stat(sys, dir+"/"+name); err == nil {
			return "wifi"
		}
	}
	// ARPHRD_ of linux/if_arp.h
	switch strings.TrimSpace(read("type")) {
	case "1":
		return "ethernet"
	case "512":
		return "ppp"
	case "772":
		return "loopback"
	case "519", "768", "769", "776", "778", "65534":
		return "tunnel"
	}
	return ""
}
