package lab

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform/linux"
	"unbloat/internal/measure/verdict"
	"unbloat/lab/scenario"
	"unbloat/unit"
)

// system is what the router runs: Linux, but where another's was simulated.
func system(r *Result) string {
	for _, c := range r.Cases {
		if c.Plan != nil && c.Plan.Platform != linux.Name {
			return c.Plan.Platform
		}
	}
	return "Linux"
}

// Print writes what a run found as a table for people: a row a case and phase.
func Print(w io.Writer, s *scenario.Scenario, r *Result) error {
	fmt.Fprintf(w, "%s: %s\n", s.Name, s.Title)
	fmt.Fprintf(w, "line %s down, %s up, %.4g ms; %s %s, %s time, %.0f s of it in %.1f s\n",
		s.Line.Down, s.Line.Up, unit.Ms(s.Line.RTT), system(r), r.Kernel, r.Engine, r.VirtualSeconds, r.WallSeconds)
	if x := r.Router; x != nil {
		fmt.Fprintf(w, "router %s under QEMU (%s), up after %.0f s\n", x.Image, x.Accelerator, x.BootSeconds)
	}
	fmt.Fprintln(w)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "case\tphase\tp50 ms\tp95 ms\tmax ms\tincrease p95\tloss\tdown Mbit/s\tup Mbit/s\t")
	for _, c := range r.Cases {
		for _, p := range c.Test.Phases() {
			q := p.Latency.RTTMs
			fmt.Fprintf(t, "%s\t%s\t%.1f\t%.1f\t%.1f\t%.1f\t%.1f %%\t%s\t%s\t\n", c.Name, p.Name,
				q.P50, q.P95, q.Max, p.Latency.IncreaseMs.P95, 100*p.Latency.Loss, rate(p.GoodputDownBps), rate(p.GoodputUpBps))
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w)
	for _, c := range r.Cases {
		fmt.Fprintf(w, "%s: %s\n", c.Name, shaping(c.Plan))
		for _, l := range c.Loads {
			printLoad(w, l)
		}
		if !c.Test.Valid {
			fmt.Fprintf(w, "  NOT VALID: %s\n", strings.Join(c.Test.InvalidReasons, "; "))
		}
		if c.Router != nil && len(c.Router.Left) > 0 {
			fmt.Fprintf(w, "  NOT AS IT WAS after it was undone: %s\n", strings.Join(c.Router.Left, "; "))
		}
		if c.Tune != nil {
			fmt.Fprintf(w, "  tuned in %.0f s of line time; %s\n", c.Tune.LineSeconds, c.Tune.Reason)
		}
	}
	return nil
}

func rate(bps float64) string {
	if bps == 0 {
		return "-"
	}
	return fmt.Sprintf("%.3f", bps/1e6)
}

func shaping(p *plan.Plan) string {
	if p == nil {
		return "no shaping"
	}
	one := func(r unit.Rate) string {
		if r == 0 {
			return "unshaped"
		}
		return r.Short()
	}
	return fmt.Sprintf("%s, %s down, %s up", p.AQM, one(p.DownBps), one(p.UpBps))
}

func printLoad(w io.Writer, l LoadResult) {
	fmt.Fprintf(w, "  %d × %s on %s: ", l.Flows, l.Kind, Host(l.Host))
	if l.GoodputDownBps > 0 || l.GoodputUpBps > 0 {
		fmt.Fprintf(w, "%s down, %s up", unit.Rate(l.GoodputDownBps).Short(), unit.Rate(l.GoodputUpBps).Short())
	} else {
		fmt.Fprint(w, unit.Rate(l.GoodputBps).Short())
	}
	if x := l.Latency; x != nil && x.Sent > 0 {
		fmt.Fprintf(w, ", loss %.1f %%", 100*x.Loss)
		if x.RTTMs != (verdict.Quantiles{}) {
			fmt.Fprintf(w, ", p95 %.1f ms", x.RTTMs.P95)
		}
	}
	for _, s := range l.QoE.Sentences() {
		fmt.Fprintf(w, "; %s", s)
	}
	fmt.Fprintln(w)
}
