package main

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"unbloat/internal/lang/tc"
	"unbloat/internal/platform/linux/bpf"
)

// newClassifierCommand loads the BPF program of the classes, and reads what it
// remembers. `apply`, `status` and `why` run it; people never do.
func newClassifierCommand() *cobra.Command {
	c := &cobra.Command{Use: "classifier", Short: "Load the classes as a BPF program", Hidden: true}
	given := func(do func(bpf.Wanted) error) func(*cobra.Command, []string) error {
		return func(c *cobra.Command, _ []string) error {
			var w bpf.Wanted
			if err := json.NewDecoder(c.InOrStdin()).Decode(&w); err != nil {
				return usageError("read what to load: %w", err)
			}
			return do(w)
		}
	}
	c.AddCommand(
		&cobra.Command{Use: "load", Short: "Load and pin the program that standard input describes", Args: cobra.NoArgs,
			RunE: given(func(w bpf.Wanted) error { return bpf.Load(w, tc.Pins) })},
		&cobra.Command{Use: "check", Short: "Find out whether the kernel takes it", Args: cobra.NoArgs, RunE: given(bpf.Check)},
		&cobra.Command{Use: "show DIR", Short: "Print what the program that is pinned in DIR remembers", Args: exactArgs(1, "one DIR"),
			RunE: func(c *cobra.Command, args []string) error {
				t, err := bpf.Show(args[0])
				if err != nil {
					return err
				}
				text, err := json.Marshal(t)
				if err != nil {
					return err
				}
				_, err = fmt.Fprintf(c.OutOrStdout(), "%s\n", text)
				return err
			}})
	return c
}
