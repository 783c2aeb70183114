package cli

import (
	"strings"
	"time"

	"github.com/spf13/pflag"

	"unbloat/unit"
)

// DurationFlag adds a flag that takes a duration such as 5ms; negative is refused.
func DurationFlag(f *pflag.FlagSet, d *time.Duration, name string, value time.Duration, usage string) {
	*d = value
	f.Var((*durationValue)(d), name, usage)
}

type durationValue time.Duration

func (v *durationValue) Set(s string) error {
	d, err := unit.ParseDuration(s)
	if err == nil {
		*v = durationValue(d)
	}
	return err
}

func (v *durationValue) Type() string { return "DURATION" }

func (v *durationValue) String() string {
	if *v == 0 {
		return ""
	}
	return strings.ReplaceAll(strings.ReplaceAll(time.Duration(*v).String(), "m0s", "m"), "h0m", "h")
}
