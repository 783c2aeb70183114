package linux_test

import (
	"testing"

	"unbloat/internal/cure/platform/linux"
	"unbloat/testkit/fake"
)

// TestHostsOfStrangers: a machine's name is what the DHCP server says, not what another
// user wrote where OpenWrt's server has its leases, or keeps from being read there.
func TestHostsOfStrangers(t *testing.T) {
	const leases = "/tmp/dhcp.leases"
	for whose, want := range map[string]int{"": 1, "-rw-r--r-- 1 65534 65534": 0, "prw-r--r-- 1 65534 65534": 0, "lrwxrwxrwx 1 65534 65534": 0} {
		f := fake.NewLinux()
		f.Files[leases] = "0 02:00:00:00:00:01 192.0.2.9 work *\n"
		f.Whose[leases] = whose
		if got := linux.Hosts(t.Context(), f); len(got) != want {
			t.Errorf("%q: the machines are %v", whose, got)
		}
	}
}
