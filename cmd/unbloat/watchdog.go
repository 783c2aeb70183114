package main

import (
	"context"
	"os"

	"github.com/spf13/cobra"

	"unbloat/internal/cure/apply"
	"unbloat/internal/show/cli"
)

// newWatchdogCommand is the process that undoes a change if nobody confirms it.
// `apply` starts it; people do not.
func newWatchdogCommand() *cobra.Command {
	var f routerFlags
	c := &cobra.Command{
		Use:     "watchdog JOURNAL",
		Aliases: []string{"guard"}, // the name that an older binary uses
		Short:   "Undo a change at its deadline",
		Hidden:  true,
		Args:    cli.ExactArgs(1, "one JOURNAL"),
		RunE: func(c *cobra.Command, args []string) error {
			apply.IgnoreHangup()
			r, err := f.open(c.Context())
			if err != nil {
				return err
			}
			defer r.Close()
			r.engine.Log = c.ErrOrStderr()
			return r.engine.Watch(context.WithoutCancel(c.Context()), args[0], os.Stdout)
		},
	}
	f.register(c)
	f.targetFlags.register(c)
	c.Flags().BoolVar(&f.finalDir, "dir-is-final", false, "the journal is in --state-dir itself")
	return c
}
