//go:build !router

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"unbloat/guard"
	"unbloat/internal/cure/apply"
	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform"
	"unbloat/internal/cure/prove"
	"unbloat/internal/cure/tune"
	"unbloat/internal/keep/daemon"
	"unbloat/internal/measure/netio"
	"unbloat/internal/measure/path"
	"unbloat/internal/measure/verdict"
	"unbloat/internal/show/cli"
	"unbloat/internal/show/report"
	"unbloat/internal/show/store"
	"unbloat/internal/show/terminal"
	"unbloat/reason"
)

// storeFlag is the flag for the file of saved results.
type storeFlag struct{ file string }

func (f *storeFlag) register(fs *pflag.FlagSet) {
	fs.StringVar(&f.file, "store", os.Getenv("UNBLOAT_STORE"), "`FILE` in which results are kept, or postgres://… (default: ~/.local/share/unbloat/results.db)")
}

func (f *storeFlag) path() (string, error) {
	if f.file != "" {
		return f.file, nil
	}
	return store.Path(os.Getenv)
}

// with opens the file of results for use. If the file does not exist it is
// created when made is set; otherwise use is called with nil.
func (f *storeFlag) with(ctx context.Context, made bool, use func(*store.Store) error) error {
	path, err := f.path()
	if err != nil {
		return err
	}
	open := store.OpenExisting
	if made {
		open = store.Open
	}
	s, err := open(ctx, path)
	if errors.Is(err, fs.ErrNotExist) && !made {
		return use(nil)
	}
	if err != nil {
		return storeError(err)
	}
	err = use(s)
	return storeError(errors.Join(err, s.Close()))
}

// storeError gives an error of the file of results its exit code.
func storeError(err error) error {
	var line *store.LineError
	switch {
	case errors.Is(err, store.ErrNotFound), errors.Is(err, store.ErrAmbiguous), errors.As(err, &line):
		return cli.Exit(cli.Usage, err)
	}
	return err
}

// keepFlags are the flags of commands that save their result.
type keepFlags struct {
	storeFlag
	noStore bool
}

func (f *keepFlags) register(c *cobra.Command) {
	f.storeFlag.register(c.Flags())
	c.Flags().BoolVar(&f.noStore, "no-store", false, "do not keep the result for \"unbloat history\"")
}

// conditions are facts about a measurement that the result does not contain.
type conditions struct {
	iface    string     // "": the one towards the result's server
	plan     *plan.Plan // the shaping in force; nil: what is committed on iface, if anything
	stateDir string     // where the committed plan is looked up; "": nowhere
}

// keep saves a result, unless --no-store is given. An error is only a warning,
// since the measurement succeeded.
func (f *keepFlags) keep(c *cobra.Command, result any, at conditions) {
	if f.noStore {
		return
	}
	ctx := context.WithoutCancel(c.Context())
	r, err := store.NewRecord(kindOf(result), result, time.Now())
	if err == nil {
		err = f.save(ctx, r, at)
	}
	if err != nil {
		cli.Say(c.ErrOrStderr(), "unbloat: warning: this result is not kept: %v", err)
	}
}

// kindOf is the kind of a result.
func kindOf(result any) string {
	switch result.(type) {
	case *verdict.Test:
		return store.KindTest
	case *tune.Result:
		return store.KindTune
	case *prove.Result:
		return store.KindProve
	case *path.Result:
		return store.KindPath
	}
	panic(fmt.Sprintf("a result of type %T", result))
}

func (f *keepFlags) save(ctx context.Context, r store.Record, at conditions) error {
	path, err := f.path()
	if err != nil {
		return err
	}
	if at.iface == "" {
		at.iface = interfaceTo(ctx, r.Server)
	}
	if at.plan == nil && at.stateDir != "" && at.iface != "" {
		if rec, err := (&apply.Engine{Dir: at.stateDir}).Record(at.iface); err == nil && rec != nil {
			at.plan = &rec.Plan
		}
	}
	if at.plan != nil {
		if r.Plan, err = json.Marshal(at.plan); err != nil {
			return err
		}
	}
	r.Interface, r.Link = at.iface, store.LinkKind(os.DirFS("/sys"), at.iface)
	r.Tool, r.System = cli.Version(version), systemVersion(ctx)
	_, err = store.Save(ctx, path, r)
	return err
}

// interfaceTo returns the interface through which this machine reaches the
// server, or "" if it is unknown.
func interfaceTo(ctx context.Context, server string) string {
	name, err := netio.InterfaceTo(ctx, protocolsOf(ctx).HostOf(server))
	if err != nil {
		return "" // the result is saved without it
	}
	return name
}

func systemVersion(ctx context.Context) string {
	out, err := platform.Output(ctx, machine, "uname", "-sr")
	if s := strings.TrimSpace(string(out)); err == nil && s != "" {
		return s
	}
	return runtime.GOOS
}

// historyFlags are the flags of `unbloat history`.
type historyFlags struct {
	storeFlag
	kind, label, server, wan, since, after string
	shaped                                 bool
	limit                                  int
	json                                   bool
	lineFlags
	remove bool
	expire string
}

func newHistoryCommand() *cobra.Command {
	var f historyFlags
	c := &cobra.Command{
		Use:     "history [ID]",
		GroupID: "main",
		Short:   "List earlier results, or show one of them",
		Long: `Lists the kept results, the newest first. With an ID, or the beginning of one, it
shows that result. "unbloat compare" sets two of them side by side. With --delete
it removes that result for good, and with --expire all that are older than a
time.

With --line it draws what a line did that "unbloat daemon" follows: the daemon
knows the last day, and more if its configuration names a file (history). Without
a running daemon the file is read.`,
		Example: `  unbloat history --label before --since 7d
  unbloat history --wan eth0 --shaped
  unbloat history 3fa9c1
  unbloat history --line --since 6h`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) > 1 {
				return cli.UsageError("%s: takes one ID, not %d (see `%s --help`)", cli.NameOf(c), len(args), c.CommandPath())
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			switch {
			case f.line && len(args) > 0:
				return cli.UsageError("history: --line takes no ID; it shows what the line did")
			case f.line:
				return f.showLine(c, time.Now())
			case f.remove && len(args) == 0:
				return cli.UsageError("history: --delete takes the ID of the result to remove; --expire TIME removes all that are older")
			case f.remove:
				return f.delete(c, args[0])
			case len(args) == 1:
				return f.show(c, args[0])
			case f.expire != "":
				return f.expireOld(c, time.Now())
			}
			return f.list(c, time.Now())
		},
	}
	fs := c.Flags()
	f.storeFlag.register(fs)
	fs.StringVar(&f.kind, "kind", "", "only these: "+strings.Join(store.Kinds(), ", "))
	fs.StringVar(&f.label, "label", "", "only those with this label")
	fs.StringVar(&f.server, "server", "", "only those against this server")
	fs.StringVar(&f.wan, "wan", "", "only those through this interface")
	fs.BoolVar(&f.shaped, "shaped", false, "only those measured while unbloat shaped the line; --shaped=false: only the others")
	fs.StringVar(&f.since, "since", "", "only those since a `TIME`: 12h, 7d, 2w, 2026-03-01 or 2026-03-01T10:00:00Z")
	fs.IntVar(&f.limit, "limit", 20, "how many to list at most; 0: all")
	fs.StringVar(&f.after, "after", "", "only those that are listed after the result with this `ID`: the next page")
	fs.BoolVar(&f.remove, "delete", false, "remove the result with the ID")
	fs.StringVar(&f.expire, "expire", "", "remove all results from before a `TIME`: 90d, 12w or 2026-03-01")
	fs.BoolVar(&f.json, "json", false, "print one JSON object")
	f.lineFlags.register(fs)
	c.ValidArgsFunction = f.completeFirst
	_ = c.RegisterFlagCompletionFunc("after", f.complete)
	_ = c.RegisterFlagCompletionFunc("kind", cobra.FixedCompletions(store.Kinds(), cobra.ShellCompDirectiveNoFileComp))
	return c
}

// complete gives the ids of the newest results to the shell, each with what tells
// it from others; where there are none, files.
func (f *storeFlag) complete(c *cobra.Command, _ []string, _ string) (ids []string, _ cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(c.Context(), 2*time.Second) // a database may be far; a person waits at the Tab key
	defer cancel()
	err := f.with(ctx, false, func(s *store.Store) error {
		if s == nil {
			return nil
		}
		entries, err := s.List(ctx, store.Filter{Limit: 100})
		for _, e := range entries {
			ids = append(ids, cobra.CompletionWithDesc(fmt.Sprintf("%.16s", e.ID), strings.TrimSpace(e.Kind+" "+localMinute(e.Time)+" "+guard.VisibleLine(e.Label, mostWords))))
		}
		return err
	})
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return ids, cobra.ShellCompDirectiveDefault
}

// completeFirst is complete for a command that takes one id.
func (f *storeFlag) completeFirst(c *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return f.complete(c, args, typed)
}

// A listed object is the output of `history --json`, a shown one that of one
// result.
type (
	listed struct {
		Schema  string        `json:"schema"`
		Results []store.Entry `json:"results"`
		Next    string        `json:"next,omitempty"` // --after of the next page
	}
	shown struct {
		Schema string `json:"schema"`
		store.Record
	}
)

func (f *historyFlags) list(c *cobra.Command, now time.Time) error {
	filter := store.Filter{Kind: f.kind, Label: f.label, Server: f.server, Interface: f.wan, Limit: f.limit, After: f.after}
	if f.limit > 0 {
		filter.Limit++ // one more shows whether there is a further page
	}
	if c.Flags().Changed("shaped") {
		filter.Shaped = &f.shaped
	}
	switch {
	case f.limit < 0:
		return cli.UsageError("history: --limit %d: must not be negative", f.limit)
	case f.kind != "" && !slices.Contains(store.Kinds(), f.kind):
		return cli.UsageError("history: --kind %q: must be one of %s", f.kind, strings.Join(store.Kinds(), ", "))
	}
	if f.since != "" {
		var err error
		if filter.Since, err = parseSince(f.since, now); err != nil {
			return cli.UsageError("history: --since %w", err)
		}
	}
	entries := []store.Entry{}
	err := f.with(c.Context(), false, func(s *store.Store) (err error) {
		if s != nil {
			entries, err = s.List(c.Context(), filter)
		}
		return err
	})
	if err != nil {
		return err
	}
	next := ""
	if f.limit > 0 && len(entries) > f.limit {
		entries = entries[:f.limit]
		next = entries[f.limit-1].ID
	}
	if f.json {
		return cli.PrintJSON(c.OutOrStdout(), listed{"unbloat.history/1", entries, next})
	}
	if err := printEntries(c.OutOrStdout(), entries, cli.TerminalWidth(c.OutOrStdout())); err != nil || next == "" {
		return err
	}
	_, err = fmt.Fprintf(c.OutOrStdout(), "There are more; --after %.16s shows the next ones.\n", next)
	return err
}

// delete removes one result.
func (f *historyFlags) delete(c *cobra.Command, id string) error {
	err := f.with(c.Context(), false, func(s *store.Store) error {
		if s == nil {
			return fmt.Errorf("find result %q: %w: nothing was kept yet", id, store.ErrNotFound)
		}
		return s.Delete(c.Context(), id)
	})
	if err == nil {
		fmt.Fprintln(c.OutOrStdout(), "The result was removed.")
	}
	return err
}

// expireOld removes what is older than --expire.
func (f *historyFlags) expireOld(c *cobra.Command, now time.Time) error {
	before, err := parseSince(f.expire, now)
	if err != nil {
		return cli.UsageError("history: --expire %w", err)
	}
	n := 0
	err = f.with(c.Context(), false, func(s *store.Store) (err error) {
		if s != nil {
			n, err = s.Expire(c.Context(), before)
		}
		return err
	})
	if err == nil {
		fmt.Fprintf(c.OutOrStdout(), "%d results from before %s were removed.\n", n, localMinute(before))
	}
	return err
}

// wholeEntry is the width of a row of the list with all columns.
const wholeEntry = 110

// printEntries prints the list for a terminal of this width; 0 is no terminal.
// On a narrow one the server or host of a result has a line of its own.
func printEntries(w io.Writer, entries []store.Entry, width int) error {
	if len(entries) == 0 {
		_, err := fmt.Fprintln(w, "No stored result matches.")
		return err
	}
	var b strings.Builder
	narrow := width >= cli.Narrowest && width < wholeEntry
	const cramped = 60 // the year is left out
	when := "2006-01-02 15:04"
	if narrow && width < cramped {
		when = "01-02 15:04"
	}
	row := func(id, time, kind, grade, p95, down, up, what string) {
		if narrow {
			fmt.Fprintf(&b, "%-8s  %-*s  %-5s  %-5s  %s\n", id, len(when), time, kind, grade, p95)
			rates := ""
			if down != up || down != "–" {
				rates = "↓ " + down + "  ↑ " + up + "  "
			}
			b.WriteString(cli.Broken(strings.TrimRight("  "+rates+what, " ")+"\n", width, 2))
			return
		}
		b.WriteString(cli.Broken(strings.TrimRight(fmt.Sprintf("%-8s  %-17s  %-5s  %-5s  %9s  %10s  %10s  %s", id, time, kind, grade, p95, down, up, what), " ")+"\n", width, 2))
	}
	if narrow {
		fmt.Fprintf(&b, "%-8s  %-*s  %-5s  %-5s  %s\n", "id", len(when), "time", "kind", "grade", "p95")
	} else {
		row("id", "time", "kind", "grade", "p95", "download", "upload", "what")
	}
	for _, e := range entries {
		grade, p95 := e.Grade, signed(e.IncreaseMs)+" ms"
		if e.Kind == store.KindPath && e.IncreaseMs == 0 { // nothing was loaded, or the latency did not rise
			p95 = "–"
		}
		if !e.Valid {
			grade, p95 = "", "invalid"
		}
		if grade == "" {
			grade = "–"
		}
		row(fmt.Sprintf("%.8s", e.ID), e.Time.Local().Format(when), e.Kind, grade, p95, rateOrNone(e.DownBps), rateOrNone(e.UpBps), entryWords(e))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// entryWords describes what a result was measured with.
func entryWords(e store.Entry) string {
	var parts []string
	add := func(format, s string) {
		if s = guard.VisibleLine(s, mostWords); s != "" {
			parts = append(parts, fmt.Sprintf(format, s))
		}
	}
	add("%s", e.Label)
	add("%s", e.Outcome)
	add("to %s", e.Server)
	switch {
	case e.Link != "" && e.Interface != "":
		add("over %s", e.Interface+" ("+e.Link+")")
	case e.Interface != "":
		add("over %s", e.Interface)
	}
	if e.Shaped {
		add("%s", "shaped")
	}
	return strings.Join(parts, ", ")
}

// show prints one result as its command printed it.
func (f *historyFlags) show(c *cobra.Command, id string) error {
	var r store.Record
	err := f.with(c.Context(), false, func(s *store.Store) (err error) {
		if s == nil {
			return fmt.Errorf("find result %q: %w: nothing was kept yet", id, store.ErrNotFound)
		}
		r, err = s.Get(c.Context(), id)
		return err
	})
	if err != nil {
		return err
	}
	if f.json {
		return cli.PrintJSON(c.OutOrStdout(), shown{"unbloat.record/1", r})
	}
	w := c.OutOrStdout()
	fmt.Fprintf(w, "%s  %s, %s\n\n", r.ID, r.Kind, strings.Join(conditionWords(r), ", "))
	switch r.Kind {
	case store.KindTune:
		var t tune.Result
		if err := json.Unmarshal(r.Result, &t); err != nil {
			return fmt.Errorf("show %.8s: %w", r.ID, err)
		}
		return report.TuningIn(w, reason.English(), &t, cli.TerminalWidth(w))
	case store.KindProve:
		var p prove.Result
		if err := json.Unmarshal(r.Result, &p); err != nil {
			return fmt.Errorf("show %.8s: %w", r.ID, err)
		}
		return printProof(w, &p)
	case store.KindPath:
		var p path.Result
		if err := json.Unmarshal(r.Result, &p); err != nil {
			return fmt.Errorf("show %.8s: %w", r.ID, err)
		}
		return path.Write(w, &p, cli.TerminalWidth(w))
	}
	tests, err := report.ParseResults(r.Result)
	if err != nil {
		return fmt.Errorf("show %.8s: %w", r.ID, err)
	}
	for i, t := range tests {
		if i > 0 {
			fmt.Fprintln(w)
		}
		if err := report.TestTable(w, t); err != nil {
			return err
		}
	}
	return nil
}

// lineFlags say which line's history is meant.
type lineFlags struct {
	line                   bool
	router, stateDir, lang string
}

func (f *lineFlags) register(fs *pflag.FlagSet) {
	fs.BoolVar(&f.line, "line", false, "show what the line did: rates, what it is believed to carry, and delay, over hours")
	fs.StringVar(&f.router, "router", "", "with --line: `ADDRESS` of the router, as in the daemon's configuration (default: this machine)")
	fs.StringVar(&f.stateDir, "state-dir", stateDirOf(os.Getenv), "with --line: where the daemon's socket is")
	langFlag(fs, &f.lang)
}

// usualLine is how far back a line is shown.
const usualLine = 24 * time.Hour

// read returns what a line did since a time: from the daemon, or from its file if it
// does not run.
func (f *lineFlags) read(ctx context.Context, wan, store string, from, to time.Time) (h daemon.History, err error) {
	at := routerFlags{targetFlags: targetFlags{router: f.router}, stateDir: f.stateDir}
	c, err := at.dialDaemon(ctx)
	if err != nil {
		return h, err
	}
	if c != nil {
		defer c.Close()
		p := daemon.HistoryParams{From: from.UTC().Format(time.RFC3339), To: to.UTC().Format(time.RFC3339)}
		return h, c.Call(ctx, daemon.MethodHistory, f.router, wan, p, &h)
	}
	return f.readFile(ctx, wan, store, from, to)
}

// readFile reads what a line did from a file: the one that is named, or else the
// daemon's own.
func (f *lineFlags) readFile(ctx context.Context, wan, file string, from, to time.Time) (h daemon.History, err error) {
	if file == "" {
		c, err := daemon.Load(ctx, daemonConfig, nil)
		if err != nil || c.History == "" {
			return h, &platform.PreconditionError{Doing: "history: show the line", What: "no daemon runs here, which knows it", Remedy: "start it (docs/daemon.md), or name its file with --store"}
		}
		file = c.History
	}
	if wan, err = f.onlyLine(ctx, wan, file); err != nil {
		return h, err
	}
	return daemon.ReadHistory(ctx, lineArchive{}, file, wan, f.router, from, to, 0)
}

// onlyLine returns the line that is meant: the only one, if none is named.
func (f *lineFlags) onlyLine(ctx context.Context, wan, file string) (string, error) {
	if wan != "" {
		return wan, nil
	}
	s, err := store.OpenExisting(ctx, file)
	if errors.Is(err, fs.ErrNotExist) {
		return "", &platform.PreconditionError{Doing: "history: show the line", What: "nothing was written to " + file + " yet", Remedy: "wait five minutes: the daemon writes that often"}
	}
	if err != nil {
		return "", storeError(err)
	}
	wans, err := s.LineWANs(ctx)
	switch err = errors.Join(err, s.Close()); {
	case err != nil:
		return "", storeError(err)
	case len(wans) == 1:
		return wans[0], nil
	case len(wans) > 1:
		return "", cli.UsageError("history: --line: there are several lines (%q); say which with --wan", wans)
	}
	return "", nil
}

// showLine draws what a line did.
func (f *historyFlags) showLine(c *cobra.Command, now time.Time) error {
	words, err := language("history", f.lang)
	if err != nil {
		return err
	}
	from := now.Add(-usualLine)
	if f.since != "" {
		if from, err = parseSince(f.since, now); err != nil {
			return cli.UsageError("history: --since %w", err)
		}
	}
	h, err := f.read(c.Context(), f.wan, f.file, from, now)
	if err != nil {
		return changeError(err)
	}
	if f.json {
		return json.NewEncoder(c.OutOrStdout()).Encode(h)
	}
	if len(h.At) == 0 {
		return changeError(&platform.PreconditionError{Doing: "history: show the line", What: "nothing is known of " + h.WAN + " in that time", Remedy: "wait until the daemon has kept it for a while, or ask for a longer time with --since"})
	}
	return drawLine(c.OutOrStdout(), words, pastOf(h, from, now))
}

// drawLine draws what a line did, as wide as the terminal.
func drawLine(out io.Writer, words *reason.Language, p terminal.Past) error {
	const wide, most = 80, 160
	o := terminal.OptionsOf(os.Getenv)
	o.Width = wide
	w := cli.TerminalWidth(out)
	if w > 0 {
		o.Width = min(w, most)
	}
	_, err := fmt.Fprintln(cli.Raw(out), terminal.DrawPast(words, p, o, w > 0)) // with colours; the canvas lets no other sequence through
	return err
}

// printLine draws what a line did that was read from a file.
func printLine(out io.Writer, l *report.Line) error {
	h := daemon.History{WAN: l.WAN, Router: l.Router, Step: l.Step, At: l.At, Down: daemon.HistoryWay(l.Down), Up: daemon.HistoryWay(l.Up)}
	step := time.Duration(l.Step) * time.Second
	return drawLine(out, reason.FromEnvironment(os.Getenv), pastOf(h, time.UnixMilli(l.At[0]), time.UnixMilli(l.At[len(l.At)-1]).Add(step)))
}

// pastOf returns a history as the view takes it.
func pastOf(h daemon.History, from, to time.Time) terminal.Past {
	p := terminal.Past{Name: daemon.WANStatus{WAN: h.WAN, Router: h.Router}.Name(), From: from.Local(), To: to.Local(), Step: time.Duration(h.Step) * time.Second}
	for i, ms := range h.At {
		at := terminal.PastStep{At: time.UnixMilli(ms)}
		for d, w := range [2]daemon.HistoryWay{h.Down, h.Up} {
			at.Way[d] = terminal.PastWay{Rate: w.Rate[i], Capacity: w.Capacity[i], Carried: w.Carried[i], DelayMs: pastDelay(w.Delay[i]), MostMs: pastDelay(w.DelayMax[i])}
		}
		p.Steps = append(p.Steps, at)
	}
	return p
}

// pastDelay is a delay as the view takes it: below 0 if it is not known.
func pastDelay(ms *float64) float64 {
	if ms == nil {
		return -1
	}
	return *ms
}
