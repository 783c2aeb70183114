package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"unbloat/internal/cure/platform/all"
	"unbloat/internal/show/cli"
	"unbloat/lab"
	"unbloat/lab/scenario"
	"unbloat/lab/simlab"
	"unbloat/scenarios"
)

func newLabCommand() *cobra.Command {
	c := cli.Family(&cobra.Command{
		Use:     "lab",
		Short:   "Run scenarios on a real Linux kernel, in virtual time",
		GroupID: "lab",
		Long: `The lab emulates a home, its line and a server inside one user-mode Linux
process. It needs no root, and nothing outside it changes. In virtual time its
figures are exact on any machine; "unbloat lab kernel" builds the kernel for it.`,
		Example: `  unbloat lab list
  unbloat lab run seed-003
  unbloat lab run ./my-line.toml --case before --json
  unbloat lab shell seed-000 --node router`,
	})
	c.AddCommand(newLabListCommand(), newLabRunCommand(), newLabCompareCommand(), newLabShellCommand(), newLabKernelCommand())
	return c
}

func newLabListCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Short:   "List the scenarios that come with unbloat",
		Example: "  unbloat lab list\n  unbloat lab run seed-003",
		Args:    cli.ExactArgs(0, "no argument"),
		RunE: func(c *cobra.Command, _ []string) error {
			for _, name := range scenarios.Names() {
				s, err := embedded(name)
				if err != nil {
					return err
				}
				fmt.Fprintf(c.OutOrStdout(), "%-12s %s\n", name, s.Title)
			}
			return nil
		},
	}
}

type labRunFlags struct {
	engine   string
	platform string
	cases    []string
	seed     uint64
	json     bool
	quiet    bool
	output   string
	log      string
	figure   string
	router   labRouterFlags
}

// labRouterFlags are the flags for a real router's image in place of the lab's
// router.
type labRouterFlags struct {
	image, address, user, wan, lan string
	identity, apiKeyFile           string
	boot                           time.Duration
}

func (f *labRouterFlags) register(fs *pflag.FlagSet) {
	fs.StringVar(&f.image, "router-image", "", "run a router's own disk image `FILE` in place of the lab's router, under QEMU and in real time (docs/real-routers.md)")
	fs.StringVar(&f.address, "router-address", lab.DefaultRouterAddress, "with --router-image: its `ADDRESS` on its LAN")
	fs.StringVar(&f.user, "router-user", "root", "with --router-image: `NAME` of the user there, for SSH")
	fs.StringVar(&f.wan, "router-wan", "", "with --router-image: what it calls its second network card, the WAN (default: that of its default route)")
	fs.StringVar(&f.lan, "router-lan", "", "with --router-image: what it calls its first network card, the LAN; platforms that shape the download there need it")
	fs.StringVar(&f.identity, "identity", "", "with --router-image: private key `FILE` for SSH (default: the first of ~/.ssh/id_ed25519, id_ecdsa and id_rsa)")
	fs.StringVar(&f.apiKeyFile, "api-key-file", "", "with --router-image: `FILE` with the API's key and secret; the router is OPNsense, reached by HTTPS")
	cli.DurationFlag(fs, &f.boot, "router-boot", lab.DefaultBoot, "with --router-image: how long it may take until it answers")
}

// router returns the router of the flags; nil without --router-image.
func (f *labRouterFlags) router(c *cobra.Command, platform string) (*lab.Router, error) {
	if f.image == "" {
		var err error
		c.Flags().Visit(func(x *pflag.Flag) {
			if strings.HasPrefix(x.Name, "router-") || x.Name == "identity" || x.Name == "api-key-file" {
				err = cli.UsageError("--%s goes with --router-image", x.Name)
			}
		})
		return nil, err
	}
	r := &lab.Router{Image: f.image, User: f.user, Platform: platform, WAN: f.wan, LAN: f.lan, Boot: f.boot}
	var err error
	if r.Address, err = netip.ParseAddr(f.address); err != nil {
		return nil, cli.UsageError("--router-address: %w", err)
	}
	api, err := apiScheme(platform)
	switch {
	case err != nil:
		return nil, err
	case f.apiKeyFile != "" && api == "":
		return nil, cli.UsageError("--api-key-file: a %s router has no API here; it is reached by SSH (--identity)", platform)
	case f.apiKeyFile != "":
		r.Scheme = api
		r.APIKeyFile, err = filepath.Abs(f.apiKeyFile)
	case platform != "" && api != "":
		return nil, cli.UsageError("--for %s: give --api-key-file FILE too; its settings belong to its own API", platform)
	default:
		if f.identity == "" {
			f.identity = usualIdentity()
		}
		if f.identity == "" {
			return nil, cli.UsageError("--router-image: there is no key for SSH in ~/.ssh; name one with --identity FILE")
		}
		r.Identity, err = filepath.Abs(f.identity)
	}
	return r, err
}

// apiScheme returns the scheme of addresses of a platform's API, or "" if it
// has none. Without a platform it returns that of the platform that has one.
func apiScheme(platform string) (string, error) {
	if platform != "" {
		d, err := all.Find(platform)
		if err != nil {
			return "", cli.UsageError("--for %w", err)
		}
		return d.Scheme, nil
	}
	for _, d := range all.Drivers() {
		if d.Scheme != "" {
			return d.Scheme, nil
		}
	}
	return "", nil
}

// usualIdentity returns the first private key at a usual path, or "".
func usualIdentity() string {
	home, err := os.UserHomeDir()
	if err != nil {
		return ""
	}
	for _, name := range []string{"id_ed25519", "id_ecdsa", "id_rsa"} {
		file := filepath.Join(home, ".ssh", name)
		if _, err := os.Stat(file); err == nil {
			return file
		}
	}
	return ""
}

func newLabRunCommand() *cobra.Command {
	var f labRunFlags
	c := &cobra.Command{
		Use:   "run SCENARIO|FILE",
		Short: "Run a scenario, by name or file, and print what its cases measured",
		Example: `  unbloat lab run seed-003
  unbloat lab run seed-000 --case before --case tuned --json
  unbloat lab run seed-000 --seed 2
  unbloat lab run seed-002 --engine sim --for openbsd-altq
  unbloat lab run ./my-line.toml --engine realtime
  unbloat lab run seed-003 --router-image openwrt.img --identity ~/.ssh/id_ed25519`,
		Args: cli.ExactArgs(1, "a scenario's name or file"),
		RunE: func(c *cobra.Command, args []string) error { return runLab(c, args[0], f) },
	}
	c.Flags().StringVar(&f.engine, "engine", "", "virtual, realtime or sim (default: the best that is installed)")
	c.Flags().StringVar(&f.platform, "for", "", "the router's platform: with --engine sim (default linux), and with --router-image (default: detected)")
	c.Flags().StringSliceVar(&f.cases, "case", nil, "run only this case (may be repeated)")
	c.Flags().Uint64Var(&f.seed, "seed", 1, "seed of all that is random: the same seed gives the same figures, except in real time")
	c.Flags().BoolVar(&f.json, "json", false, "print the result as JSON (unbloat.lab/1)")
	c.Flags().BoolVar(&f.quiet, "quiet", false, "no progress")
	c.Flags().StringVarP(&f.output, "output", "o", "", "also write the JSON to this file")
	c.Flags().StringVar(&f.log, "decisions", "", "write all that the daemon measured and decided to `FILE` (of one case that follows its line)")
	c.Flags().StringVar(&f.figure, "figure", "", "draw the same as SVG to `FILE`")
	f.router.register(c.Flags())
	c.ValidArgsFunction = completeScenarios
	_ = c.RegisterFlagCompletionFunc("case", completeCases)
	return c
}

// completeScenarios gives the shell the names of the scenarios; where none begins
// as what was typed, files.
func completeScenarios(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return scenarios.Names(), cobra.ShellCompDirectiveDefault
}

// completeCases gives the shell the cases of the scenario that is named.
func completeCases(_ *cobra.Command, args []string, _ string) (names []string, _ cobra.ShellCompDirective) {
	if len(args) > 0 {
		if s, err := loadScenario(args[0]); err == nil {
			for _, k := range s.Cases {
				names = append(names, k.Name)
			}
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

func runLab(c *cobra.Command, name string, f labRunFlags) error {
	s, err := loadScenario(name)
	if err != nil {
		return err
	}
	engine, err := lab.ParseEngine(f.engine)
	if err != nil {
		return cli.Exit(cli.Usage, err)
	}
	for _, n := range f.cases {
		if _, err := s.Case(n); err != nil {
			return cli.Exit(cli.Usage, err)
		}
	}
	router, err := f.router.router(c, f.platform)
	if err != nil {
		return err
	}
	switch {
	case router != nil && engine != "" && engine != lab.Realtime:
		return cli.UsageError("--engine %s: a router's own image runs in real time alone", engine)
	case f.platform == "":
	case engine != lab.Sim && router == nil:
		return cli.UsageError("--for %s: the lab's routers are Linux; add --engine sim or --router-image FILE", f.platform)
	case !slices.Contains(all.Names(), f.platform):
		return cli.UsageError("--for %s: that platform is unknown; use one of %s", f.platform, strings.Join(all.Names(), ", "))
	}
	if f.seed == 0 {
		return cli.Exit(cli.Usage, errors.New("--seed: a seed is a number from 1"))
	}
	o := lab.Options{Engine: engine, Cases: f.cases, Seed: f.seed, Router: router, Log: f.log != "" || f.figure != ""}
	if o.Log {
		if engine == lab.Sim || router != nil || len(f.cases) != 1 {
			return cli.UsageError("--decisions, --figure: give one --case, which follows its line in the lab's kernel")
		}
		if x, err := s.Case(f.cases[0]); err != nil || x.Router.Mode != scenario.ModeDaemon || !x.Router.Daemon.Follow {
			return cli.UsageError("--decisions, --figure: case %s does not follow its line", f.cases[0])
		}
	}
	if !f.quiet {
		o.Started = func(line string) { fmt.Fprintln(c.ErrOrStderr(), line) }
		o.Console = c.ErrOrStderr()
	}
	r, err := runScenario(c.Context(), s, o, f.platform)
	if err != nil {
		return labError(err)
	}
	if o.Log {
		if err := writeFollowed(s, r.Cases[0].Followed, f); err != nil {
			return err
		}
	}
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if f.output != "" {
		if err := cli.WriteFile(f.output, append(text, '\n'), 0o644); err != nil {
			return err
		}
	}
	if f.json {
		_, err = fmt.Fprintln(c.OutOrStdout(), string(text))
	} else {
		err = lab.Print(c.OutOrStdout(), s, r)
	}
	if err != nil {
		return err
	}
	for _, x := range r.Cases {
		if !x.Test.Valid {
			return cli.Exit(cli.Invalid, fmt.Errorf("lab run %s: the measurement of case %q is not valid: %s", s.Name, x.Name, strings.Join(x.Test.InvalidReasons, "; ")))
		}
	}
	return nil
}

// runScenario runs a scenario on a real kernel, or in the simulator, where the
// router may be of any platform; "" is Linux.
func runScenario(ctx context.Context, s *scenario.Scenario, o lab.Options, platform string) (*lab.Result, error) {
	if o.Engine != lab.Sim {
		return lab.Run(ctx, s, o)
	}
	start := time.Now()
	r, err := simlab.Run(ctx, s, simlab.Options{Cases: o.Cases, Seed: o.Seed, Platform: platform, Series: true})
	if err != nil {
		return nil, fmt.Errorf("simulate %s: %w", s.Name, err)
	}
	r.WallSeconds = time.Since(start).Seconds()
	return r, nil
}

func newLabShellCommand() *cobra.Command {
	var engine, node string
	c := &cobra.Command{
		Use:     "shell SCENARIO|FILE",
		Short:   "Get a prompt inside a scenario's home, in real time",
		Example: "  unbloat lab shell seed-000\n  unbloat lab shell seed-000 --node home1",
		Args:    cli.ExactArgs(1, "a scenario's name or file"),
		RunE: func(c *cobra.Command, args []string) error {
			s, err := loadScenario(args[0])
			if err != nil {
				return err
			}
			e, err := lab.ParseEngine(engine)
			if err != nil {
				return cli.Exit(cli.Usage, err)
			}
			if !cli.IsKeyboard(c.InOrStdin()) {
				return cli.UsageError("lab shell: standard input is not a terminal, and a prompt needs one; run it in a terminal (over ssh with -t), not behind a pipe")
			}
			return labError(lab.Shell(c.Context(), s, e, node))
		},
	}
	c.Flags().StringVar(&engine, "engine", "", "virtual or realtime: which kernel (time is real in either)")
	c.Flags().StringVar(&node, "node", lab.NodeRouter, "where the prompt is: router, home1, modem, isp or server")
	c.ValidArgsFunction = completeScenarios
	return c
}

func newLabKernelCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "kernel",
		Short:   "Build the virtual engine's kernel, once, into your cache",
		Example: "  unbloat lab kernel",
		Args:    cli.ExactArgs(0, "no argument"),
		RunE: func(c *cobra.Command, _ []string) error {
			k, err := lab.BuildKernel(c.Context(), func(line string) { fmt.Fprintln(c.ErrOrStderr(), "kernel:", line) })
			if err != nil {
				return labError(err)
			}
			fmt.Fprintf(c.OutOrStdout(), "Linux %s for the virtual engine: %s\n", k.Version, k.Path)
			return nil
		},
	}
}

// loadScenario reads an embedded scenario by its name, or a file by its path.
func loadScenario(name string) (*scenario.Scenario, error) {
	if strings.ContainsAny(name, "/.") {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, cli.UsageError("read the scenario: %w", err)
		}
		s, err := scenario.Read(name, text, func(trace string) ([]byte, error) {
			return os.ReadFile(filepath.Join(filepath.Dir(name), trace))
		})
		if err != nil {
			return nil, cli.Exit(cli.Usage, err)
		}
		return s, nil
	}
	text, err := scenarios.Text(name)
	if err != nil {
		return nil, cli.UsageError("%w; a file is given by its path, as in ./%s.toml", err, name)
	}
	s, err := scenario.Read("scenarios/"+name+".toml", text, scenarios.Trace)
	var missing *scenarios.MissingTraceError
	if errors.As(err, &missing) {
		return nil, cli.Exit(cli.Precondition, fmt.Errorf("scenario %s: %w", name, missing))
	}
	return s, err
}

// embedded reads an embedded scenario without its trace.
func embedded(name string) (*scenario.Scenario, error) {
	text, err := scenarios.Text(name)
	if err != nil {
		return nil, err
	}
	return scenario.Parse("scenarios/"+name+".toml", text)
}

// labError gives the lab's errors their exit codes.
func labError(err error) error {
	var (
		missing     *lab.MissingError
		unsupported *lab.UnsupportedError
		impossible  *lab.UnsupportedCaseError
		input       *lab.InputError
		file        *lab.FileError
	)
	switch {
	case errors.As(err, &missing), errors.As(err, &unsupported), errors.As(err, &impossible):
		return cli.Exit(cli.Precondition, err)
	case errors.As(err, &input), errors.As(err, &file):
		return cli.Exit(cli.Usage, err)
	}
	return err
}
