package linux

import (
	"context"
	"fmt"
	"strings"
	"testing"
)

// A forwarding router has addresses, and says whether it forwards.
type forwarding struct{ addresses, forwards string }

func (r forwarding) Run(_ context.Context, argv []string, _ []byte) (stdout, stderr []byte, err error) {
	if argv[0] == "cat" {
		return []byte(r.forwards), nil, nil
	}
	return []byte(r.addresses), nil, nil
}

// The interface towards the home is found where only one can be it.
func TestFindsLAN(t *testing.T) {
	address := func(dev, local string) string {
		return fmt.Sprintf(`{"ifname":%q,"addr_info":[{"local":%q,"prefixlen":24}]}`, dev, local)
	}
	wan, lan, guests := address("wan", "203.0.113.5"), address("lan", "192.168.1.1"), address("guests", "192.168.2.1")
	for _, x := range []struct {
		what, given, forwards string
		addresses             []string
		lan                   string
		only                  bool
	}{
		{"one", "", "1\n", []string{address("lo", "127.0.0.1"), wan, lan}, "lan", true},
		{"one without a network", "", "1\n", []string{wan, address("lan", "169.254.1.1")}, "", false},
		{"two", "", "1\n", []string{wan, lan, guests}, "", false},
		{"a machine that does not forward", "", "0\n", []string{wan, lan}, "", false},
		{"named", "lan", "0\n", []string{wan, lan}, "lan", true},
		{"named among two", "lan", "1\n", []string{wan, lan, guests}, "lan", false},
		{"named, without a network", "guests", "1\n", []string{wan, lan}, "guests", false},
	} {
		name, only := lanOf(t.Context(), forwarding{"[" + strings.Join(x.addresses, ",") + "]", x.forwards}, "wan", x.given)
		if name != x.lan || only != x.only {
			t.Errorf("%s: found %q, the only one: %v; want %q, %v", x.what, name, only, x.lan, x.only)
		}
	}
}
