package linux_test

import (
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"unbloat/internal/cure/platform/linux"
	"unbloat/lab"
	"unbloat/testkit/await"
	"unbloat/testkit/labtest"
)

// sh runs commands on the router, and returns what they print.
func sh(t *testing.T, script string) string {
	t.Helper()
	out, err := exec.Command("sh", "-ec", script).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", script, err, out)
	}
	return string(out)
}

// noDefault takes all default routes away.
const noDefault = "for f in -4 -6; do for t in main main main main 100 51820; do echo route del default table $t; done | ip $f -force -batch - 2>/dev/null || true; done"

// besideLab makes interfaces, and takes them away at the end, with the default routes
// that were made meanwhile.
func besideLab(t *testing.T, make, remove string) {
	t.Helper()
	route := strings.TrimSpace(sh(t, "ip route show default"))
	t.Cleanup(func() { sh(t, noDefault+"\n"+remove+"\nip route add "+route) })
	sh(t, noDefault+"\n"+make)
}

// TestWhichLineInLab: what a real kernel and ip(8) say of default routes leads to the
// line, or to a choice between lines; never is there said to be none.
func TestWhichLineInLab(t *testing.T) {
	if !labtest.Inside(t, labtest.Options{With: "TestWhichLineInLab|TestOffloadsBelowInLab"}) {
		return
	}
	besideLab(t, `for n in 1 2; do
  ip link add line$n type veth peer name far$n; ip link set line$n up; ip link set far$n up; ip addr add 192.0.$n.2/24 dev line$n; ip addr add 2001:db8:$n::2/64 dev line$n nodad
done
ip link add wg0 type wireguard; ip link set wg0 up; ip link add line1.7 link line1 type vlan id 7; ip link set line1.7 up
ip link add ds0 type ip6tnl mode ipip6 local 2001:db8:1::2 remote 2001:db8:1::99 dev line1; ip link set ds0 up
ip nexthop add id 1 via 192.0.1.1 dev line1; ip nexthop add id 6 via 2001:db8:1::1 dev line1; ip nexthop add id 7 via 2001:db8:2::1 dev line2; ip nexthop add id 8 group 6/7`,
		"ip nexthop flush; ip link del ds0; ip link del wg0; ip link del line1; ip link del line2; echo 1 > /proc/sys/net/ipv4/nexthop_compat_mode")
	for _, c := range []struct{ routes, want string }{
		{"", "there is no default route"},
		{"ip route add default nexthop via 192.0.1.1 dev line1 nexthop via 192.0.2.1 dev line2", "line2"},
		{"ip route add default dev ds0; ip -6 route add default via 2001:db8:1::1 dev line1", "line1"},
		{"ip route add default dev ds0", "line1"},
		{"ip -6 route add default nexthop via 2001:db8:1::1 dev line1 nexthop via 2001:db8:2::1 dev line2", "--wan line1, past which goes IPv6 by line2"},
		{"ip route add default nhid 1", "line1"},
		{"ip -6 route add default nhid 8", "--wan line2, past which goes IPv6 by line1"},
		{"echo 0 > /proc/sys/net/ipv4/nexthop_compat_mode; ip -6 route add default nhid 8", "--wan line2, past which goes IPv6 by line1"},
		{"ip route add default nhid 1", "line1"},
		{"ip -6 route add default via 2001:db8:2::1 dev line2; ip -6 route add unreachable default metric 9", "line2"},
		{"ip route add default via 192.0.1.1 dev line1; ip -6 route add default via 2001:db8:2::1 dev line2", "--wan line1, past which goes IPv6 by line2"},
		{"ip route add unreachable default metric 5; ip route add default via 192.0.1.1 dev line1 metric 7", "line1"},
		{"ip route add default via 192.0.1.1 dev line1 metric 5; ip route add default via 192.0.2.1 dev line2 metric 7; ip link set far1 down", "line2"},
		{"ip link set far1 up; ip route add default dev wg0; ip route add default via 192.0.2.1 dev line2 metric 7", "line2"},
		{"ip route add default dev wg0; ip -6 route add default dev line1.7", "line1.7"},
		{"ip route add default dev wg0", "wg0, a tunnel"},
		{"ip route add default via 192.0.1.1 dev line1 table 100; ip route add default dev wg0 table 51820", "line1"},
	} {
		sh(t, c.routes)
		wan, err := linux.DefaultWAN(t.Context(), here())
		if wan != c.want && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %q, %v; want %s", c.routes, wan, err, c.want)
		}
		sh(t, noDefault)
	}
}

// TestOffloadsBelowInLab: behind a bridge and on a VLAN no packet stands merged in the
// queue: GRO is off where packets are received, and on again after revert.
func TestOffloadsBelowInLab(t *testing.T) {
	if !labtest.Inside(t, labtest.Options{With: "TestWhichLineInLab|TestOffloadsBelowInLab"}) {
		return
	}
	address := strings.Fields(sh(t, "ip -o -4 addr show dev lan"))[3]
	besideLab(t, "ip link add line1 type veth peer name far1; ip link set line1 up; ip link set far1 up; ip link add line1.7 link line1 type vlan id 7; ip link set line1.7 up\n"+
		"ip link add br-lan type bridge; ip link set br-lan up; ip addr del "+address+" dev lan; ip link set lan master br-lan; ip addr add "+address+" dev br-lan; ip route add "+strings.TrimSpace(sh(t, "ip route show default"))+"\n"+
		"ethtool -K lan gro on; ethtool -K line1 gro on",
		"ip link del line1; ip link del br-lan; ip addr add "+address+" dev lan; ethtool -K lan gro off")
	merges := func(dev string) bool {
		return strings.Contains(sh(t, "ethtool -k "+dev), "generic-receive-offload: on")
	}
	unbloat := labtest.Unbloat() + " "
	found := func(wan string) string {
		out, _ := exec.Command("sh", "-c", unbloat+"doctor --json --lan br-lan --wan "+wan).Output() // it fails if anything is in the way
		return string(out)
	}
	t.Cleanup(func() { _ = exec.Command(labtest.Unbloat(), "revert").Run() }) // what a failure leaves
	serveAll(t, lab.ServerAddr)
	for _, wan := range []string{"line1.7", "wan"} {
		sh(t, unbloat+"apply --aqm fq_codel --shape-down 20mbit --shape-up 4mbit --yes --quiet --lan br-lan --wan "+wan)
		if merges("lan") || wan == "line1.7" && merges("line1") {
			t.Errorf("%s: lan merges: %v, line1: %v", wan, merges("lan"), merges("line1"))
		}
		switch wan {
		case "line1.7":
			if said := found(wan); strings.Contains(said, "merges packets") {
				t.Errorf("%s", said)
			}
			sh(t, "ethtool -K lan gro on")
			if said := found(wan); !strings.Contains(said, "lan merges packets (gro)") {
				t.Errorf("with GRO on lan: %s", said)
			}
		case "wan":
			greedy(t, lab.Host(1), lab.ServerAddr, 1, 0)
			queue := regexp.MustCompile(`Sent \d{6,} bytes(?s:.*)maxpacket (\d+)`)
			var said []string
			await.Until(t, 30*time.Second, "an upload through the queue", func() bool {
				said = queue.FindStringSubmatch(sh(t, "tc -s qdisc show dev wan"))
				return said != nil
			})
			if most, _ := strconv.Atoi(said[1]); most > 1514 {
				t.Errorf("a packet of %d bytes stands in the queue", most)
			}
		}
		sh(t, unbloat+"revert --quiet")
		if !merges("lan") || !merges("line1") {
			t.Errorf("%s, reverted: lan merges: %v, line1: %v", wan, merges("lan"), merges("line1"))
		}
	}
}
