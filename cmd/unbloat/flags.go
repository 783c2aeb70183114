package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"unbloat/internal/cure/plan"
	"unbloat/internal/show/cli"
	"unbloat/reason"
	"unbloat/unit"
)

// Flags that mean the same in every command.

// rateFlag adds a flag that takes a rate such as 950kbit or "29.1 Mbit/s".
func rateFlag(f *pflag.FlagSet, r *unit.Rate, name, usage string) {
	f.Var(&rateValue{rate: r}, name, usage)
}

// rateFlags are the rates of the line, and those of the shaper.
type rateFlags struct {
	line               plan.Line
	shapeDown, shapeUp plan.RatePreference
}

func (f *rateFlags) register(fs *pflag.FlagSet) {
	rateFlag(fs, &f.line.Down, "down", "what the line carries towards the home; the shaper is set a little below")
	rateFlag(fs, &f.line.Up, "up", "what the line carries from the home; the shaper is set a little below")
	preferenceFlag(fs, &f.shapeDown, "shape-down", "hold the download to this rate, or to this share of --down")
	preferenceFlag(fs, &f.shapeUp, "shape-up", "hold the upload to this rate, or to this share of --up")
}

// given reports whether any rate is given, so that a plan can be made.
func (f *rateFlags) given() bool {
	return f.line.Down != 0 || f.line.Up != 0 || f.shapeDown != plan.RatePreference{} || f.shapeUp != plan.RatePreference{}
}

// preferenceFlag adds a flag that takes a rate or a share of the measured one.
func preferenceFlag(fs *pflag.FlagSet, w *plan.RatePreference, name, usage string) {
	fs.Var(&preferenceValue{preference: w}, name, usage)
}

type preferenceValue struct {
	preference *plan.RatePreference
	as         string
}

func (v *preferenceValue) Set(s string) error {
	v.as = s
	return v.preference.UnmarshalText([]byte(s))
}
func (v *preferenceValue) Type() string { return "RATE|SHARE" }
func (v *preferenceValue) String() string {
	if v.preference == nil {
		return ""
	}
	return v.preference.String()
}
func (v *preferenceValue) understood() string {
	if v.preference.Rate == 0 {
		return ""
	}
	return (&rateValue{rate: &v.preference.Rate, as: v.as}).understood()
}

type rateValue struct {
	rate *unit.Rate
	as   string // as the user wrote it
}

func (v *rateValue) Set(s string) error {
	v.as = s
	return v.rate.UnmarshalText([]byte(s))
}
func (v *rateValue) Type() string { return "RATE" }
func (v *rateValue) String() string {
	if v.rate == nil || *v.rate == 0 {
		return ""
	}
	return v.rate.String()
}

// understood returns how a rate was read, if its unit was not in bits, else "".
func (v *rateValue) understood() string {
	lower := strings.ToLower(v.as)
	if v.as == "" || strings.Contains(lower, "bit") || strings.HasSuffix(lower, "bps") && !strings.Contains(v.as, "B") {
		return ""
	}
	return fmt.Sprintf("%s is %s", v.as, v.rate)
}

// sayRates prints how the rates among a command's flags were read.
func sayRates(c *cobra.Command) {
	if quiet, err := c.Flags().GetBool("quiet"); err == nil && quiet {
		return
	}
	c.Flags().Visit(func(f *pflag.Flag) {
		if v, is := f.Value.(interface{ understood() string }); is && v.understood() != "" {
			cli.Say(c.ErrOrStderr(), "--%s: %s.", f.Name, v.understood())
		}
	})
}

// signed prints a change with its sign and one decimal. A change that rounds to
// 0 is "+0.0".
func signed(v float64) string { return reason.English().Number("%+.1f", v) }

// localMinute prints a time in the local zone, for a person. JSON has UTC.
func localMinute(t time.Time) string { return t.Local().Format("2006-01-02 15:04 MST") }

// localText prints a time in RFC 3339 format for a person. Any other text is
// returned unchanged.
func localText(s string) string {
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return s
	}
	return localMinute(t)
}

// parseSince parses a duration before now, a time, or a date, which is the beginning of
// that day where now is.
func parseSince(s string, now time.Time) (time.Time, error) {
	for _, layout := range []string{time.DateOnly, time.RFC3339} {
		if t, err := time.ParseInLocation(layout, s, now.Location()); err == nil {
			return t, nil
		}
	}
	if n := len(s); n > 1 && (s[n-1] == 'd' || s[n-1] == 'w') {
		days, err := strconv.ParseFloat(s[:n-1], 64)
		if s[n-1] == 'w' {
			days *= 7
		}
		if err == nil && days >= 0 && days < 100_000 {
			return now.Add(-time.Duration(days * 24 * float64(time.Hour))), nil
		}
	}
	d, err := unit.ParseDuration(s)
	if err != nil || d < 0 {
		return time.Time{}, fmt.Errorf("%q: give it as 12h, 7d, 2w, 2026-03-01 or 2026-03-01T10:00:00Z", s)
	}
	return now.Add(-d), nil
}
