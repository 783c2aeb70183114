package linux

import (
	"context"
	"errors"
	"slices"
	"strings"

	"unbloat/internal/cure/lang/tc"
	"unbloat/internal/cure/platform"
)

// Examined holds the doctor's settings for one kind of Linux router.
type Examined struct {
	SQM       bool // sqm-scripts shapes it, so it is no conflict
	TakesOver bool // apply --replace can take over a foreign shaper
	Judged    bool // its plans have classes by how flows behave
}

// An examination is the doctor's, with the data that Linux's checks share.
type examination struct {
	*platform.Examination
	own     Examined
	links   []tc.Link
	kinds   map[string]bool // qdisc kinds of the kernel; nil: could not be tested
	ruleset string          // nftables' rules; "": none, or no nft(8)
}

// Checks returns a driver's Checks. Tools and devices are read first, since
// most checks need both.
func Checks(own Examined) func(e *platform.Examination) []platform.Check {
	return func(of *platform.Examination) []platform.Check {
		e := &examination{Examination: of, own: own}
		if e.Explain == nil {
			e.Explain = func(ctx context.Context) ([]platform.Shaped, error) { return Shapers(ctx, e.Runner) }
		}
		e.tools()
		e.devices()
		headroom := []platform.Check{}
		if e.MeasureHeadroom != nil {
			headroom = append(headroom, platform.Check{Name: "headroom", Run: func() { e.MeasureHeadroom(of) }})
		}
		return append(headroom, []platform.Check{
			{Name: "kernel modules", Run: e.modules}, e.Applied(), {Name: "default routes", Run: e.pastWAN}, {Name: "flow offload", Run: e.flowOffload}, {Name: "classes", Run: e.classes},
			{Name: "other shapers", Run: e.otherShapers}, {Name: "segmentation offloads", Run: e.offloads},
			{Name: "queues without isolation", Run: e.isolation}, {Name: "packet overhead", Run: e.overhead}, {Name: "MTU", Run: e.mtu},
			e.CPU(e.clockRate), {Name: "clock", Run: e.clock},
		}...)
	}
}

// tools checks for the programs that a change needs and for root privileges.
func (e *examination) tools() {
	for _, t := range []struct{ argv, pkg, openwrt, why string }{
		{"tc -V", "iproute2", "tc-full", "it sets the queues"},
		{"ip -V", "iproute2", "ip-full", "it makes the device that a download is shaped on"},
		{"ethtool --version", "ethtool", "", "it shows offloads that hide packets from the shaper"},
		{"unshare --version", "util-linux", "unshare", "with it a change is tried out where nobody sees it"},
	} {
		argv := strings.Fields(t.argv)
		var missing *platform.MissingToolError
		if _, _, err := e.Runner.Run(e.Ctx, argv, nil); errors.As(err, &missing) {
			e.Find(platform.Finding{ID: "tool-" + argv[0], Blocking: argv[0] == "tc" || argv[0] == "ip", What: argv[0] + "(8) is not there", Why: t.why, Remedy: InstallCommand(e.Ctx, e.Runner, t.pkg, t.openwrt)})
		}
	}
	if ok, known := Privileged(e.Ctx, e.Runner); known && !ok {
		e.Find(platform.Finding{ID: "privilege", Blocking: true, What: "this user may not configure the network", Why: "nothing can be shaped, and not everything can be examined", Remedy: "run it as root: sudo unbloat doctor"})
	}
}

// devices reads the interfaces and their shapers.
func (e *examination) devices() {
	var err error
	if e.links, err = readLinks(e.Ctx, e.Runner); err != nil {
		e.Skip("interfaces", err.Error())
		return
	}
	var none *platform.PreconditionError
	if e.WAN == "" {
		e.WAN, err = DefaultWAN(e.Ctx, e.Runner)
	}
	switch l, ok := e.link(e.WAN); {
	case errors.As(err, &none):
		e.Find(platform.Finding{ID: "wan", Blocking: true, What: none.What, Why: "nobody knows which interface to shape", Remedy: none.Advice()})
	case err != nil:
		e.Skip("default routes", err.Error())
	case !ok:
		e.Find(platform.Finding{ID: "wan", Blocking: true, What: "there is no interface " + e.WAN, Why: "nothing can be shaped on it", Remedy: "name another with --wan; ip -br link lists them"})
	case !l.Up || !l.Carrier:
		e.Find(platform.Finding{ID: "wan", Blocking: true, What: e.WAN + " is down, or has no carrier", Why: "nothing can be shaped on it", Remedy: "ip link set dev " + e.WAN + " up; and look at the cable"})
	}
	e.ReadShapers()
}

func (e *examination) link(name string) (tc.Link, bool) {
	i := slices.IndexFunc(e.links, func(l tc.Link) bool { return l.Name == name })
	if i < 0 {
		return tc.Link{}, false
	}
	return e.links[i], true
}
