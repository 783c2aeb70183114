// This part looks for problems on a router that prevent shaping or falsify
// measurements. It only reads, and changes nothing.

package platform

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"unbloat/internal/cure/lang/tc"
	"unbloat/internal/cure/plan"
	"unbloat/unit"
)

// Schema names the JSON layout of a Report.
const DoctorSchema = "unbloat.doctor/1"

// A Report is what was found.
type DoctorReport struct {
	Schema   string    `json:"schema"`
	Platform string    `json:"platform"`
	WAN      string    `json:"wan,omitempty"`
	LAN      string    `json:"lan,omitempty"`
	OK       bool      `json:"ok"` // nothing is in the way
	Findings []Finding `json:"findings"`
	Checked  []string  `json:"checked"` // checks without findings
	Skipped  []string  `json:"skipped"` // checks that could not be made, and why
	Headroom *Headroom `json:"headroom,omitempty"`
}

// A Config says what is examined.
type DoctorConfig struct {
	Runner    Runner
	Driver    *Driver // of the router's platform
	WAN, LAN  string
	Down, Up  unit.Rate      // the wanted rates; 0: not known
	LinkLayer plan.LinkLayer // of the line, if it was given
	Now       time.Time      // this machine's clock
	Far       bool           // the router is another machine
	// Shapers, if set, returns the shapers on the router.
	Shapers func(ctx context.Context) ([]Shaped, error)
	// LostClasses, if set, returns differences between the rules that divide traffic
	// and those that were applied; nil if there are none.
	LostClasses func(ctx context.Context) []string
	// Drifts, if set, returns for each WAN the differences from what was applied.
	Drifts func(ctx context.Context) ([]Drift, error)
	// MeasureHeadroom, if set, watches a router with Linux for some seconds.
	MeasureHeadroom func(e *Examination)
	// Rehearse, if set, tries a change without making it.
	Rehearse func(ctx context.Context) error
}

// Examine makes all checks. It fails only if the router cannot be asked at all.
func Examine(ctx context.Context, c DoctorConfig) (*DoctorReport, error) {
	e := &Examination{Ctx: ctx, Runner: c.Runner, WAN: c.WAN, LAN: c.LAN, Down: c.Down, Up: c.Up, LinkLayer: c.LinkLayer, Now: c.Now, Far: c.Far,
		Explain: c.Shapers, LostClasses: c.LostClasses, Drifts: c.Drifts, MeasureHeadroom: c.MeasureHeadroom, Findings: []Finding{}, Checked: []string{}, Skipped: []string{}}
	e.Each(c.Driver.Checks(e))
	if c.Rehearse != nil {
		rehearse(e, c.Rehearse)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return &DoctorReport{Schema: DoctorSchema, Platform: c.Driver.Name(), WAN: e.WAN, LAN: e.LAN, OK: !slices.ContainsFunc(e.Findings, blocking),
		Findings: e.Findings, Checked: e.Checked, Skipped: e.Skipped, Headroom: e.Headroom}, nil
}

func blocking(f Finding) bool { return f.Blocking }

// rehearse tries a change without making it. An obstacle becomes a finding, unless a
// check has already found one.
func rehearse(e *Examination, try func(ctx context.Context) error) {
	err := try(e.Ctx)
	var pre *PreconditionError
	var foreign *tc.ForeignError
	if err == nil {
		e.Checked = append(e.Checked, "a change, rehearsed")
		return
	}
	if slices.ContainsFunc(e.Findings, blocking) {
		return // it is the same finding again
	}
	f := Finding{ID: "rehearsal", Blocking: true, What: err.Error(), Why: "`unbloat apply` would refuse", Remedy: "remove that obstacle, then try again"}
	switch {
	case errors.As(err, &pre):
		f.What, f.Remedy = fmt.Sprintf("%s: %s", pre.Doing, pre.What), pre.Advice()
	case errors.As(err, &foreign):
		f.Remedy = "unbloat apply --replace takes over from it, and revert puts it back"
	}
	e.Find(f)
}
