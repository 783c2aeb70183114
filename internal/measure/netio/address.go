package netio

import (
	"net/url"
	"regexp"
)

// ParseURL is url.Parse for addresses as people write them: the zone of an IPv6 address may
// be as ssh(1) has it, [fe80::1%eth0], or as in URLs (RFC 6874), with %25.
func ParseURL(s string) (*url.URL, error) {
	return url.Parse(beforeZone.ReplaceAllString(s, "$1%25"))
}

// beforeZone is what comes before the zone of an IPv6 address.
var beforeZone = regexp.MustCompile(`(\[[0-9A-Fa-f:.]+)%(25)?`)
