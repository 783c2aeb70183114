package platform

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"unbloat/internal/cure/plan"
	"unbloat/unit"
)

// A Finding is one problem of a router.
type Finding struct {
	ID       string `json:"id"`         // as in "flow-offload"
	Blocking bool   `json:"in_the_way"` // it prevents or spoils shaping or measuring; otherwise it is a hint
	What     string `json:"what"`
	Why      string `json:"why"`    // why it matters
	Remedy   string `json:"remedy"` // the command that fixes it
}

// A Drift is a WAN whose state differs from what was applied.
type Drift struct {
	WAN         string
	Differences []string // for people
	Mend        string   // the command that applies it again
}

// An Examination is one run of the doctor on one router. A driver's checks read
// it and report their findings to it.
type Examination struct {
	Ctx       context.Context
	Runner    Runner
	WAN, LAN  string         // "": not known; a check may find the WAN
	Down, Up  unit.Rate      // wanted rates; 0: not known
	LinkLayer plan.LinkLayer // the line's, if given
	Now       time.Time      // this machine's clock
	Far       bool           // the router is another machine

	// Explain returns the router's shapers; nil: use the driver's backend.
	Explain func(ctx context.Context) ([]Shaped, error)
	// LostClasses lists where the classification rules differ from those
	// applied; nil: unknown what was applied.
	LostClasses func(ctx context.Context) []string
	// Drifts lists the WANs whose state differs from what was applied; nil:
	// unknown.
	Drifts func(ctx context.Context) ([]Drift, error)

	// MeasureHeadroom, if set, measures the Headroom of routers with Linux.
	MeasureHeadroom func(e *Examination)

	Headroom *Headroom // nil: not measured
	Shapers  []Shaped  // what ReadShapers found
	Findings []Finding // in order of discovery
	Checked  []string  // checks without findings
	Skipped  []string  // checks that could not run, and why
}

// A Check examines one thing. It reports findings, or that it could not run, to
// the examination; if it reports nothing, that thing is fine.
type Check struct {
	Name string
	Run  func()
}

// Each runs the checks, each on its own.
func (e *Examination) Each(checks []Check) {
	for _, check := range checks {
		before := len(e.Findings) + len(e.Skipped)
		check.Run()
		if len(e.Findings)+len(e.Skipped) == before {
			e.Checked = append(e.Checked, check.Name)
		}
	}
}

// Find reports a finding.
func (e *Examination) Find(f Finding) { e.Findings = append(e.Findings, f) }

// Skip reports a check that could not run, and why.
func (e *Examination) Skip(what, why string) { e.Skipped = append(e.Skipped, what+": "+why) }

// Read returns a command's output, "" if it can't be run.
func (e *Examination) Read(argv ...string) string {
	out, err := Output(e.Ctx, e.Runner, argv...)
	if err != nil {
		return ""
	}
	return string(out)
}

// ReadShapers reads the router's shapers into Shapers.
func (e *Examination) ReadShapers() {
	if e.Explain == nil {
		return
	}
	var err error
	if e.Shapers, err = e.Explain(e.Ctx); err != nil {
		e.Skip("shapers", err.Error())
	}
}

// Applied is the check that compares the router's state with what was applied.
func (e *Examination) Applied() Check {
	const name = "what was applied"
	return Check{Name: name, Run: func() {
		if e.Drifts == nil {
			return
		}
		drifts, err := e.Drifts(e.Ctx)
		if err != nil {
			e.Skip(name, err.Error())
			return
		}
		for _, d := range drifts {
			e.Find(Finding{ID: "drift", Blocking: true, What: d.WAN + " is not what was applied: " + strings.Join(d.Differences, "; "),
				Why: "what is missing shapes nothing, and the queue is in the modem again; a restart of the network, another program or a person took it away", Remedy: d.Mend})
		}
	}}
}

// Rough CPU cycles for forwarding and shaping a full packet, from public
// reports: small in-order cores with NAT in software need several times as many
// as large ones. They only tell "plenty" from "not enough".
const (
	cyclesSmallCore = 50_000
	cyclesLargeCore = 15_000
)

// CPU is the check that compares a core's clock with the wanted rate: a shaper
// runs on one core. clock returns its highest clock in Hz, 0 if it is not
// known.
func (e *Examination) CPU(clock func() int64) Check {
	return Check{Name: "CPU", Run: func() {
		if e.Headroom != nil && e.Headroom.Valid {
			return // measured, which is better than this estimate
		}
		asked := e.Down + e.Up
		hz := clock()
		switch {
		case asked == 0:
			e.Skip("CPU", "no rate was given; add --down and --up")
			return
		case hz == 0:
			e.Skip("CPU", "its clock is not known")
			return
		}
		cycles := int64(cyclesLargeCore)
		if machine := strings.TrimSpace(e.Read("uname", "-m")); strings.HasPrefix(machine, "mips") || strings.HasPrefix(machine, "armv") {
			cycles = cyclesSmallCore
		}
		most := unit.Rate(hz / cycles * 1514 * 8)
		if asked > most {
			e.Find(Finding{ID: "cpu", What: fmt.Sprintf("a core of %d MHz shapes about %s, and %s are asked for", hz/1e6, most.Short(), asked.Short()),
				Why: "when the core is busy, packets wait outside the queues that are kept short; the estimate is rough", Remedy: "unbloat tune measures what this router can do; fq_codel needs less than cake"})
		}
	}}
}

// mostSkew is the largest accepted difference between the clocks of two
// machines.
const mostSkew = 2 * time.Minute

// TimeOfDay checks the router's clock.
func (e *Examination) TimeOfDay() {
	seconds, err := strconv.ParseInt(strings.TrimSpace(e.Read("date", "+%s")), 10, 64)
	if err != nil {
		e.Skip("clock", "the router does not tell the time")
		return
	}
	at := time.Unix(seconds, 0)
	if skew := at.Sub(e.Now).Abs(); at.Year() < 2024 || e.Far && skew > mostSkew {
		e.Find(Finding{ID: "clock", Blocking: true, What: "the clock says " + at.UTC().Format(time.RFC3339), Why: "certificates are refused, and results can't be put in order",
			Remedy: "ntpd -q -p pool.ntp.org, or chronyc makestep"})
	}
}

// leastIPv6 is the minimum MTU of a link with IPv6, in bytes (RFC 8200 §5).
const leastIPv6 = 1280

// LeastMTU checks that the WAN's MTU, in bytes, is enough for IPv6; mend is the
// command that sets the usual one.
func (e *Examination) LeastMTU(mtu int, mend string) {
	if mtu < leastIPv6 {
		e.Find(Finding{ID: "mtu", Blocking: true, What: fmt.Sprintf("the MTU of %s is %d", e.WAN, mtu), Why: "IPv6 needs 1280 bytes (RFC 8200 §5)", Remedy: mend + ", or what the provider says"})
	}
}

// Unclamped reports that TCP segments are too long for the WAN; lan and wan are
// MTUs in bytes.
func (e *Examination) Unclamped(lan, wan int, remedy string) {
	e.Find(Finding{ID: "mss", What: fmt.Sprintf("%s has an MTU of %d, %s one of %d, and nothing clamps TCP's segments", e.LAN, lan, e.WAN, wan),
		Why: "where messages of path MTU discovery are lost, connections hang", Remedy: remedy})
}
