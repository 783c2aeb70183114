package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"unbloat/guard"
	"unbloat/internal/cure/platform"
	"unbloat/internal/keep/daemon"
	"unbloat/internal/show/cli"
	"unbloat/reason"
)

// incidentFlags say which incidents are meant.
type incidentFlags struct {
	wan, router, stateDir, from, to, lang string
	file                                  string // of a daemon that does not run; "": its configuration's
	json                                  bool
}

func (f *incidentFlags) register(fs *pflag.FlagSet) {
	fs.StringVar(&f.wan, "wan", "", "only those of this interface")
	fs.StringVar(&f.router, "router", "", "`ADDRESS` of the router, as in the daemon's configuration (default: this machine)")
	fs.StringVar(&f.stateDir, "state-dir", stateDirOf(os.Getenv), "where the daemon's socket is")
	fs.StringVar(&f.from, "from", "", "only since a `TIME`: 12h, 7d, 2w, 2026-03-01 or 2026-03-01T10:00:00Z (default: 90 days ago)")
	fs.StringVar(&f.to, "to", "", "only before a `TIME` (default: now)")
	langFlag(fs, &f.lang)
}

// newIncidentsCommand returns `unbloat incidents`.
func newIncidentsCommand() *cobra.Command {
	var f incidentFlags
	c := &cobra.Command{
		Use:     "incidents [ID]",
		GroupID: "main",
		Short:   "List what went wrong on a line, when, and which part is to blame",
		Long: `Lists the outages, losses, delays, slow times and changes of path that the daemon has
seen on lines whose delay it measures, or that have incidents = true, the newest
last. Each names the part to blame: the home, this router, the line up to the
provider's first router, the provider beyond it, one far end alone, or none if that
is not sure. With an ID, it shows that one; with --json its samples too.

The daemon keeps the newest 200 in memory, and 90 days if its configuration names a
file (history). Without a running daemon that file is read. "unbloat report
--incidents" makes a dossier of them.`,
		Example: `  unbloat incidents --from 7d
  unbloat incidents --json --wan eth0
  unbloat report --incidents --from 2026-03-01 -o dossier.html`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) > 1 {
				return cli.UsageError("%s: takes one ID, not %d (see `%s --help`)", cli.NameOf(c), len(args), c.CommandPath())
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error { return f.run(c, args, time.Now()) },
	}
	f.register(c.Flags())
	c.Flags().StringVar(&f.file, "store", "", "read `FILE` if the daemon does not run (default: the one that its configuration names)")
	c.Flags().BoolVar(&f.json, "json", false, "print one JSON object")
	return c
}

// span reads the time that is meant.
func (f *incidentFlags) span(command string, now time.Time) (from, to time.Time, err error) {
	const usual = 90 * 24 * time.Hour
	from, to = now.Add(-usual), now
	for _, x := range []struct {
		flag, text string
		to         *time.Time
	}{{"--from", f.from, &from}, {"--to", f.to, &to}} {
		if x.text == "" {
			continue
		}
		if *x.to, err = parseSince(x.text, now); err != nil {
			return from, to, cli.UsageError("%s: %s %w", command, x.flag, err)
		}
	}
	if !to.After(from) {
		return from, to, cli.UsageError("%s: --to must be after --from", command)
	}
	return from, to, nil
}

// read returns incidents: from the daemon, or from its file if none runs.
func (f *incidentFlags) read(ctx context.Context, id string, from, to time.Time) (out daemon.Incidents, err error) {
	at := routerFlags{targetFlags: targetFlags{router: f.router}, stateDir: f.stateDir}
	c, err := at.dialDaemon(ctx)
	if err != nil {
		return out, err
	}
	if c != nil {
		defer c.Close()
		p := daemon.IncidentsParams{From: from.UTC().Format(time.RFC3339), To: to.UTC().Format(time.RFC3339), ID: id}
		return out, c.Call(ctx, daemon.MethodIncidents, f.router, f.wan, p, &out)
	}
	all, err := incidentsOfFile(ctx, f.file, id, from, to)
	if err != nil {
		return out, err
	}
	name := daemon.Name{WAN: f.wan, Router: f.router}
	return daemon.IncidentsOf(all, nil, name, id, from, to)
}

// noDaemon is the error where nobody knows of incidents.
func noDaemon() error {
	return &platform.PreconditionError{Doing: "incidents: list them", What: "no daemon runs here, which would know them", Remedy: "start it, with incidents = true for the line (docs/daemon.md)"}
}

func (f *incidentFlags) run(c *cobra.Command, args []string, now time.Time) error {
	words, err := language("incidents", f.lang)
	if err != nil {
		return err
	}
	from, to, err := f.span("incidents", now)
	if err != nil {
		return err
	}
	id := ""
	if len(args) > 0 {
		id = args[0]
	}
	all, err := f.read(c.Context(), id, from, to)
	if err != nil {
		return changeError(err)
	}
	if f.json {
		return cli.PrintJSON(c.OutOrStdout(), all)
	}
	w := cli.Fit(c.OutOrStdout())
	printIncidents(w, words, all, now)
	return w.Flush()
}

// printIncidents lists incidents for people. On a narrow terminal the columns stand in two
// lines.
func printIncidents(w *cli.Fitted, l *reason.Language, all daemon.Incidents, now time.Time) {
	const wide = 70
	for _, x := range all.Incidents {
		lasted := "…"
		if x.Over() {
			lasted = x.Lasted(now).Round(time.Second).String()
		}
		kind, severity, part := l.Name("kind "+string(x.Kind)), l.Name("severity "+string(x.Severity)), l.Name("part "+string(x.Part))
		if len(all.Watched) != 1 || x.WAN != all.Watched[0].WAN {
			part += ", " + guard.VisibleLine(daemon.WANStatus{WAN: x.WAN, Router: x.Router}.Name(), mostWords)
		}
		begin := x.Begin.Local().Format(time.DateTime)
		if w.Width >= cli.Narrowest && w.Width < wide {
			fmt.Fprintf(w, "%s  %s\n    %s, %s, %s\n", begin, lasted, kind, severity, part)
		} else {
			fmt.Fprintf(w, "%s  %-8s  %-8s  %-7s  %s\n", begin, lasted, kind, severity, part)
		}
		fmt.Fprintf(w, "    %s\n    %s\n    %s\n", x.What.Text(l, reason.Terminal), x.Why.Text(l, reason.Terminal), x.ID)
	}
	if len(all.Incidents) == 0 {
		fmt.Fprintln(w, l.Say(reason.IncidentsNone))
	}
	if len(all.Watched) == 0 {
		fmt.Fprintln(w, l.Say(reason.IncidentsUnwatched))
	}
}
