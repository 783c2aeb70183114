package main

import (
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"unbloat/internal/cure/lang/tc"
	"unbloat/internal/cure/platform/linux/bpf"
	"unbloat/internal/show/cli"
)

// newClassifierCommand loads the BPF program of the classes, and reads what it
// remembers. `apply`, `status` and `why` run it; people never do.
func newClassifierCommand() *cobra.Command {
	c := &cobra.Command{Use: "classifier", Short: "Load the classes as a BPF program", Hidden: true}
	given := func(do func(bpf.Wanted) error) func(*cobra.Command, []string) error {
		return func(c *cobra.Command, _ []string) error {
			var w bpf.Wanted
			if err := json.NewDecoder(c.InOrStdin()).Decode(&w); err != nil {
				return cli.UsageError("read what to load: %w", err)
			}
			return do(w)
		}
	}
	c.AddCommand(
		&cobra.Command{Use: "load KEY", Short: "Load and pin the program that standard input describes", Args: cli.ExactArgs(1, "one KEY"),
			RunE: func(c *cobra.Command, args []string) error {
				return given(func(w bpf.Wanted) error { return bpf.Load(w, args[0], tc.Pins) })(c, nil)
			}},
		&cobra.Command{Use: "able BUILD", Short: "Find out whether this is the build that was named, and the kernel takes its program", Args: cli.ExactArgs(1, "one BUILD"),
			RunE: func(_ *cobra.Command, args []string) error {
				if args[0] != bpf.Build() {
					return fmt.Errorf("the unbloat on the router is another version (program %s, not %s)", bpf.Build(), args[0])
				}
				return bpf.Check(bpf.Wanted{})
			}},
		&cobra.Command{Use: "check", Short: "Find out whether the kernel takes it", Args: cobra.NoArgs, RunE: given(bpf.Check)},
		&cobra.Command{Use: "altered", Short: "Find out whether what is pinned for it has other constants", Args: cobra.NoArgs,
			RunE: func(c *cobra.Command, _ []string) error {
				return given(func(w bpf.Wanted) error { return printTable(c, bpf.Altered(w, tc.Pins), nil) })(c, nil)
			}},
		&cobra.Command{Use: "show DIR", Short: "Print what the program that is pinned in DIR remembers", Args: cli.ExactArgs(1, "one DIR"),
			RunE: func(c *cobra.Command, args []string) error {
				t, err := bpf.Show(args[0])
				return printTable(c, t, err)
			}},
		&cobra.Command{Use: "attach DEVICE PARENT PREF PIN [direct-action]", Short: "Attach a pinned program as a filter", Args: cobra.RangeArgs(4, 5),
			RunE: func(_ *cobra.Command, args []string) error {
				pref, err := strconv.Atoi(args[2])
				if err != nil {
					return cli.UsageError("attach a filter: the preference %q is not a number", args[2])
				}
				return bpf.Attach(args[0], args[1], pref, args[3], len(args) == 5)
			}},
		&cobra.Command{Use: "attached DEVICE", Short: "List the BPF filters of DEVICE", Args: cli.ExactArgs(1, "one DEVICE"),
			RunE: func(c *cobra.Command, args []string) error {
				list, err := bpf.Attached(args[0])
				return printTable(c, list, err)
			}})
	return c
}

// printTable prints what a program remembers or has as a line of JSON, or returns the error with which it
// was made.
func printTable(c *cobra.Command, v any, err error) error {
	if err != nil {
		return err
	}
	return json.NewEncoder(c.OutOrStdout()).Encode(v)
}
