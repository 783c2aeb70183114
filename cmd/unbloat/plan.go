package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform"
	"unbloat/internal/cure/platform/all"
	"unbloat/internal/measure/verdict"
	"unbloat/internal/show/cli"
	"unbloat/unit"
)

// planFlags are the flags of `unbloat plan`.
type planFlags struct {
	classFlags
	platform    string
	wan, lan    string
	result      string
	headroom    string
	marks       string
	linkLayer   string
	line        plan.Line
	preferences plan.Preferences
	ecn         string
	mtu         int
	here        bool
	explain     bool
	commands    bool
	json        bool
	quiet       bool
	where       targetFlags
}

func newPlanCommand() *cobra.Command {
	var f planFlags
	c := &cobra.Command{
		Use:     "plan",
		Short:   "Turn a measurement into a plan, with the reason for each number",
		GroupID: "main",
		Long: `Says how a router should shape its line: in short, with --commands in the router's
own language to be pasted there, with --explain the reason for each number. It
changes nothing. On a router it looks at what that router has, as "unbloat apply"
does, and with --router at another one; elsewhere it assumes what --for usually has.

--down and --up are what the line carries, as measured; the plan starts a little
below, and "unbloat tune" finds the best. --shape-down and --shape-up ask for
a rate (950kbit) or a share of the measured one (97%). Without --aqm the best
that the platform has is chosen.

Platforms: ` + strings.Join(all.Names(), ", ") + `.`,
		Example: `  unbloat plan --down 30mbit --up 5mbit
  unbloat plan --result before.json --for openwrt --wan pppoe-wan --link-layer ptm
  unbloat plan --down 120mbit --up 12mbit --for openbsd --wan em0 --lan em1
  unbloat plan --down 30mbit --up 5mbit --for opnsense --commands
  unbloat plan --down 30mbit --up 5mbit --router ssh://root@192.168.1.1
  unbloat plan --down 30mbit --up 5mbit --rule class=voice,protocol=udp,far_port=19302-19309
  unbloat plan --up 1mbit --aqm fq_codel --shape-up 950kbit --json > plan.json`,
		Args: cli.ExactArgs(0, "no argument"),
		RunE: func(c *cobra.Command, _ []string) error { return runPlan(c, &f) },
	}
	f.registerLine(c.Flags())
	f.registerPreferences(c.Flags())
	f.where.registerWay(c.Flags())
	f.where.registerOwnTC(c.Flags())
	return c
}

// registerLine adds the flags that describe line and router.
func (f *planFlags) registerLine(fs *pflag.FlagSet) {
	rateFlag(fs, &f.line.Down, "down", "what the line carries towards the home, as measured")
	rateFlag(fs, &f.line.Up, "up", "what the line carries from the home, as measured")
	fs.StringVar(&f.result, "result", "", "take the rates and the idle latency from `FILE`, the output of \"unbloat test --json\" (- is standard input)")
	fs.StringVar(&f.headroom, "headroom", "", "choose a shaper that this router's processor can keep up with, by `FILE`, the output of \"unbloat doctor --json\" during a download")
	fs.StringVar(&f.marks, "marks", "", marksUsage)
	cli.DurationFlag(fs, &f.line.RTT, "rtt", 0, "idle round trip to the servers that are used most")
	fs.StringVar(&f.linkLayer, "link-layer", "", "ethernet, docsis, atm (ADSL) or ptm (VDSL2): how the line wraps packets")
	fs.IntVar(&f.line.Overhead, "overhead", 0, "bytes that the line adds to an IP packet, as tc-cake(8) counts (default: the link layer's usual)")
	fs.IntVar(&f.line.MPU, "mpu", 0, "least bytes that a packet occupies on the line")
	fs.StringVar(&f.platform, "for", all.Default().Name(), "platform of the router")
	fs.StringVar(&f.wan, "wan", "", "interface towards the internet (default: the platform's usual)")
	fs.StringVar(&f.lan, "lan", "", "interface towards the home (default: the platform's usual)")
	fs.BoolVar(&f.here, "here", false, "look at what this machine can do, even if it is not a router")
	fs.IntVar(&f.mtu, "mtu", 0, "IP bytes of the largest packet on the WAN (default 1500)")
	fs.BoolVar(&f.commands, "commands", false, "print the plan in the router's own language, to be pasted there; with --explain with the reasons as comments")
	fs.BoolVar(&f.explain, "explain", false, "print the numbers and their reasons as a table")
	fs.BoolVar(&f.json, "json", false, "print one JSON object (unbloat.plan/1), which \"unbloat apply\" reads")
	fs.BoolVar(&f.quiet, "quiet", false, "print what is to be pasted, without comments, and nothing else")
}

// registerPreferences adds the flags for preferences.
func (f *planFlags) registerPreferences(fs *pflag.FlagSet) {
	f.classFlags.register(fs)
	w := &f.preferences
	cli.DurationFlag(fs, &w.Goal, "goal", 0, "p95 increase of latency to aim at (default: 5ms, or 1.5 packet times up and down)")
	fs.StringVar((*string)(&w.AQM), "aqm", "", "cake, fq_codel, fifo or sfq (default: the best that the platform has)")
	fs.StringVar((*string)(&w.Side), "side", "", "where the download is shaped: ifb (on the WAN), lan, or in (dummynet)")
	fs.BoolVar(&w.FlowTable, "flow-table", false, "Linux: save a weak router work: forward established connections by a flow table, and shape at the LAN (--side lan), without classes")
	fs.Func("hard-limit", "what a `MACHINE` may carry at most, as \"192.168.1.7 5 Mbit/s\" or \"192.168.1.7 20 Mbit/s / 2 Mbit/s\" (may be repeated)", func(text string) error {
		l, err := plan.ParseHardLimit(text)
		w.Limits = append(w.Limits, l)
		return err
	})
	fs.StringVar((*string)(&w.Style), "style", "", "article: as a well-known article about the platform does it, with the differences explained")
	fs.StringVar((*string)(&w.Only), "only", "", "shape one direction: down or up")
	preferenceFlag(fs, &w.Down, "shape-down", "hold the download to this rate or share")
	preferenceFlag(fs, &w.Up, "shape-up", "hold the upload to this rate or share")
	cli.DurationFlag(fs, &w.Target, "target", 0, "fq_codel's target (default: by the rate)")
	cli.DurationFlag(fs, &w.Interval, "interval", 0, "fq_codel's interval, CAKE's rtt")
	cli.DurationFlag(fs, &w.Latency, "latency", 0, "how much delay a full FIFO may add (default: the goal if given, or 100ms)")
	fs.StringVar(&f.ecn, "ecn", "", "on or off (default: by the rate)")
	fs.IntVar(&w.Limit, "limit", 0, "packets a queue may hold (default: by the rate)")
	fs.IntVar(&w.Flows, "flows", 0, "fq_codel's number of queues (default 1024)")
	fs.Int64Var((*int64)(&w.Quantum), "quantum", 0, "fq_codel's bytes a flow may send a round (default: by the rate)")
}

func runPlan(c *cobra.Command, f *planFlags) error {
	if f.where.router == "" && !f.here && !c.Flags().Changed("for") && isRouter(c.Context()) {
		f.here = true
	}
	p, err := f.make(c)
	if err != nil {
		var coded *cli.Error
		if errors.As(err, &coded) {
			return err
		}
		if none := (*plan.NoAQMError)(nil); errors.As(err, &none) {
			return changeError(fmt.Errorf("plan: %w", err))
		}
		return cli.UsageError("plan: %w", err)
	}
	f.sayGuess(c, p)
	return f.print(c.OutOrStdout(), driversOf(c.Context()), p)
}

// sayGuess prints which interfaces were assumed because they were neither given
// nor detected.
func (f *planFlags) sayGuess(c *cobra.Command, p plan.Plan) {
	if f.quiet || f.where.router != "" || f.here {
		return
	}
	var guessed, flags []string
	if f.wan == "" {
		guessed, flags = append(guessed, p.WAN), append(flags, "--wan IF")
	}
	if f.lan == "" && p.LAN != "" {
		guessed, flags = append(guessed, p.LAN), append(flags, "--lan IF")
	}
	if len(guessed) > 0 {
		cli.Say(c.ErrOrStderr(), "Guessed: %s, as is usual on %s. Name yours with %s, or have the router asked with --router.", strings.Join(guessed, " and "), p.Platform, strings.Join(flags, " and "))
	}
}

// make makes the plan from flags and, if given, a test's result.
func (f *planFlags) make(c *cobra.Command) (plan.Plan, error) {
	switch f.ecn {
	case "":
	case "on", "off":
		on := f.ecn == "on"
		f.preferences.ECN = &on
	default:
		return plan.Plan{}, fmt.Errorf("--ecn %q is neither on nor off", f.ecn)
	}
	var err error
	if f.preferences.Classes, err = f.classFlags.preferences(); err != nil {
		return plan.Plan{}, err
	}
	f.line.LinkLayer = plan.LinkLayer(f.linkLayer)
	if f.result != "" {
		if err := f.readResult(c.InOrStdin()); err != nil {
			return plan.Plan{}, err
		}
	}
	marks, err := readMarks(c.InOrStdin(), f.marks)
	if err != nil {
		return plan.Plan{}, err
	}
	p, err := f.planned(c)
	if err == nil && marks != nil {
		p.Warnings = append(p.Warnings, marks.Follows...)
	}
	return p, err
}

// planned makes the plan for the router that is asked, or for the usual one of the platform.
func (f *planFlags) planned(c *cobra.Command) (plan.Plan, error) {
	work, err := f.work(c.InOrStdin())
	if err != nil {
		return plan.Plan{}, err
	}
	if f.where.router == "" && !f.here {
		d, err := driversOf(c.Context()).Find(f.platform)
		if err != nil {
			return plan.Plan{}, err
		}
		caps := d.Language.Assume(f.wan, f.lan)
		caps.MTU, caps.Work = f.mtu, work
		return plan.Make(f.line, caps, f.preferences)
	}
	at := routerFlags{targetFlags: f.where, stateDir: defaultStateDir, preview: true}
	if c.Flags().Changed("for") {
		at.platform = f.platform
	}
	r, err := at.open(c.Context())
	if err != nil {
		return plan.Plan{}, changeError(err)
	}
	defer r.Close()
	return r.planFor(c.Context(), f.wan, f.lan, plan.Capabilities{MTU: f.mtu, Work: work}, f.line, f.preferences)
}

// work reads what the router carries from the doctor's report; zero if none was given.
func (f *planFlags) work(stdin io.Reader) (plan.Work, error) {
	var r platform.DoctorReport
	if f.headroom == "" {
		return plan.Work{}, nil
	}
	text, err := readFile(stdin, f.headroom, maxResultBytes)
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	switch {
	case err != nil:
		return plan.Work{}, fmt.Errorf("read %s: %w; is it what `unbloat doctor --json` prints?", f.headroom, err)
	case r.Headroom == nil || !r.Headroom.Valid:
		return plan.Work{}, fmt.Errorf("%s does not say what the router carries; run `unbloat doctor --json` during a download", f.headroom)
	}
	return r.Headroom.Carries(), nil
}

// readResult sets from a test's result what no flag has set.
func (f *planFlags) readResult(stdin io.Reader) error {
	text, err := readFile(stdin, f.result, maxResultBytes)
	if err != nil {
		return fmt.Errorf("read the test's result: %w", err)
	}
	var t verdict.Test
	if err := json.Unmarshal(text, &t); err != nil {
		return fmt.Errorf("read %s: %w; is it what `unbloat test --json` prints?", f.result, err)
	}
	if t.Schema != verdict.TestSchema {
		return fmt.Errorf("read %s: its schema is %q, not %q", f.result, t.Schema, verdict.TestSchema)
	}
	if !t.Valid {
		return cli.Exit(cli.Invalid, fmt.Errorf("%s: the measurement is invalid: %s; measure again", f.result, strings.Join(t.InvalidReasons, "; ")))
	}
	if e, sure := t.Framing.Sure(); sure && f.linkLayer == "" && f.line.Overhead == 0 && f.line.MPU == 0 {
		f.line = f.line.WithFraming(e.Overhead, e.MPU, e.ATM)
	}
	take := func(to *unit.Rate, p *verdict.Phase, goodput func(*verdict.Phase) float64) {
		if *to == 0 && p != nil {
			*to = f.line.FromGoodput(goodput(p))
		}
	}
	take(&f.line.Down, t.Download, func(p *verdict.Phase) float64 { return p.GoodputDownBps })
	take(&f.line.Up, t.Upload, func(p *verdict.Phase) float64 { return p.GoodputUpBps })
	if f.line.Measured {
		f.line.MeasuredDown, f.line.MeasuredUp = f.line.Down, f.line.Up
	}
	if f.line.RTT == 0 && t.Idle != nil {
		f.line.RTT = unit.FromMs(t.Idle.Latency.RTTMs.P50)
	}
	return nil
}

// print writes the plan in the requested format.
func (f *planFlags) print(w io.Writer, drivers platform.Drivers, p plan.Plan) error {
	switch {
	case f.json:
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		e.SetEscapeHTML(false)
		return e.Encode(p)
	case f.explain && !f.commands:
		_, err := io.WriteString(w, p.Explain())
		return err
	case !f.commands && !f.quiet:
		return f.printSummary(w, p, cli.TerminalWidth(w))
	}
	d, err := drivers.Find(p.Platform)
	if err != nil {
		return cli.UsageError("plan: %w", err)
	}
	text, err := d.Text(p)
	if err != nil {
		return cli.UsageError("plan: %w", err)
	}
	switch {
	case f.quiet:
		text = withoutComments(text)
	case !f.explain:
		text = withoutReasons(text)
	}
	_, err = io.WriteString(w, text)
	return err
}

// withoutReasons drops the reasons for the numbers from the comment at the head, but for its
// first line and its notes.
func withoutReasons(text string) string {
	head, rest, found := strings.Cut(text, "\n\n")
	if !found {
		return text
	}
	var kept []string
	for i, line := range strings.Split(head, "\n") {
		if i == 0 || strings.HasPrefix(line, "# note:") || len(kept) > 1 && strings.HasPrefix(line, "#   ") {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "\n") + "\n\n" + rest
}

// withoutComments drops comment lines and empty lines.
func withoutComments(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if s := strings.TrimSpace(line); s != "" && s[0] != '#' {
			b.WriteString(line)
		}
	}
	return b.String()
}
