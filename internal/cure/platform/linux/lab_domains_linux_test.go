package linux_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"unbloat/internal/cure/apply"
	"unbloat/internal/cure/classify"
	"unbloat/internal/cure/lang/nft"
	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform/linux"
	"unbloat/lab"
	"unbloat/testkit/labtest"
)

// initScript starts dnsmasq on the guest's router, as Debian's does.
const initScript = `#!/bin/sh
[ -f /run/dnsmasq.pid ] && kill $(cat /run/dnsmasq.pid) && while kill -0 $(cat /run/dnsmasq.pid); do :; done
rm -f /run/dnsmasq.pid
[ "$1" = stop ] && exit 0
exec dnsmasq --user=root --pid-file=/run/dnsmasq.pid --conf-file=/dev/null -7 /etc/dnsmasq.d,.dpkg-dist --no-hosts --no-resolv --server=` + lab.ServerAddr + ` --listen-address=10.1.0.1 --bind-interfaces
`

// ask resolves a name at the router, from the home.
func ask(t *testing.T, name string) string {
	t.Helper()
	var got []net.IP
	var err error
	within(t, lab.Host(1), func() {
		r := net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "udp4", "10.1.0.1:53")
		}}
		got, err = r.LookupIP(t.Context(), "ip4", name)
	})
	if err != nil || len(got) == 0 {
		t.Fatalf("ask for %s: %v %v", name, got, err)
	}
	return got[0].String()
}

// TestDomainsInLab, with a real dnsmasq on the router: it is found and
// configured, and fills the set when a name is resolved, even one that was in
// its cache. A flow to that address has the rule's class, and revert restores
// dnsmasq.
func TestDomainsInLab(t *testing.T) {
	if _, err := exec.LookPath("dnsmasq"); err != nil {
		t.Skip("SKIPPED: there is no dnsmasq here")
	}
	if !routerInLab(t) {
		return
	}
	ctx := t.Context()
	for _, dir := range []string{"/etc/dnsmasq.d", "/etc/init.d"} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile("/etc/init.d/dnsmasq", []byte(initScript), 0o755); err != nil {
		t.Fatal(err)
	}
	_ = os.RemoveAll("/run/systemd/system")
	upstream := labtest.In(ctx, lab.NodeServer, "dnsmasq", "--keep-in-foreground", "--user=root", "--pid-file", "--conf-file=/dev/null", "--no-hosts", "--no-resolv",
		"--listen-address="+lab.ServerAddr, "--bind-interfaces", "--host-record=meet.example,203.0.113.7", "--host-record=other.example,203.0.113.8", "--local-ttl=600")
	if err := upstream.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = upstream.Process.Kill(); _ = upstream.Wait() }()
	time.Sleep(time.Second) // virtual time: until it listens
	router := here()
	run := func(argv ...string) string {
		out, errOut, err := router.Run(ctx, argv, nil)
		if err != nil {
			t.Fatalf("%q: %v: %s", argv, err, errOut)
		}
		return string(out)
	}
	run("/etc/init.d/dnsmasq", "start")
	defer func() { _ = exec.Command("/etc/init.d/dnsmasq", "stop").Run() }()
	address := ask(t, "meet.example") // now in dnsmasq's cache

	p := domainPlanFor(t, router, "meet.example")
	b := &linux.Backend{Runner: router, Exe: labtest.Unbloat()}
	e := &apply.Engine{Backend: b, Runner: router, Dir: t.TempDir(), Watchdog: nobody{}}
	tr, err := e.Begin(ctx, p, apply.Options{Confirm: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if err := tr.Commit(); err != nil {
		t.Fatal(err)
	}
	tr.Close()
	in := func(address string) bool {
		return exec.Command("nft", "get", "element", nft.Family, plan.OwnName("wan"), "far4_1", "{ "+address+" }").Run() == nil
	}
	if in(address) {
		t.Errorf("%s is in the set before anybody asked", address)
	}
	if again := ask(t, "meet.example"); again != address || !in(address) {
		t.Errorf("asked again for meet.example: %s, in the set: %v", again, in(again))
	}
	if other := ask(t, "other.example"); in(other) {
		t.Errorf("%s is in the set, and no rule names it", other)
	}
	flow, err := classify.ParseFlow(fmt.Sprintf("tcp 10.1.0.2:5000 > %s:443", address))
	if err != nil {
		t.Fatal(err)
	}
	flow.Packet = 1500
	for _, v := range linux.Why(ctx, router, p, flow).Verdicts {
		if v.Class != plan.Voice || !strings.Contains(v.Rule, "meet.example") {
			t.Errorf("%s: %s, %s", v.Direction, v.Class, v.Rule)
		}
	}
	if _, _, err := e.Revert(ctx, apply.Journal{WAN: "wan"}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(resolverFile); err == nil {
		t.Errorf("%s is still there", resolverFile)
	}
	if exec.Command("nft", "list", "table", nft.Family, plan.OwnName("wan")).Run() == nil {
		t.Error("the table is still there")
	}
	if got := ask(t, "meet.example"); got != address {
		t.Errorf("after the undo meet.example is %s", got)
	}
}
