//go:build !router

package main

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"unbloat/internal/keep/daemon"
	"unbloat/internal/keep/incident"
	"unbloat/internal/show/cli"
	"unbloat/internal/show/report"
	"unbloat/unit"
)

// incidentsOfFile reads incidents from a file: the one that is named, or else that of the
// daemon's configuration.
func incidentsOfFile(ctx context.Context, file, id string, from, to time.Time) ([]incident.Incident, error) {
	if file == "" {
		c, err := daemon.Load(ctx, daemonConfig, nil)
		if err != nil || c.History == "" {
			return nil, noDaemon()
		}
		file = c.History
	}
	all, err := lineArchive{}.Incidents(ctx, file, id, from, to)
	return all, storeError(err)
}

// dossier writes the report of incidents.
func (o *reportOptions) dossier(c *cobra.Command, now time.Time) error {
	f := &o.incidentsOf
	words, err := language("report", f.lang)
	if err != nil {
		return err
	}
	if o.output == "" {
		return cli.UsageError("report: --incidents needs -o FILE: a .html, .csv or .json")
	}
	if err := checkReport("report: -o", o.output); err != nil {
		return err
	}
	from, to, err := f.span("report", now)
	if err != nil {
		return err
	}
	f.file = o.file
	all, err := f.read(c.Context(), "", from, to)
	if err != nil {
		return changeError(err)
	}
	wan, router, err := o.onlyWatched(all)
	if err != nil {
		return err
	}
	d := report.Dossier{WAN: wan, Router: router, From: from, To: to, Made: now, Version: cli.Version(version), Language: words, Incidents: []report.DossierItem{}}
	for _, w := range all.Watched {
		if w.WAN == wan && w.Router == router {
			d.Promised = [2]unit.Rate{w.Down, w.Up}
		}
	}
	f.wan, f.router = wan, router
	for _, x := range all.Incidents {
		if x.WAN != wan || x.Router != router {
			continue
		}
		if d.Promised == [2]unit.Rate{} {
			d.Promised = x.Figures.Promised
		}
		one, err := f.read(c.Context(), x.ID, from, to)
		if err != nil {
			return changeError(err)
		}
		d.Incidents = append(d.Incidents, report.DossierItem{Incident: x, Text: one.Samples})
	}
	for _, w := range all.Watched { // nothing is known of the time before
		if w.WAN == wan && w.Router == router && (len(d.Incidents) == 0 || d.Incidents[0].Begin.After(w.Since)) && w.Since.After(d.From) && w.Since.Before(to) {
			d.From = w.Since
		}
	}
	d.Line = o.lineOf(c.Context(), from, to)
	if err = report.WriteDossierFile(o.output, d); errors.Is(err, report.ErrUnsuitable) {
		return cli.Exit(cli.Usage, err)
	}
	return err
}

// lineOf is what the line did meanwhile; nil if that is not known.
func (o *reportOptions) lineOf(ctx context.Context, from, to time.Time) *report.Line {
	f := &o.incidentsOf
	h, err := (&lineFlags{router: f.router, stateDir: f.stateDir}).read(ctx, f.wan, f.file, from, to)
	if err != nil || len(h.At) == 0 {
		return nil
	}
	text, err := json.Marshal(h)
	if err != nil {
		return nil
	}
	l, err := readLine(text)
	if err != nil {
		return nil
	}
	return l
}

// onlyWatched is the line that is meant.
func (o *reportOptions) onlyWatched(all daemon.Incidents) (wan, router string, err error) {
	if o.incidentsOf.wan != "" {
		return o.incidentsOf.wan, o.incidentsOf.router, nil
	}
	names := map[daemon.Name]bool{}
	for _, x := range all.Incidents {
		names[daemon.Name{WAN: x.WAN, Router: x.Router}] = true
	}
	for _, w := range all.Watched {
		names[w.Name] = true
	}
	switch len(names) {
	case 0:
		return "", "", changeError(noDaemon())
	case 1:
		for n := range names {
			wan, router = n.WAN, n.Router
		}
		return wan, router, nil
	}
	return "", "", cli.UsageError("report: --incidents: there are several lines; say which with --wan")
}
