package main

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"unbloat/internal/cure/platform"
	"unbloat/internal/keep/daemon"
	"unbloat/internal/show/cli"
	"unbloat/unit"
)

// whileFlags are those of `unbloat off` and `unbloat boost`.
type whileFlags struct {
	routerFlags
	wan string
}

func (f *whileFlags) register(c *cobra.Command) {
	c.Flags().StringVar(&f.wan, "wan", "", "interface towards the internet (default: the only one that the daemon keeps)")
	c.Flags().StringVar(&f.router, "router", "", "`ADDRESS` of the router, as in the daemon's configuration (default: this machine)")
	c.Flags().StringVar(&f.stateDir, "state-dir", stateDirOf(os.Getenv), "where the daemon's socket is")
}

// newWhileCommands are those of what holds for a while.
func newWhileCommands() []*cobra.Command {
	var off, boost whileFlags
	o := &cobra.Command{
		Use:     "off TIME",
		GroupID: "main",
		Short:   "Take the shaping away for a while",
		Long: `Tells the daemon to take the shaping of a line away. It puts it back by itself when
the time is over, even after a restart. 0 puts it back now. "unbloat revert" is for
good.`,
		Example: "  unbloat off 1h\n  unbloat off 0",
		Args:    cli.ExactArgs(1, "one TIME, such as 1h; 0 ends it"),
		RunE: func(c *cobra.Command, args []string) error {
			return off.run(c, args[0], daemon.WhileParams{Do: daemon.WhileOff})
		},
	}
	off.register(o)
	b := &cobra.Command{
		Use:     "boost TIME [MACHINE]",
		GroupID: "main",
		Short:   "Have a machine of the home go first for a while",
		Long: `Tells the daemon to let the traffic of one machine of the home go before that of the
others until the time is over, even after a restart. 0 ends it now. MACHINE is an
address, a MAC address or a name; without it, it is the machine from which you are
logged in over SSH.
The line needs classes (docs/classes.md).`,
		Example: "  unbloat boost 1h 192.168.1.20\n  unbloat boost 0 192.168.1.20",
		Args: func(c *cobra.Command, args []string) error {
			if len(args) == 0 || len(args) > 2 {
				return cli.UsageError("%s: takes TIME, such as 1h, and perhaps a MACHINE (see `%s --help`)", cli.NameOf(c), c.CommandPath())
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			machine := sshClient(os.Getenv)
			if len(args) > 1 {
				machine = args[1]
			}
			if machine == "" {
				return cli.UsageError("boost: say which machine, as in: unbloat boost %s 192.168.1.20", args[0])
			}
			return boost.run(c, args[0], daemon.WhileParams{Do: daemon.WhileFirst, Machine: machine})
		},
	}
	boost.register(b)
	return []*cobra.Command{o, b}
}

// sshClient is the address of the machine from which a person is logged in over SSH.
func sshClient(getenv func(string) string) string {
	first, _, _ := strings.Cut(getenv("SSH_CONNECTION"), " ")
	if a, err := netip.ParseAddr(first); err == nil {
		return a.Unmap().WithZone("").String()
	}
	return ""
}

func (f *whileFlags) run(c *cobra.Command, text string, p daemon.WhileParams) error {
	name := cli.NameOf(c)
	if text != "0" {
		d, err := unit.ParseDuration(text)
		if err != nil || d <= 0 {
			return cli.UsageError("%s: %q: give the time as 30m, 1h or 2h30m; 0 ends it", name, text)
		}
		p.Seconds = d.Seconds()
	}
	ctx, cancel := context.WithTimeout(c.Context(), daemonChangeTime)
	defer cancel()
	client, err := f.dialDaemon(ctx)
	if err != nil {
		return changeError(err)
	}
	if client == nil {
		return changeError(&platform.PreconditionError{Doing: name, What: "no daemon runs here, which would take it back", Remedy: "start it (docs/daemon.md); without one use `unbloat revert` and `unbloat apply --again`"})
	}
	defer client.Close()
	var got daemon.While
	if err := client.Call(ctx, daemon.MethodWhile, f.router, f.wan, p, &got); err != nil {
		return changeError(err)
	}
	says := "It has ended."
	if until, err := time.Parse(time.RFC3339, got.Until); err == nil {
		says = "Until " + until.Local().Format(time.DateTime) + ": nothing is shaped."
		if p.Do == daemon.WhileFirst {
			says = "Until " + until.Local().Format(time.DateTime) + ": " + p.Machine + " goes first."
		}
	}
	_, err = fmt.Fprintln(c.OutOrStdout(), says)
	return err
}

// daemonChangeTime bounds what a daemon changes.
const daemonChangeTime = 3 * time.Minute
