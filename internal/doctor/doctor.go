// Package doctor looks for what stands in the way of shaping on a router, or of
// an honest measurement. It reads, and changes nothing that anybody could see.
package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"unbloat/internal/host"
	"unbloat/internal/host/linux"
	"unbloat/internal/mechanism/tc"
	"unbloat/internal/plan"
	"unbloat/unit"
)

// Schema names the JSON layout of a Report.
const Schema = "unbloat.doctor/1"

// A Finding is one thing that is not as it should be.
type Finding struct {
	ID     string `json:"id"`         // as in "flow-offload"
	InWay  bool   `json:"in_the_way"` // it prevents or spoils shaping or measuring; otherwise it is worth knowing
	What   string `json:"what"`
	Why    string `json:"why"`    // why it matters
	Remedy string `json:"remedy"` // the command that mends it
}

// A Report is what was found.
type Report struct {
	Schema   string    `json:"schema"`
	Platform string    `json:"platform"`
	WAN      string    `json:"wan,omitempty"`
	LAN      string    `json:"lan,omitempty"`
	OK       bool      `json:"ok"` // nothing is in the way
	Findings []Finding `json:"findings"`
	Checked  []string  `json:"checked"` // what was looked at and is in order
	Skipped  []string  `json:"skipped"` // what could not be looked at, and why
}

// A Config says what is examined.
type Config struct {
	Runner    host.Runner
	Platform  string
	WAN, LAN  string
	Down, Up  unit.Rate      // that are wished; 0: not known
	LinkLayer plan.LinkLayer // of the line, if somebody said so
	Now       time.Time      // this machine's clock
	Far       bool           // the router is another machine
	// Shapers, if set, returns what shapes on the router, as its platform explains it.
	Shapers func(ctx context.Context) ([]host.Shaped, error)
	// LostClasses, if set, says where the rules that divide traffic are not what
	// was applied; nil if they are, or none should be there.
	LostClasses func(ctx context.Context) []string
	// Drifts, if set, says for each WAN where it is not what was applied there.
	Drifts func(ctx context.Context) ([]Drift, error)
	// Rehearse, if set, tries a change without making it.
	Rehearse func(ctx context.Context) error
}

// A Drift is a WAN that is not what was applied to it.
type Drift struct {
	WAN         string
	Differences []string // in words
	Mend        string   // the command that applies it again
}

// An examination is one run over one router.
type examination struct {
	Config
	ctx     context.Context
	report  Report
	shapers []host.Shaped
	links   []tc.Link
	kinds   map[string]bool // what the kernel has; nil: could not be tried
	ruleset string          // nftables' rules; "": none, or no nft(8)
}

// Examine looks at everything. It fails only if the router can't be asked at all.
func Examine(ctx context.Context, c Config) (*Report, error) {
	e := &examination{Config: c, ctx: ctx, report: Report{Schema: Schema, Platform: c.Platform, WAN: c.WAN, LAN: c.LAN,
		Findings: []Finding{}, Checked: []string{}, Skipped: []string{}}}
	switch {
	case linuxLike(c.Platform):
		e.linux()
	case c.Platform == "opnsense":
		e.api()
	default:
		e.bsd()
	}
	e.rehearse()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	e.report.OK = !slices.ContainsFunc(e.report.Findings, func(f Finding) bool { return f.InWay })
	return &e.report, nil
}

func linuxLike(platform string) bool {
	return slices.Contains([]string{"linux", "openwrt", "clearos"}, platform)
}

// linux runs the checks of a Linux router, each on its own.
func (e *examination) linux() {
	e.tools()
	e.devices()
	e.each([]check{
		{"kernel modules", e.modules}, {"what was applied", e.applied}, {"flow offload", e.flowOffload}, {"classes", e.classes}, {"other shapers", e.otherShapers}, {"segmentation offloads", e.offloads},
		{"queues without isolation", e.isolation}, {"packet overhead", e.overhead}, {"MTU", e.mtu}, {"CPU", e.cpu}, {"clock", e.clock},
	})
}

// applied compares what is there with what was applied.
func (e *examination) applied() bool {
	if e.Drifts == nil {
		return true
	}
	drifts, err := e.Drifts(e.ctx)
	if err != nil {
		return e.skip("what was applied", err.Error())
	}
	for _, d := range drifts {
		e.find(Finding{"drift", true, d.WAN + " is not what was applied: " + strings.Join(d.Differences, "; "),
			"what is missing shapes nothing, and the queue is in the modem again; a restart of the network, another program or a person took it away", d.Mend})
	}
	return true
}

// A check looks at one thing; what it finds, or can't tell, is in the report.
type check struct {
	name string
	run  func() bool
}

// each runs the checks, each on its own.
func (e *examination) each(checks []check) {
	for _, check := range checks {
		before := len(e.report.Findings) + len(e.report.Skipped)
		check.run()
		if len(e.report.Findings)+len(e.report.Skipped) == before {
			e.report.Checked = append(e.report.Checked, check.name)
		}
	}
}

func (e *examination) find(f Finding) bool {
	e.report.Findings = append(e.report.Findings, f)
	return false
}

func (e *examination) skip(what, why string) bool {
	e.report.Skipped = append(e.report.Skipped, what+": "+why)
	return false
}

// read returns a command's output, "" if it can't be run.
func (e *examination) read(argv ...string) string {
	out, err := host.Output(e.ctx, e.Runner, argv...)
	if err != nil {
		return ""
	}
	return string(out)
}

// tools looks for the programs that a change needs, and for the right to use them.
func (e *examination) tools() {
	for _, t := range []struct{ argv, pkg, openwrt, why string }{
		{"tc -V", "iproute2", "tc-full", "it sets the queues"},
		{"ip -V", "iproute2", "ip-full", "it makes the device that a download is shaped on"},
		{"ethtool --version", "ethtool", "", "it shows offloads that hide packets from the shaper"},
		{"unshare --version", "util-linux", "unshare", "with it a change is tried out where nobody sees it"},
	} {
		argv := strings.Fields(t.argv)
		var missing *host.MissingToolError
		if _, _, err := e.Runner.Run(e.ctx, argv, nil); errors.As(err, &missing) {
			e.find(Finding{"tool-" + argv[0], argv[0] == "tc" || argv[0] == "ip", argv[0] + "(8) is not there", t.why, linux.InstallCommand(e.ctx, e.Runner, t.pkg, t.openwrt)})
		}
	}
	if ok, known := linux.Privileged(e.ctx, e.Runner); known && !ok {
		e.find(Finding{"privilege", true, "this user may not configure the network", "nothing can be shaped, and not everything can be examined", "run it as root: sudo unbloat doctor"})
	}
}

// distro returns the family of the distribution, "" if it is none we know.
func (e *examination) distro() string { return linux.Distro(e.ctx, e.Runner) }

// devices reads the interfaces and what shapes on them.
func (e *examination) devices() {
	out, err := host.Output(e.ctx, e.Runner, "ip", "-j", "-d", "link", "show")
	if err == nil {
		e.links, err = tc.ParseLinks(out)
	}
	if err != nil {
		e.skip("interfaces", err.Error())
		return
	}
	if e.WAN == "" {
		e.WAN = linux.DefaultWAN(e.ctx, e.Runner)
		e.report.WAN = e.WAN
	}
	switch l, ok := e.link(e.WAN); {
	case e.WAN == "":
		e.find(Finding{"wan", true, "there is no default route", "nobody knows which interface to shape", "name it with --wan, or bring the line up"})
	case !ok:
		e.find(Finding{"wan", true, "there is no interface " + e.WAN, "nothing can be shaped on it", "name another with --wan; ip -br link lists them"})
	case !l.Up || !l.Carrier:
		e.find(Finding{"wan", true, e.WAN + " is down, or has no carrier", "nothing can be shaped on it", "ip link set dev " + e.WAN + " up; and look at the cable"})
	}
	e.readShapers()
}

func (e *examination) readShapers() {
	read := e.Shapers
	if read == nil {
		read = func(ctx context.Context) ([]host.Shaped, error) { return linux.Shapers(ctx, e.Runner) }
	}
	var err error
	if e.shapers, err = read(e.ctx); err != nil {
		e.skip("shapers", err.Error())
	}
}

func (e *examination) link(name string) (tc.Link, bool) {
	i := slices.IndexFunc(e.links, func(l tc.Link) bool { return l.Name == name })
	if i < 0 {
		return tc.Link{}, false
	}
	return e.links[i], true
}

// rehearse tries a change, and takes what is in its way for a finding, if no
// check has found it already.
func (e *examination) rehearse() {
	if e.Rehearse == nil {
		return
	}
	err := e.Rehearse(e.ctx)
	var pre *host.PreconditionError
	var foreign *tc.ForeignError
	if err == nil {
		e.report.Checked = append(e.report.Checked, "a change, rehearsed")
		return
	}
	if slices.ContainsFunc(e.report.Findings, func(f Finding) bool { return f.InWay }) {
		return // it would say the same again
	}
	f := Finding{ID: "rehearsal", InWay: true, What: err.Error(), Why: "`unbloat apply` would refuse", Remedy: "see there"}
	switch {
	case errors.As(err, &pre):
		f.What, f.Remedy = fmt.Sprintf("%s: %s", pre.Doing, pre.What), pre.Remedy
	case errors.As(err, &foreign):
		f.Remedy = "unbloat apply --replace takes over from it, and revert puts it back"
	}
	e.find(f)
}
