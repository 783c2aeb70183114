package report

import (
	"bytes"
	"cmp"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"unbloat/internal/keep/incident"
	"unbloat/reason"
	"unbloat/unit"
)

// DossierSchema names the JSON layout of a Dossier.
const DossierSchema = "unbloat.dossier/1"

// A Dossier is what went wrong on a line within a time, as evidence.
type Dossier struct {
	Schema    string        `json:"schema"`
	WAN       string        `json:"wan"`
	Router    string        `json:"router,omitempty"`
	From      time.Time     `json:"from"`
	To        time.Time     `json:"to"`
	Made      time.Time     `json:"made"`
	Version   string        `json:"version"`
	Promised  [2]unit.Rate  `json:"promised_bps"` // down, up; 0: not known
	SHA256    string        `json:"sha256"`       // of what FormatCSV writes
	Incidents []DossierItem `json:"incidents"`

	Line     *Line            `json:"-"` // what was measured meanwhile; nil: not known
	Language *reason.Language `json:"-"`
}

// A DossierItem is an incident with its samples as CSV.
type DossierItem struct {
	incident.Incident
	Text string `json:"samples_csv"`
}

// WriteDossierFile renders a dossier into a file, in the format that its name asks for.
// The file appears whole or not at all.
func WriteDossierFile(path string, d Dossier) error {
	format, err := FormatOf(path)
	if err != nil {
		return err
	}
	return writeWhole(path, func(w io.Writer) error { return WriteDossier(format, w, d) })
}

// WriteDossier renders a dossier as HTML, CSV or JSON.
func WriteDossier(f Format, w io.Writer, d Dossier) error {
	raw := d.csv()
	d.Schema, d.SHA256 = DossierSchema, incident.Digest(raw)
	switch f {
	case FormatCSV:
		_, err := w.Write(raw)
		return err
	case FormatJSON:
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(d)
	case FormatHTML:
		var b bytes.Buffer
		if err := d.html(&b); err != nil {
			return fmt.Errorf("make the dossier: %w", err)
		}
		_, err := w.Write(b.Bytes())
		return err
	}
	return fmt.Errorf("%w: a dossier is .html, .csv or .json", ErrUnsuitable)
}

// csv has all samples: a row a second, and in its first column the incident's ID.
func (d *Dossier) csv() []byte {
	var b bytes.Buffer
	w := csv.NewWriter(&b)
	for _, x := range d.Incidents {
		rows, err := csv.NewReader(strings.NewReader(x.Text)).ReadAll()
		if err != nil {
			continue // it is ours; what is damaged has no rows
		}
		for i, row := range rows {
			first := inert(clean(x.ID))
			if i == 0 {
				first = "incident"
			}
			for k := range row {
				row[k] = inert(clean(row[k]))
			}
			_ = w.Write(append([]string{first}, row...)) // to memory
		}
	}
	w.Flush()
	return b.Bytes()
}

// dossierPage is a page in a language.
type dossierPage struct {
	page
	d *Dossier
	l *reason.Language
}

func (d *Dossier) html(b *bytes.Buffer) error {
	h := dossierPage{page{b}, d, reason.WithDossier(cmp.Or(d.Language, reason.English()))}
	name := clean(d.WAN)
	if d.Router != "" {
		name += " " + h.l.Name("dossier from") + " " + clean(d.Router)
	}
	title := h.name("title") + ": " + name
	h.headIn(h.l.Tag, title)
	h.raw("<header>\n")
	h.el("h1", title+", "+h.at(d.From)+" – "+h.at(d.To))
	h.el(`p class="verdict"`, h.summary())
	h.el(`p class="muted"`, h.name("made")+" "+h.at(d.Made)+", unbloat "+clean(d.Version))
	h.raw("</header>\n")
	h.section("promised", "promised")
	if d.Promised == [2]unit.Rate{} {
		h.el("p", h.l.Say(reason.DossierUnknown))
	} else {
		h.el("p", h.l.Say(reason.DossierPromised, "down_bps", float64(d.Promised[0]), "up_bps", float64(d.Promised[1])))
	}
	h.raw("</section>\n")
	if err := h.measured(); err != nil {
		return err
	}
	if len(d.Incidents) > 0 {
		h.list()
		if err := h.each(); err != nil {
			return err
		}
	}
	h.method()
	h.raw("<footer>")
	h.foot()
	return nil
}

func (h dossierPage) name(s string) string { return h.l.Name("dossier " + s) }

func (h dossierPage) section(id, name string) {
	h.raw(`<section id="` + id + `">`)
	h.el("h2", h.name(name))
}

// at writes a time with its zone, which evidence needs.
func (dossierPage) at(t time.Time) string { return t.Local().Format("2006-01-02 15:04:05 -0700") }

// lasted writes how long something was.
func lasted(d time.Duration) string {
	d = d.Round(time.Second)
	h, m, s := int(d.Hours()), int(d.Minutes())%60, int(d.Seconds())%60
	switch {
	case h > 0:
		return fmt.Sprintf("%d h %02d min", h, m)
	case m > 0:
		return fmt.Sprintf("%d min %02d s", m, s)
	}
	return fmt.Sprintf("%d s", s)
}

// within is how much of an incident was in the dossier's time.
func (d *Dossier) within(x incident.Incident) time.Duration {
	from, to := x.Begin, x.End
	if !x.Over() || to.After(d.To) {
		to = d.To
	}
	if from.Before(d.From) {
		from = d.From
	}
	return max(to.Sub(from), 0)
}

func (h dossierPage) summary() string {
	d := h.d
	if len(d.Incidents) == 0 {
		return h.l.Say(reason.DossierNone)
	}
	var total, out time.Duration
	outages := 0
	for _, x := range d.Incidents {
		n := d.within(x.Incident)
		total += n
		if x.Kind == incident.Outage && x.Part != incident.Far && x.Part != incident.Home {
			outages, out = outages+1, out+n
		}
	}
	span := d.To.Sub(d.From)
	return h.l.Say(reason.DossierSummary, "count", len(d.Incidents), "total", lasted(total),
		"outages", outages, "out", lasted(out), "share", 100*(1-out.Seconds()/max(span.Seconds(), 1)))
}

// measured shows what the line did meanwhile, and the incidents by part.
func (h dossierPage) measured() error {
	h.section("measured", "measured")
	if len(h.d.Incidents) > 0 {
		h.tableHead(h.name("part"), h.name("count"), h.name("total"))
		for _, part := range incident.Parts() {
			n, total := 0, time.Duration(0)
			for _, x := range h.d.Incidents {
				if x.Part == part {
					n, total = n+1, total+h.d.within(x.Incident)
				}
			}
			if n > 0 {
				h.row(h.l.Name("part "+string(part)), fmt.Sprint(n), lasted(total))
			}
		}
		h.raw("</tbody></table></div>\n")
	}
	if l := h.d.Line; l != nil && l.Check() == nil {
		if err := h.drawn(func(lay layout) *figure { return lineChart(l, lay) }); err != nil {
			return err
		}
	}
	h.raw("</section>\n")
	return nil
}

// drawn writes a picture for a wide page and for a phone.
func (h dossierPage) drawn(draw func(layout) *figure) error {
	r := NewRuler()
	h.raw(`<figure><div class="wide">`)
	if err := draw(layout{w: 872, rule: r}).writeSVG(h.b, inline); err != nil {
		return err
	}
	h.raw(`</div><div class="narrow">`)
	if err := draw(layout{w: 350, narrow: true, rule: r}).writeSVG(h.b, inline); err != nil {
		return err
	}
	h.raw("</div></figure>\n")
	return nil
}

// list lists all incidents.
func (h dossierPage) list() {
	h.section("list", "list")
	h.tableHead(h.name("begin"), h.name("lasted"), h.name("kind"), h.name("severity"), h.name("part"))
	for _, x := range h.d.Incidents {
		h.row(x.Begin.Local().Format(time.DateTime), h.lasted(x.Incident), h.l.Name("kind "+string(x.Kind)), h.l.Name("severity "+string(x.Severity)), h.l.Name("part "+string(x.Part)))
	}
	h.raw("</tbody></table></div></section>\n")
}

func (h dossierPage) lasted(x incident.Incident) string {
	if !x.Over() {
		return h.name("goes on")
	}
	return lasted(x.Lasted(x.End))
}

// each shows every incident with its figures and its picture.
func (h dossierPage) each() error {
	h.section("each", "each")
	h.el(`p class="muted"`, h.l.Say(reason.DossierPicture))
	for _, x := range h.d.Incidents {
		h.el("h3", h.at(x.Begin)+", "+h.lasted(x.Incident)+": "+h.l.Name("kind "+string(x.Kind))+", "+h.l.Name("severity "+string(x.Severity))+", "+h.l.Name("part "+string(x.Part)))
		h.raw(`<div class="wrap"><table><tbody>`)
		g := x.Figures
		words := func(name, s string) {
			h.raw("<tr>")
			h.el(`th scope="row"`, h.name(name))
			h.el(`td class="words"`, s)
			h.raw("</tr>\n")
		}
		words("what", capital(x.What.Text(h.l, reason.Page)))
		words("why", capital(x.Why.Text(h.l, reason.Page)))
		words("lost", fmt.Sprintf("%s %d / %d, %s %d / %d", h.name("far"), g.FarAsked-g.FarAnswered, g.FarAsked, h.name("first"), g.FirstAsked-g.FirstAnswered, g.FirstAsked))
		delay := func(v unit.Milliseconds) string {
			if v < 0 {
				return none
			}
			return h.l.Ms(v.Ms())
		}
		words("delay", fmt.Sprintf("%s %s, %s %s", h.name("far"), delay(g.FarRise), h.name("first"), delay(g.FirstRise)))
		words("carried", fmt.Sprintf("↓ %s, ↑ %s", h.l.Rate(float64(g.Carried[0])), h.l.Rate(float64(g.Carried[1]))))
		h.raw("</tbody></table></div>\n")
		samples, far, err := incident.ParseCSV([]byte(x.Text))
		if err != nil || len(samples) < 2 {
			h.el(`p class="muted"`, h.l.Say(reason.DossierNoSamples))
			continue
		}
		if err := h.drawn(func(lay layout) *figure { return incidentChart(x.Incident, samples, far, h.l, lay) }); err != nil {
			return err
		}
		if x.Digest != "" {
			h.el(`p class="muted"`, h.l.Say(reason.DossierOneSum, "count", len(samples), "sum", clean(x.Digest)))
		}
	}
	h.raw("</section>\n")
	return nil
}

func (h dossierPage) method() {
	var far []string
	for _, x := range h.d.Incidents {
		for _, name := range x.Far {
			if name = clean(name); !slices.Contains(far, name) {
				far = append(far, name)
			}
		}
	}
	h.section("method", "method")
	h.el("p", h.l.Say(reason.DossierMethod, "far", cmp.Or(strings.Join(far, ", "), "–")))
	h.el("p", h.l.Say(reason.DossierJudged, "limit_ms", incident.DefaultLimit.Ms()))
	h.el("p", h.l.Say(reason.DossierBlamed))
	h.el("p", h.l.Say(reason.DossierLimits))
	h.raw("</section>\n")
	h.section("raw", "raw")
	h.el("p", h.l.Say(reason.DossierChecksum, "sum", incident.Digest(h.d.csv())))
	h.raw("</section>\n")
}

// incidentChart draws the samples of an incident: round trips, lost probes, and rates.
func incidentChart(x incident.Incident, all []incident.Second, far []string, l *reason.Language, lay layout) *figure {
	const head, high, gap, foot = 12, 130.0, 26, 26
	low := 64.0
	f := newFigure(lay.w, head+high+gap+low+foot, l.Name("kind "+string(x.Kind)), x.What.Text(l, reason.Page), lay.rule)
	from, to := all[0].At, all[len(all)-1].At.Add(time.Second)
	top, most := 10.0, 0.1
	for _, s := range all {
		for _, a := range append(slices.Clone(s.Far), s.First) {
			if a.Answered > 0 {
				top = max(top, a.RTT.Ms())
			}
		}
		most = max(most, s.Way[0].Carried.Mbit(), s.Way[1].Carried.Mbit())
	}
	x1 := lay.w - rightSpace
	upper := plot{fig: f, x0: axisWidth, y0: head, x1: x1, y1: head + high, x: scale{lo: 0, hi: to.Sub(from).Seconds(), a: axisWidth, b: x1}}
	lower := upper
	lower.y0, lower.y1 = upper.y1+gap, upper.y1+gap+low
	upper.y, lower.y = linearScale(1.15*top, upper.y1, upper.y0), linearScale(most, lower.y1, lower.y0)
	place := func(t time.Time) float64 { return upper.x.at(t.Sub(from).Seconds()) }
	end := x.End
	if !x.Over() {
		end = to
	}
	for _, p := range []plot{upper, lower} {
		f.rect(place(x.Begin), p.y0, max(place(end)-place(x.Begin), 1), p.y1-p.y0, inkBad, 0.12)
		p.grid()
	}
	inks := []ink{inkDownload, inkBoth, inkLoaded}
	curve := func(of func(incident.Second) incident.Answers, p pen, lostAt float64) {
		var paths, lost [][]point
		var now []point
		silent := 0 // samples
		for _, s := range all {
			a := of(s)
			if a.Asked > a.Answered {
				at := place(s.At)
				lost = append(lost, []point{{at, lostAt}, {at, lostAt + 6}})
			}
			if silent++; a.Answered == 0 {
				continue
			}
			if silent > 12 {
				paths, now = append(paths, now), nil
			}
			silent = 0
			now = append(now, point{place(s.At), upper.y.at(a.RTT.Ms())})
		}
		f.lines(append(paths, now), p)
		f.lines(lost, pen{inkBad, 1.2, solid})
	}
	for i := range far {
		curve(func(s incident.Second) incident.Answers { return s.Far[i] }, pen{inks[i%len(inks)], 1.2, solid}, upper.y0)
	}
	curve(func(s incident.Second) incident.Answers { return s.First }, pen{inkUpload, 1.4, dashed}, upper.y0+8)
	for i, c := range []ink{inkDownload, inkUpload} {
		var path []point
		for _, s := range all {
			path = append(path, point{place(s.At), lower.y.at(max(s.Way[i].Carried, 0).Mbit())})
		}
		f.lines([][]point{path}, pen{c, 1.3, []dash{solid, dashed}[i]})
	}
	lower.clock(from.UnixMilli(), to.UnixMilli())
	return f
}
