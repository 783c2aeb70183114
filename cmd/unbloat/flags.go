package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"unbloat/unit"
)

// Flags that mean the same on every command. A command takes those it needs.

// rateFlag adds a flag that takes a rate such as 950kbit or "29.1 Mbit/s".
func rateFlag(f *pflag.FlagSet, r *unit.Rate, name, usage string) {
	f.Var((*rateValue)(r), name, usage)
}

// durationFlag adds a flag that takes a duration such as 5ms; negative is refused.
func durationFlag(f *pflag.FlagSet, d *time.Duration, name string, value time.Duration, usage string) {
	*d = value
	f.Var((*durationValue)(d), name, usage)
}

type rateValue unit.Rate

func (v *rateValue) Set(s string) error { return (*unit.Rate)(v).UnmarshalText([]byte(s)) }
func (v *rateValue) Type() string       { return "RATE" }
func (v *rateValue) String() string {
	if *v == 0 {
		return ""
	}
	return unit.Rate(*v).String()
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
	return time.Duration(*v).String()
}

// usageError is an error of the person at the keyboard: exit code 2.
func usageError(format string, args ...any) error {
	return &exitError{exitUsage, fmt.Errorf(format, args...)}
}

// exactArgs is cobra.ExactArgs with our exit code and a pointer to the help.
func exactArgs(n int, what string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) != n {
			return usageError("%s: takes %s, not %d arguments (see `%s --help`)", c.CommandPath(), what, len(args), c.CommandPath())
		}
		return nil
	}
}
