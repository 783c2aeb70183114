package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"unbloat/internal/cure/apply"
	"unbloat/internal/cure/lang/tc"
	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform"
	"unbloat/internal/keep/daemon"
	"unbloat/internal/show/cli"
	"unbloat/unit"
)

// A routerStatus is the output of `status --json`. Everything is read from the
// kernel, except for the state of a transaction, which is in the journal.
type routerStatus struct {
	Schema    string            `json:"schema"`
	Platform  string            `json:"platform"`
	Shapers   []platform.Shaped `json:"shapers"`
	Pending   []pendingState    `json:"pending"`
	Committed []keptState       `json:"committed"`
	AtBoot    bool              `json:"at_boot"` // a plan is applied at every boot
	// Daemon is what a running daemon says of the WANs that it keeps here.
	Daemon *daemon.Status `json:"daemon,omitempty"`
	// LostClasses describes for each WAN how the rules of its classes differ
	// from what was applied.
	LostClasses map[string][]string `json:"lost_classes,omitempty"`
	// Drift describes for each WAN how the router differs from what was
	// applied.
	Drift []drift `json:"drift,omitempty"`
	// Flows counts for each machine the flows in the classes' meters, by
	// direction and state: "up calm", "down busy".
	Flows map[string]map[string]int `json:"flows,omitempty"`
	// Machines is the traffic of each machine's connections, by class.
	Machines []platform.Traffic `json:"machines,omitempty"`
	// Connections are those asked for: steady ones first, then those that have
	// carried most. There are MoreConnections besides.
	Connections     []platform.Connection `json:"connections,omitempty"`
	MoreConnections int                   `json:"more_connections,omitempty"`
	// Unread is why neither is known, where the classes' memory can't be read.
	Unread string `json:"unread,omitempty"`
}

// A drift is how a WAN differs from what was applied to it.
type drift struct {
	WAN         string   `json:"wan"`
	Differences []string `json:"differences"`
	Mend        string   `json:"mend"` // the command that applies it again
}

// A pendingState is a change that waits for confirmation.
type pendingState struct {
	WAN     string    `json:"wan"`
	Seconds float64   `json:"undone_in_seconds"`
	Plan    plan.Plan `json:"plan"`
	Failure string    `json:"failure,omitempty"` // why it could not be undone yet
}

// A keptState is the last committed change of a WAN.
type keptState struct {
	WAN  string    `json:"wan"`
	Time string    `json:"time"`
	Plan plan.Plan `json:"plan"`
}

func newStatusCommand() *cobra.Command {
	var f routerFlags
	var watch, verbose bool
	var wan, tag string
	var most int
	c := &cobra.Command{
		Use:     "status",
		Short:   "Show the shapers that are really there, and what they do",
		GroupID: "main",
		Long: "Shows all shapers on the router, whoever made them, and compares them with what was applied.\n" +
			"If they differ it says how to repair that, and the exit code is 1.\n\n" +
			"Where flows have classes on Linux and OpenWrt, it lists them with the class of each way.\n" +
			"--verbose adds what each queue, class and machine has counted.\n\n" +
			"--watch shows what a running daemon believes of each line that it keeps, and why the\n" +
			"shapers' rates are what they are: on a terminal in place, otherwise a line for each\n" +
			"change. Without a daemon it shows the shapers again every second.",
		Example: "  unbloat status\n  unbloat status --verbose\n  unbloat status --watch\n  unbloat status --flows 100\n  unbloat status --router ssh://root@192.168.1.1 --json",
		Args:    cli.ExactArgs(0, "no arguments"),
		RunE: func(c *cobra.Command, _ []string) error {
			f.short = !verbose && !watch
			if most < 0 {
				return cli.UsageError("status: --flows %d: a number of flows, 0 for none", most)
			}
			r, err := f.open(c.Context())
			if err != nil {
				return changeError(err)
			}
			defer r.Close()
			if !watch {
				s, err := f.status(c.Context(), r, wan, most)
				if err != nil {
					return changeError(err)
				}
				w := cli.Fit(c.OutOrStdout())
				if err := errors.Join(f.printStatus(w, s, nil, 0), w.Flush()); err != nil {
					return err
				}
				return s.verdict()
			}
			if done, err := f.watchKept(c, wan, tag); done || err != nil {
				return err
			}
			return f.watchStatus(c.Context(), r, wan, most, c.OutOrStdout())
		},
	}
	f.register(c)
	f.targetFlags.register(c)
	c.Flags().StringVar(&wan, "wan", "", "interface towards the internet (default: that of the default route)")
	c.Flags().IntVar(&most, "flows", usualFlows, "how many flows to list with their classes, steady ones first, then those that carried most")
	c.Flags().BoolVar(&verbose, "verbose", false, "also what each queue, class and machine has counted")
	c.Flags().BoolVar(&watch, "watch", false, "go on showing it until interrupted; on a terminal in place")
	c.Flags().StringVar(&tag, "lang", "", "`LANGUAGE` of --watch: en or de (default: LC_ALL, LC_MESSAGES or LANG, else en)")
	return c
}

// status reads how the router is, with so many connections at most.
func (f *routerFlags) status(ctx context.Context, r *router, wan string, most int) (*routerStatus, error) {
	if err := r.checkWAN(ctx, wan); err != nil {
		return nil, err
	}
	s := &routerStatus{Schema: "unbloat.status/1", Platform: r.driver.Name(), Pending: []pendingState{}, Committed: []keptState{}}
	var err error
	if s.Shapers, err = r.shapers(ctx, wan); err != nil {
		return nil, err
	}
	for _, r := range r.ways() {
		for _, wan := range r.wans() {
			if j, err := r.engine.Pending(wan); err == nil && j != nil {
				s.Pending = append(s.Pending, pendingState{wan, (j.Deadline - apply.Uptime()).Seconds(), j.Plan, j.Failure})
			}
			if r, err := r.engine.Record(wan); err == nil && r != nil {
				s.Committed = append(s.Committed, keptState{wan, r.Time, r.Plan})
			}
		}
		for _, w := range r.wans() {
			if wan != "" && w != wan {
				continue
			}
			diffs, err := f.differs(ctx, r, w)
			if err != nil {
				return nil, err
			}
			if len(diffs) > 0 {
				s.Drift = append(s.Drift, drift{w, diffs, f.mend(ctx, r, w)})
			}
		}
		s.AtBoot = s.AtBoot || r.persister.Persists()
	}
	if s.Daemon, err = f.kept(ctx); err != nil {
		return nil, err
	}
	if known := r.driver.Classes; known != nil && len(s.classed()) > 0 {
		s.Flows, s.LostClasses = known.Flows(ctx, r.runner), map[string][]string{}
		var all []platform.Connection
		for _, p := range s.classed() {
			if lost := r.lostClasses(ctx, p); len(lost) > 0 {
				s.LostClasses[p.WAN] = lost
			}
			if p.Classes.ByBPF() || all == nil { // connection tracking has those of every WAN
				all = append(all, known.Connections(ctx, r.runner, p)...)
			}
			if known.Unread != nil {
				s.Unread = cmp.Or(s.Unread, known.Unread(ctx, r.runner, p))
			}
		}
		s.connections(all, most)
	}
	return s, nil
}

// verdict returns an error if the router differs from what was applied.
func (s *routerStatus) verdict() error {
	var wans, mend []string
	for _, d := range s.Drift {
		wans, mend = append(wans, d.WAN), append(mend, d.Mend)
	}
	for _, wan := range slices.Sorted(maps.Keys(s.LostClasses)) {
		if !slices.Contains(wans, wan) {
			wans, mend = append(wans, wan), append(mend, "apply the plan again")
		}
	}
	if len(wans) == 0 {
		return nil
	}
	return cli.Exit(cli.Failed, fmt.Errorf("status: %s: what is there is not what was applied; put it back with: %s", strings.Join(wans, ", "), strings.Join(mend, "; ")))
}

// mend returns the command that applies again what is in force on a WAN.
func (f *routerFlags) mend(ctx context.Context, r *router, wan string) string {
	where := f.targetFlags.argv()
	if f.stateDir != stateDirOf(os.Getenv) {
		where = append(where, "--state-dir", f.stateDir)
	}
	command := func(args ...string) string {
		return strings.Join(append(append([]string{"unbloat"}, args...), where...), " ")
	}
	if j, err := r.engine.Pending(wan); err == nil && j != nil { // the watchdog will undo it anyway
		return command("revert", "--wan", wan) + ", then apply it again"
	}
	again := []string{"apply", "--again", "--yes", "--wan", wan}
	var foreign *tc.ForeignError
	var missing *platform.PreconditionError
	p, err := r.appliedPlan(wan)
	if err == nil && r.driver.Contends != nil { // nothing holds beside a service that shapes it too
		err = r.driver.Contends(ctx, r.runner, wan)
	}
	if err == nil {
		_, err = r.engine.Preview(ctx, p)
	}
	switch {
	case errors.As(err, &foreign):
		again = append(again, "--replace")
	case errors.As(err, &missing):
		return fmt.Sprintf("%s; but before that: %s (%s)", command(again...), missing.Advice(), missing.What)
	}
	return command(again...)
}

// watchStatus prints the status every second, with the rates since the last
// time.
func (f *routerFlags) watchStatus(ctx context.Context, r *router, wan string, most int, w io.Writer) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	var last *routerStatus
	at := time.Now()
	for {
		s, err := f.status(ctx, r, wan, most)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return changeError(err)
		}
		now := time.Now()
		switch {
		case f.json || f.quiet:
		case cli.IsTerminal(w):
			fmt.Fprint(cli.Raw(w), "\x1b[H\x1b[J")
		case last != nil:
			fmt.Fprintln(w)
		}
		lines := cli.Fit(w)
		if err := errors.Join(f.printStatus(lines, s, last, now.Sub(at)), lines.Flush()); err != nil {
			return err
		}
		last, at = s, now
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func (f *routerFlags) printStatus(w io.Writer, s, last *routerStatus, since time.Duration) error {
	if f.json {
		return json.NewEncoder(w).Encode(s)
	}
	if f.quiet {
		return nil
	}
	s.printState(w)
	f.printElsewhere(w, "status")
	for _, x := range s.Shapers {
		fmt.Fprintf(w, "%s: %s\n", x.Device, x.Says)
		for i, c := range x.Counters {
			if f.short {
				break
			}
			fmt.Fprintf(w, "  %-9s %-6s %s in %d packets, %d dropped, %d marked, backlog %s in %d packets",
				c.Kind, c.Handle, unit.Size(c.Bytes).Short(), c.Packets, c.Drops, c.Marks, unit.Size(c.BacklogBytes).Short(), c.BacklogPkts)
			if r, ok := rateSince(last, x.Device, i, c.Handle, c.Bytes, since); ok {
				fmt.Fprintf(w, ", now %s", r.Short())
			}
			fmt.Fprintln(w)
			s.printClasses(w, x.Device, c)
		}
	}
	if !f.short {
		s.printHosts(w, last, since)
	}
	s.printConnections(w, last, since)
	return nil
}

// printState says in a sentence for each line how it is, and what is wrong.
func (s *routerStatus) printState(w io.Writer) {
	if len(s.Shapers) == 0 {
		fmt.Fprintln(w, "Nothing is shaped: every interface has the kernel's default queue.")
	}
	for _, k := range s.Committed {
		says := k.WAN
		drifts := slices.ContainsFunc(s.Drift, func(d drift) bool { return d.WAN == k.WAN })
		waits := slices.ContainsFunc(s.Pending, func(p pendingState) bool { return p.WAN == k.WAN })
		kept := s.Daemon != nil && slices.ContainsFunc(s.Daemon.WANs, func(x daemon.WANStatus) bool { return x.WAN == k.WAN })
		if !drifts && !waits && !kept { // it is as it was kept; of what it keeps the daemon tells the rates
			says = fmt.Sprintf("%s is shaped: %s. It", k.WAN, heldTo(k.Plan))
		}
		fmt.Fprintf(w, "%s was changed by unbloat, kept at %s. To take it back: unbloat revert\n", says, localText(k.Time))
	}
	for _, p := range s.Pending {
		fmt.Fprintf(w, "A change of %s is undone in %.0f s unless you run: unbloat confirm\n", p.WAN, max(p.Seconds, 0))
		if p.Failure != "" {
			fmt.Fprintf(w, "  The undo has not succeeded yet: %s\n", p.Failure)
		}
	}
	for _, p := range s.plans() {
		if why := p.Unjudged(); !why.IsZero() {
			fmt.Fprintf(w, "%s: %s\n", p.WAN, why)
		}
	}
	if s.Unread != "" {
		fmt.Fprintf(w, "Note: %s.\n", s.Unread)
	}
	if s.AtBoot {
		fmt.Fprintln(w, "The plan in /etc/unbloat/plan.json is applied at every boot.")
	}
	s.printDaemon(w)
	for _, wan := range slices.Sorted(maps.Keys(s.LostClasses)) {
		fmt.Fprintf(w, "WARNING: the classes of %s are not what was applied: %s. Flows are not told apart as they should be. Apply the plan again, or take it back: unbloat revert\n", wan, strings.Join(s.LostClasses[wan], "; "))
	}
	for _, d := range s.Drift {
		fmt.Fprintf(w, "WARNING: %s is not what was applied:\n", d.WAN)
		for _, x := range d.Differences {
			fmt.Fprintf(w, "  %s\n", x)
		}
		fmt.Fprintf(w, "  To put it back: %s\n", d.Mend)
	}
}

// heldTo says what a plan holds a line to, and what it leaves.
func heldTo(p plan.Plan) string {
	var out []string
	for _, d := range []struct {
		name string
		s    *plan.Shaper
	}{{"download", p.Down}, {"upload", p.Up}} {
		if d.s == nil {
			out = append(out, d.name+" not limited")
		} else {
			out = append(out, d.name+" limited to "+d.s.Rate.Short())
		}
	}
	return strings.Join(out, ", ")
}

// rateSince returns a qdisc's rate since the last time.
func rateSince(last *routerStatus, dev string, i int, handle string, bytes int64, since time.Duration) (unit.Rate, bool) {
	if last == nil || since <= 0 {
		return 0, false
	}
	for _, x := range last.Shapers {
		if x.Device == dev && i < len(x.Counters) && x.Counters[i].Handle == handle && bytes >= x.Counters[i].Bytes {
			return rateOf(unit.Size(bytes-x.Counters[i].Bytes), since), true
		}
	}
	return 0, false
}
