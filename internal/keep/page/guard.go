package page

import (
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"unbloat/guard"
)

// A Network says where this machine stands.
type Network struct {
	// Home are the networks of the home: those of all interfaces but the lines.
	Home []netip.Prefix
	// Lines are this machine's own addresses on the lines.
	Lines []netip.Addr
}

// Places are those of the page's connections. A browser takes six, and one more for a
// stream.
func Places() guard.Limits { return guard.Limits{Most: 128, Crowded: 96, Share: 32} }

// Admits says whether a connection from one address to another may be served: it
// comes from this machine or from the home, or from what somebody allowed. What
// reaches the address of a line comes from the internet, unless its sender is in the
// home.
func Admits(n Network, allow []netip.Prefix, from, at netip.Addr) bool {
	within := func(p netip.Prefix) bool { return p.Contains(from) }
	switch {
	case !from.IsValid():
		return false
	case from.IsLoopback(), slices.ContainsFunc(allow, within):
		return true
	case slices.ContainsFunc(n.Home, within):
		return true
	}
	// Each machine of a link has such an address; the one that was reached says which link it is.
	return from.IsLinkLocalUnicast() && !slices.Contains(n.Lines, at)
}

// mayBeHost says whether a request may name this machine so. A name of somebody
// else's that leads here is DNS rebinding: its page would read ours. Addresses can't
// be rebound, and nobody else can have the names that are for homes alone.
func mayBeHost(host string, names []string) bool {
	name, port, _ := strings.Cut(host, ":")
	if strings.HasPrefix(host, "[") {
		var closed bool
		if name, port, closed = strings.Cut(host[1:], "]"); !closed {
			return false
		}
		port = strings.TrimPrefix(port, ":")
	}
	if strings.Trim(port, "0123456789") != "" {
		return false
	}
	if _, err := netip.ParseAddr(name); err == nil {
		return true
	}
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	if name == "localhost" {
		return true
	}
	return slices.ContainsFunc(names, func(own string) bool {
		own = strings.ToLower(own)
		if name == own {
			return true
		}
		short, domain, _ := strings.Cut(name, ".")
		return short == own && slices.Contains([]string{"lan", "local", "home.arpa", "internal", "home"}, domain)
	})
}

// sameSite says whether a request that changes something comes from the page itself:
// its origin is the host that it names. Browsers send Origin with each POST; what
// sends none is no browser, and has no cookie of ours unless somebody gave it one.
func sameSite(header map[string]string, tls bool) bool {
	if site := header["sec-fetch-site"]; site != "" && site != "same-origin" {
		return false
	}
	origin, given := header["origin"]
	if !given {
		return true
	}
	u, err := url.Parse(origin)
	scheme := "http"
	if tls {
		scheme = "https"
	}
	return err == nil && u.Scheme == scheme && strings.EqualFold(u.Host, header["host"])
}
