package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform"
	"unbloat/internal/show/cli"
	"unbloat/unit"
)

// doctorFlags are the flags of `unbloat doctor`.
type doctorFlags struct {
	routerFlags
	wan, lan, linkLayer string
	down, up            unit.Rate
	marks               string
	headroom            bool // measure it, which takes some seconds
}

func newDoctorCommand() *cobra.Command {
	var f doctorFlags
	c := &cobra.Command{
		Use:     "doctor",
		Short:   "Look for what stands in the way of shaping, or of an honest measurement",
		GroupID: "main",
		Long: "Examines the router and changes nothing. Each finding says what is wrong, why it matters,\n" +
			"and which command repairs it. The exit code is 5 if something prevents shaping, else 0.",
		Example: `  unbloat doctor --wan eth0 --down 250mbit --up 40mbit
  unbloat doctor --router ssh://root@192.168.1.1 --json`,
		Args: cli.ExactArgs(0, "no arguments"),
		RunE: func(c *cobra.Command, _ []string) error { return runDoctor(c, &f) },
	}
	f.routerFlags.register(c)
	f.targetFlags.register(c)
	fs := c.Flags()
	fs.StringVar(&f.wan, "wan", "", "`IF`, the interface towards the internet (default: that of the default route)")
	fs.StringVar(&f.lan, "lan", "", "`IF`, the interface towards the home")
	fs.StringVar(&f.linkLayer, "link-layer", "", "what the line is: ethernet, docsis, atm or ptm")
	fs.StringVar(&f.marks, "marks", "", marksUsage)
	rateFlag(fs, &f.down, "down", "the download rate that is wanted")
	rateFlag(fs, &f.up, "up", "the upload rate that is wanted")
	return c
}

func runDoctor(c *cobra.Command, f *doctorFlags) error {
	f.headroom = true
	marks, err := readMarks(c.InOrStdin(), f.marks)
	if err != nil {
		return err
	}
	report, err := f.examine(c.Context())
	if err != nil {
		return changeError(err)
	}
	if marks != nil {
		if found, is := marksFinding(marks); is {
			report.Findings = append(report.Findings, found)
		} else {
			report.Checked = append(report.Checked, "marks on the way")
		}
	}
	if err := f.print(c.OutOrStdout(), report); err != nil {
		return err
	}
	if !report.OK {
		return cli.Exit(cli.Precondition, nil)
	}
	return nil
}

// examine looks at the router.
func (f *doctorFlags) examine(ctx context.Context) (*platform.DoctorReport, error) {
	f.preview = true
	r, err := f.open(ctx)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	wan := f.wan
	if wan == "" {
		wan, _ = r.defaultWAN(ctx) // the examination says why there is none
	}
	if p, err := r.appliedPlan(wan); err == nil && f.down == 0 && f.up == 0 { // what it is shaped to is wanted
		for rate, s := range map[*unit.Rate]*plan.Shaper{&f.down: p.Down, &f.up: p.Up} {
			if s != nil {
				*rate = s.Rate
			}
		}
	}
	var headroom func(*platform.Examination)
	if f.headroom {
		headroom = headroomCheck()
	}
	report, err := platform.Examine(ctx, platform.DoctorConfig{
		MeasureHeadroom: headroom,
		Runner:          r.runner, Driver: r.driver, WAN: wan, LAN: f.lan, Down: f.down, Up: f.up,
		LinkLayer: plan.LinkLayer(f.linkLayer), Now: time.Now(), Far: f.router != "",
		Shapers: func(ctx context.Context) ([]platform.Shaped, error) { return r.shapers(ctx, wan) },
		LostClasses: func(ctx context.Context) []string {
			p, err := r.appliedPlan(wan)
			if err != nil {
				return nil // no plan is in force
			}
			return r.lostClasses(ctx, p)
		},
		Drifts:   func(ctx context.Context) ([]platform.Drift, error) { return f.drifts(ctx, r) },
		Rehearse: func(ctx context.Context) error { return f.rehearse(ctx, r) },
	})
	if err != nil {
		return nil, err
	}
	return report, f.examineDaemon(ctx, report)
}

// drifts compares every WAN with what was applied to it. Lost rules of classes
// are left to another check.
func (f *doctorFlags) drifts(ctx context.Context, r *router) ([]platform.Drift, error) {
	var out []platform.Drift
	for _, wan := range r.wans() {
		diffs, err := f.differs(ctx, r, wan)
		if err != nil {
			return nil, err
		}
		if p, err := r.appliedPlan(wan); err == nil && len(diffs) > 0 {
			lost := r.lostClasses(ctx, p)
			diffs = slices.DeleteFunc(diffs, func(d string) bool { return slices.Contains(lost, d) })
		}
		if len(diffs) > 0 {
			out = append(out, platform.Drift{WAN: wan, Differences: diffs, Mend: f.mend(ctx, r, wan)})
		}
	}
	return out, nil
}

// rehearse works out a change at the given rates, or at usual ones.
func (f *doctorFlags) rehearse(ctx context.Context, r *router) error {
	caps, err := r.capabilities(ctx, f.wan, f.lan)
	if err != nil {
		return err
	}
	w := plan.Preferences{Down: plan.RatePreference{Rate: f.down}, Up: plan.RatePreference{Rate: f.up}}
	if f.down == 0 && f.up == 0 {
		w.Up, w.Only = plan.RatePreference{Rate: 10 * unit.MbitPerSecond}, plan.DirectionUp
	}
	p, err := plan.Make(plan.Line{LinkLayer: plan.LinkLayer(f.linkLayer)}, caps, w)
	if err != nil {
		return r.lacking(ctx, caps.WAN, err)
	}
	_, err = r.engine.Preview(ctx, p)
	return err
}

func (f *doctorFlags) print(w io.Writer, r *platform.DoctorReport) error {
	if f.json {
		return json.NewEncoder(w).Encode(r)
	}
	if f.quiet {
		return nil
	}
	out := cli.Fit(w)
	defer out.Flush() // w keeps its errors
	w = out
	for _, x := range r.Findings {
		mark := "note"
		if x.Blocking {
			mark = "in the way"
		}
		fmt.Fprintf(w, "%s: %s\n  why:    %s\n  remedy: %s\n", mark, x.What, x.Why, x.Remedy)
	}
	printHeadroom(w, r.Headroom, f.down+f.up)
	for _, s := range r.Skipped {
		fmt.Fprintf(w, "not examined: %s\n", s)
	}
	if r.OK {
		fmt.Fprintf(w, "Nothing stands in the way on %s (%d things examined).\n", r.Platform, len(r.Checked))
	}
	return nil
}
