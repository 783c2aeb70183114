package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"unbloat/internal/cure/plan"
	"unbloat/internal/keep/daemon"
	"unbloat/internal/measure/netio"
	"unbloat/internal/measure/phases"
	"unbloat/internal/measure/probe"
	"unbloat/internal/measure/protocol"
	"unbloat/internal/measure/verdict"
	"unbloat/internal/show/cli"
	"unbloat/reason"
	"unbloat/unit"
)

// testFlags are the flags of `unbloat test`.
type testFlags struct {
	keepFlags
	eventFlags
	serverFlags
	label, out, cc       string
	lang                 string
	json, quiet, plain   bool
	verbose              bool
	flows, size, runs    int
	profile              string
	ownInterval, isolate bool
	framing              bool
	load, idle, interval time.Duration
}

func newTestCommand() *cobra.Command {
	var o testFlags
	cmd := &cobra.Command{
		Use:     "test",
		GroupID: "main",
		Short:   "Measure latency idle and under load, and grade it",
		Long: `Measure latency idle, and while downloading, uploading and both, and grade it.

Without --server it measures against a public server, and says which, how far it
is and whose terms it has: Cloudflare's, else one of LibreSpeed's list, else one
of M-Lab, which publishes results with this line's public address and is used
only if you agree or ask for it (--server mlab). A server of your own is better,
as it shows the two directions apart: run ` + "`unbloat serve`" + ` on a machine at the
other end of the line. Servers of irtt, iperf3, ndt7, LibreSpeed, Cloudflare and
networkQuality can be used too. During the test nothing else should use the
line; what others use is counted and reported.

If a server answers no latency probes, --ping says what to probe instead: HOST
or icmp://HOST, udp://HOST:PORT (an echo service; on port 53 a name server),
tcp://HOST:PORT (handshakes) or irtt://HOST. With other servers it is probed in
addition.

--framing also measures what the line adds to each packet ("overhead"), and whether
it cuts packets into cells (ATM): trains of datagrams fill the line for up to 20 s.
What it finds is for ` + "`unbloat plan --result FILE`" + `.`,
		Example: "  unbloat test\n  unbloat test --server test.example.net\n  unbloat test --server 192.0.2.1:7676 --json -o before.json --label before\n  unbloat test --server 192.0.2.1 --framing\n  unbloat test --server cloudflare+https://speed.cloudflare.com --runs 3\n  unbloat test --server iperf3://192.0.2.1 --ping 192.0.2.1",
		Args:    cli.ExactArgs(0, "no arguments"),
	}
	o.keepFlags.register(cmd)
	f := cmd.Flags()
	o.serverFlags.register(f, "server", serverUsage())
	o.serverFlags.registerPing(f)
	f.IntVar(&o.runs, "runs", 1, "how often to measure; the median run is reported")
	f.StringVar(&o.profile, "profile", "", "kind of load: rrul (4 up and 4 down in CS0, CS1, CS5 and EF, beside UDP and ICMP probes), single or many")
	f.BoolVar(&o.isolate, "isolate", false, "on a router: hold back other hosts' traffic during the test (nftables; ends by itself if the program dies)")
	f.BoolVar(&o.framing, "framing", false, "then measure what the line adds to each packet, for up to 20 s (needs \"unbloat serve\" at the other end)")
	f.StringVar(&o.label, "label", "", "what to call this measurement")
	f.StringVarP(&o.out, "output", "o", "", "also write the JSON to `FILE`")
	f.BoolVar(&o.json, "json", false, "print the result as JSON")
	f.BoolVar(&o.quiet, "quiet", false, "show no progress")
	f.BoolVar(&o.verbose, "verbose", false, "print all that was measured")
	o.eventFlags.register(f)
	plainFlag(f, &o.plain)
	langFlag(f, &o.lang)
	f.IntVar(&o.flows, "flows", phases.DefaultFlows, "TCP flows in each direction")
	f.StringVar(&o.cc, "cc", "", "congestion control of the senders, such as cubic or bbr (default: each system's own)")
	secondsFlag(f, &o.load, "seconds", phases.DefaultLoad, "how long each loaded phase lasts")
	secondsFlag(f, &o.idle, "idle", phases.DefaultIdle, "how long the idle phase lasts")
	cli.DurationFlag(f, &o.interval, "interval", phases.DefaultInterval, "time between latency probes")
	f.IntVar(&o.size, "probe-bytes", int(probe.MinSize), "UDP payload of a latency probe")
	cmd.RunE = func(c *cobra.Command, _ []string) error {
		o.ownInterval = f.Changed("interval")
		if p, ok := phases.Profiles()[o.profile]; ok && !f.Changed("flows") {
			o.flows = p.Flows
		}
		return o.tell(c, func() (any, error) { return runTest(c, &o) })
	}
	return cmd
}

// Bounds of the flags.
const (
	minLoad, maxLoad   = time.Second, 10 * time.Minute
	minProbe, maxProbe = time.Millisecond, time.Second
	maxFlows           = 256
	maxRuns            = 99
)

// check refuses flags with which no measurement is possible.
func (o *testFlags) check(ctx context.Context) error {
	switch {
	case o.flows < 1 || o.flows > maxFlows:
		return cli.UsageError("test: --flows %d: must be 1 to %d", o.flows, maxFlows)
	case o.load < minLoad || o.load > maxLoad:
		return cli.UsageError("test: --seconds %v: must be %v to %v", o.load, minLoad, maxLoad)
	case o.idle < minLoad || o.idle > maxLoad:
		return cli.UsageError("test: --idle %v: must be %v to %v", o.idle, minLoad, maxLoad)
	case o.interval < minProbe || o.interval > maxProbe:
		return cli.UsageError("test: --interval %v: must be %v to %v", o.interval, minProbe, maxProbe)
	case o.size < int(probe.MinSize) || o.size > int(probe.MaxSize):
		return cli.UsageError("test: --probe-bytes %d: must be %d to %d", o.size, probe.MinSize, probe.MaxSize)
	}
	if _, ok := phases.Profiles()[o.profile]; !ok && o.profile != "" {
		return cli.UsageError("test: --profile %q: must be rrul, single or many", o.profile)
	}
	if o.runs < 1 || o.runs > maxRuns {
		return cli.UsageError("test: --runs %d: must be 1 to %d", o.runs, maxRuns)
	}
	if o.server == "" {
		o.server = defaultServer
	}
	if err := o.serverFlags.check(ctx, "test"); err != nil {
		return err
	}
	if o.out != "" {
		if err := cli.CheckWritable(o.out); err != nil {
			return cli.UsageError("test: -o: %w", err)
		}
	}
	if err := netio.CheckCC(o.cc); err != nil {
		return cli.Exit(cli.Precondition, fmt.Errorf("test: --cc: %w", err))
	}
	return nil
}

func runTest(c *cobra.Command, o *testFlags) (any, error) {
	if err := o.check(c.Context()); err != nil {
		return nil, err
	}
	l, err := language("test", o.lang)
	if err != nil {
		return nil, err
	}
	test, interrupted, err := o.measureSomewhere(c)
	if err != nil {
		return nil, testError("test", err)
	}
	if !interrupted || o.turn == "" { // half of one that nobody reads tells nobody anything
		o.keep(c, test, conditions{iface: o.turn, stateDir: stateDirOf(os.Getenv)})
	}
	switch {
	case o.events: // it is the last of them
	case o.json:
		if err := cli.PrintJSON(c.OutOrStdout(), test); err != nil {
			return test, err
		}
	default:
		printTest(c.OutOrStdout(), l, test, cli.TerminalWidth(c.OutOrStdout()), o.verbose)
	}
	if o.out != "" { // last, since the result is printed and saved even if this fails
		if err := writeTest(o.out, test); err != nil {
			return test, err
		}
	}
	switch {
	case interrupted && o.turn != "":
		err = cli.Exit(cli.Failed, fmt.Errorf("test against %s: interrupted", test.Server))
	case interrupted:
		err = cli.Exit(cli.Failed, fmt.Errorf("test against %s: interrupted; what was measured before is above and kept", test.Server))
	case !test.Valid && (!o.json || o.events): // the reasons are in the result
		err = cli.Exit(cli.Invalid, fmt.Errorf("test against %s: the measurement is not valid", test.Server))
	case !test.Valid:
		err = cli.Exit(cli.Invalid, fmt.Errorf("test against %s: the measurement is not valid: %s%s", test.Server, test.InvalidReasons[0], reason.English().MoreReasons(len(test.InvalidReasons)-1)))
	}
	return test, err
}

// daemonHere is how a running daemon of this machine is reached.
func (o *testFlags) daemonHere() *routerFlags {
	return &routerFlags{stateDir: stateDirOf(os.Getenv)}
}

// measureSomewhere measures for a daemon that waits, or through one, which keeps the
// shaping meanwhile and lets nobody change it, or else with this program, which lets
// nobody tune meanwhile. A daemon that keeps several lines does not: which of them the test
// loads is up to the routes.
func (o *testFlags) measureSomewhere(c *cobra.Command) (test *verdict.Test, interrupted bool, err error) {
	if o.turn != "" {
		return o.measure(c)
	}
	here := o.daemonHere()
	s, err := here.kept(c.Context())
	if err != nil {
		return nil, false, changeError(err)
	}
	if s != nil && len(s.WANs) == 1 && !o.framing { // which changes the shapers meanwhile
		var interval time.Duration // 0: that of the kind of server
		if o.ownInterval {
			interval = o.interval
		}
		is, err := here.runThere(c.Context(), daemon.MethodTest, s.WANs[0].WAN, daemon.TestParams{
			Server: o.server, Ping: o.ping, Pin: o.pin, Key: o.key, Insecure: o.insecure, Label: o.label,
			Seconds: unit.Seconds(o.load), Idle: unit.Seconds(o.idle), Flows: o.flows, CC: o.cc,
			Runs: o.runs, Profile: o.profile, Isolate: o.isolate, Interval: unit.Milliseconds(interval), ProbeBytes: o.size,
		}, func() progress { return o.shown(c, o.server) }, &test)
		switch {
		case err != nil:
			return nil, false, changeError(err)
		case is != nil && test == nil:
			return nil, false, runError(is)
		case is != nil:
			return test, is.State == daemon.RunEnded, nil
		}
	}
	release, err := here.takeTurn(c.Context(), "test", "", !o.framing)
	if err != nil {
		return nil, false, changeError(err)
	}
	defer release()
	return o.measure(c)
}

// shown starts to show how the test goes.
func (o *testFlags) shown(c *cobra.Command, server string) progress {
	return o.view(c, measuredLine{server: server, idle: o.idle, load: o.load, runs: o.runs}, o.quiet, o.plain)
}

// measure measures with c's streams and context. What was finished before it was
// interrupted is a result too.
func (o *testFlags) measure(c *cobra.Command) (test *verdict.Test, interrupted bool, err error) {
	err = o.each(use{c: c, command: "test", quiet: o.quiet}, func(server chosenServer) error {
		view := o.shown(c, server.server)
		defer view.close()
		var err error
		test, err = measureIsolated(c.Context(), *o, server, view)
		if test != nil {
			test.Remark(server.remarks()...)
		}
		if interrupted = err != nil && test != nil; interrupted {
			return nil // the user has stopped: no other server is tried
		}
		return err
	})
	return test, interrupted, err
}

// measureIsolated measures, while other hosts' traffic is held back if asked
// for.
func measureIsolated(ctx context.Context, o testFlags, server chosenServer, view progress) (test *verdict.Test, err error) {
	if o.isolate {
		hold, herr := isolate(ctx)
		if herr != nil {
			return nil, cli.Exit(cli.Precondition, fmt.Errorf("test: %w", herr))
		}
		defer func() { err = errors.Join(err, hold.Stop()) }()
	}
	return measureAll(ctx, o, server, view)
}

// measureAll measures as often as asked for, and returns the median run. If ctx
// ends it returns the finished part and the error.
func measureAll(ctx context.Context, o testFlags, server chosenServer, view progress) (*verdict.Test, error) {
	var runs []*verdict.Test
	for range o.runs {
		t, err := measureOnce(ctx, o, server, view)
		switch {
		case err == nil:
			runs = append(runs, t)
			continue
		case ctx.Err() == nil:
			return nil, err
		case len(runs) > 0: // complete runs are better than a part of one
			return median(runs), err
		}
		return t, err // the finished part; nil if there is none
	}
	return median(runs), nil
}

// median returns the median run, or the only one.
func median(runs []*verdict.Test) *verdict.Test {
	if len(runs) == 1 {
		return runs[0]
	}
	return verdict.MedianRun(runs)
}

// measureOnce runs the four phases against a server.
func measureOnce(ctx context.Context, o testFlags, server chosenServer, view progress) (*verdict.Test, error) {
	spec := phases.ProbeSpec{Size: unit.Size(o.size)}
	if o.ownInterval {
		spec.Interval = o.interval
	}
	profile, ping := phases.Profiles()[o.profile], o.ping
	if profile.ICMP && ping == "" {
		ping = protocolsOf(ctx).HostOf(server.server)
	}
	options := server.options(o.options("unbloat test", spec))
	options.Ping = ping
	client, err := protocolsOf(ctx).Dial(ctx, server.server, options)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	framer, can := client.(phases.Framer)
	if o.framing && !can {
		return nil, cli.Exit(cli.Precondition, fmt.Errorf("test: --framing by %s: %w", server.server, phases.ErrNoFraming))
	}
	t, err := phases.Run(ctx, client, phases.Config{
		Idle: o.idle, Load: o.load, Flows: o.flows, Classes: profile.Classes, CC: o.cc, Label: o.label,
		Progress: func(e phases.Event) { view.see(daemon.RunEvent{Phase: &e}) },
	})
	if err == nil && o.framing {
		t.Framing, err = o.measureFraming(ctx, framer, t)
		if errors.Is(err, phases.ErrRefused) { // what was measured before is a result too
			view.see(daemon.RunEvent{Say: "this server is too old to measure what the line adds to each packet"})
			err = nil
		}
	}
	return t, err
}

// measureFraming measures what the line adds to each packet. Where this machine shapes the
// line, the shapers are wide open meanwhile, in a transaction that is undone.
func (o *testFlags) measureFraming(ctx context.Context, client phases.Framer, t *verdict.Test) (f *verdict.Framing, err error) {
	undo, err := o.openShapers(ctx)
	if err != nil {
		return nil, changeError(fmt.Errorf("test: --framing: open the shapers of this machine: %w", err))
	}
	defer func() {
		if e := undo(); e != nil {
			err = errors.Join(err, changeError(e))
		}
	}()
	carried := func(p *verdict.Phase, goodput func(*verdict.Phase) float64) unit.Rate {
		if p == nil {
			return 0
		}
		return plan.Line{}.FromGoodput(goodput(p))
	}
	return phases.MeasureFraming(ctx, client,
		carried(t.Download, func(p *verdict.Phase) float64 { return p.GoodputDownBps }),
		carried(t.Upload, func(p *verdict.Phase) float64 { return p.GoodputUpBps }))
}

// openShapers opens the shapers that this machine has committed, if it has, and returns what undoes it.
func (o *testFlags) openShapers(ctx context.Context) (undo func() error, err error) {
	undo = func() error { return nil }
	where, err := o.daemonHere().open(ctx)
	if err != nil {
		return undo, nil // it is no router
	}
	caps, err := where.capabilities(ctx, "", "")
	if err != nil {
		where.Close()
		return undo, nil // that shapes a line
	}
	router := &tunedRouter{engine: where.engine}
	undo = func() error {
		defer where.Close()
		return router.Revert(context.WithoutCancel(ctx))
	}
	if err := router.open(ctx, caps, plan.Preferences{}); err != nil {
		return nil, errors.Join(err, undo())
	}
	return undo, nil
}

// testError gives an error of a measurement its exit code, and adds the
// command's name.
func testError(command string, err error) error {
	if known := (*cli.Error)(nil); errors.As(err, &known) {
		return err
	}
	var address *phases.AddressError
	switch {
	case errors.As(err, &address):
		return cli.Exit(cli.Usage, fmt.Errorf("%s: %w", command, err))
	case errors.Is(err, phases.ErrUnreachable):
		return cli.Exit(cli.Precondition, fmt.Errorf("%s: %w; is `unbloat serve` running there, and its port open for TCP and UDP?", command, err))
	case errors.Is(err, protocol.ErrCertificate):
		return cli.Exit(cli.Precondition, fmt.Errorf("%s: %w; if it is your own server, give its SHA-256 with --pin (`unbloat serve` logs it)", command, err))
	case errors.Is(err, phases.ErrRefused):
		return cli.Exit(cli.Precondition, fmt.Errorf("%s: %w", command, err))
	case errors.Is(err, netio.ErrNotAllowed), errors.Is(err, netio.ErrNotSupported):
		return cli.Exit(cli.Precondition, fmt.Errorf("%s: %w", command, err))
	}
	return fmt.Errorf("%s: %w", command, err)
}

func writeTest(file string, t *verdict.Test) error {
	b, err := json.Marshal(t)
	if err != nil {
		return fmt.Errorf("write the result to %s: %w", file, err)
	}
	if err := cli.WriteFile(file, append(b, '\n'), 0o644); err != nil {
		return fmt.Errorf("test: -o: %w; the result itself is printed above", err)
	}
	return nil
}

// A progressLine shows the progress of a test: one line that rewrites itself on
// a terminal, otherwise a line every two seconds.
type progressLine struct {
	w        io.Writer // nil: quiet
	terminal bool
	last     time.Duration // time within the test of the last line
	phase    string
	before   time.Duration // duration of the phases before this one
	elapsed  time.Duration
}

const plainEvery = 2 * time.Second

func progressTo(w io.Writer, quiet bool) *progressLine {
	if quiet {
		return &progressLine{}
	}
	return &progressLine{w: w, last: -plainEvery, terminal: cli.IsTerminal(w)}
}

func (p *progressLine) show(e phases.Event) {
	if p.w == nil {
		return
	}
	if e.Phase != p.phase {
		p.before, p.phase = p.before+p.elapsed, e.Phase
	}
	p.elapsed = time.Duration(e.Elapsed)
	line := fmt.Sprintf("%-8s %4.1f / %.0f s   rtt %7.1f ms", e.Phase, time.Duration(min(e.Elapsed, e.Duration)).Seconds(), time.Duration(e.Duration).Seconds(), unit.Ms(time.Duration(e.RTT)))
	if e.Down > 0 {
		line += "   ↓ " + e.Down.Short()
	}
	if e.Up > 0 {
		line += "   ↑ " + e.Up.Short()
	}
	if e.Draining {
		line += "   waiting for the queue to empty"
	}
	switch now := p.before + p.elapsed; {
	case p.terminal:
		fmt.Fprint(cli.Raw(p.w), "\r\x1b[K")
		fmt.Fprint(p.w, line)
	case now-p.last >= plainEvery:
		p.last = now
		fmt.Fprintln(p.w, "  "+line)
	}
}

// clear removes the line that rewrites itself.
func (p *progressLine) clear() {
	if p.w != nil && p.terminal {
		fmt.Fprint(cli.Raw(p.w), "\r\x1b[K")
	}
}

// secondsFlag adds a flag for seconds, such as 10 or 10s.
func secondsFlag(f *pflag.FlagSet, d *time.Duration, name string, value time.Duration, usage string) {
	*d = value
	f.Var((*secondsValue)(d), name, usage)
}

type secondsValue time.Duration

func (v *secondsValue) Set(s string) error {
	if _, err := strconv.ParseFloat(s, 64); err == nil {
		s += "s"
	}
	d, err := unit.ParseDuration(s)
	if err == nil {
		*v = secondsValue(d)
	}
	return err
}
func (v *secondsValue) Type() string   { return "SECONDS" }
func (v *secondsValue) String() string { return time.Duration(*v).String() }
