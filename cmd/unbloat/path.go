package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"unbloat/internal/measure/netio"
	"unbloat/internal/measure/path"
	"unbloat/internal/measure/phases"
	"unbloat/internal/show/cli"
	"unbloat/unit"
)

// pathFlags are the flags of `unbloat path`.
type pathFlags struct {
	keepFlags
	server                               serverFlags // for the load
	direction, cc, way                   string
	flows, maxHops, homeHops, size       int
	idle, loaded, interval               time.Duration
	names, report, json, quiet, ip4, ip6 bool
	plain, marks                         bool
}

func newPathCommand() *cobra.Command {
	var o pathFlags
	cmd := &cobra.Command{
		Use:     "path HOST",
		GroupID: "main",
		Short:   "Show latency and loss of every hop, idle and under load",
		Long: `Show what mtr shows of every hop on the way to HOST, and with --load SERVER the
same again while the line is loaded, side by side; and name the link where the
increase begins: home network, router's uplink, or provider and beyond.

The load needs a server beyond the line: run ` + "`unbloat serve`" + ` there. No privilege
is needed on Linux. A hop that is slow while the hops behind it are not does not
count: routers give such probes low priority.

--marks also sends probes with the marks EF, NQB, ECT(1) and CE, and shows at which
hop one is changed, as routers quote the packets that they answer. With --load it
asks that server too, both ways, and whether a queue under load marks packets of
ECT(1) with CE (L4S). Its JSON is for ` + "`unbloat plan --marks FILE` and `unbloat doctor --marks FILE`" + `.`,
		Example: "  unbloat path 9.9.9.9\n  unbloat path test.example.net --load test.example.net --direction up --report\n  unbloat path test.example.net --load test.example.net --marks",
		Args:    cli.ExactArgs(1, "one HOST"),
	}
	o.keepFlags.register(cmd)
	f := cmd.Flags()
	o.server.register(f, "load", "then load the line against this server: `SERVER` as for \"unbloat test --server\"")
	f.StringVar(&o.direction, "direction", path.DirBoth, "which way to load it: up, down or both")
	f.IntVar(&o.flows, "flows", phases.DefaultFlows, "TCP flows of the load in each direction")
	f.StringVar(&o.cc, "cc", "", "congestion control of the load's senders (default: each system's own)")
	secondsFlag(f, &o.idle, "idle", path.DefaultIdle, "how long the idle phase lasts")
	secondsFlag(f, &o.loaded, "seconds", path.DefaultLoaded, "how long the loaded phase lasts")
	cli.DurationFlag(f, &o.interval, "interval", path.DefaultInterval, "between probes to the same hop; many routers answer one a second")
	f.IntVar(&o.maxHops, "max-hops", path.DefaultMaxHops, "how far to look")
	f.IntVar(&o.homeHops, "home-hops", -1, "how many hops belong to the home; 0 on the router itself, -1 to guess")
	f.IntVar(&o.size, "bytes", int(path.DefaultSize), "size of a probe's packet, IP header included")
	f.StringVar(&o.way, "way", string(netio.HopAuto), "how to probe: auto, icmp, raw or udp")
	f.BoolVar(&o.marks, "marks", false, "also find out which marks (DSCP, ECN) arrive, and which hop changes them (needs root, to read whole ICMP messages)")
	f.BoolVar(&o.names, "names", false, "look up the hops' names")
	f.BoolVarP(&o.ip4, "ipv4", "4", false, "use IPv4")
	f.BoolVarP(&o.ip6, "ipv6", "6", false, "use IPv6")
	f.BoolVar(&o.report, "report", false, "print the table once, at the end, as mtr -r does")
	f.BoolVar(&o.json, "json", false, "print the result as JSON")
	f.BoolVar(&o.quiet, "quiet", false, "show no progress")
	plainFlag(f, &o.plain)
	cmd.RunE = func(c *cobra.Command, args []string) error { return runPath(c, args[0], o) }
	return cmd
}

// check refuses flags with which no trace is possible.
func (o *pathFlags) check(ctx context.Context) error {
	switch {
	case o.direction != path.DirUp && o.direction != path.DirDown && o.direction != path.DirBoth:
		return cli.UsageError("path: --direction %q: must be up, down or both", o.direction)
	case o.flows < 1 || o.flows > maxFlows:
		return cli.UsageError("path: --flows %d: must be 1 to %d", o.flows, maxFlows)
	case o.idle < minLoad || o.idle > maxLoad:
		return cli.UsageError("path: --idle %v: must be %v to %v", o.idle, minLoad, maxLoad)
	case o.loaded < minLoad || o.loaded > maxLoad:
		return cli.UsageError("path: --seconds %v: must be %v to %v", o.loaded, minLoad, maxLoad)
	case o.interval < path.MinInterval || o.interval > time.Minute:
		return cli.UsageError("path: --interval %v: must be %v to 1m; routers answer no faster", o.interval, path.MinInterval)
	case o.idle < path.MinAnswers*o.interval:
		return cli.UsageError("path: --idle %v: every hop is probed each %v, and it takes %d answers to judge one; give --idle %v or more", o.idle, o.interval, path.MinAnswers, path.MinAnswers*o.interval)
	case o.server.server != "" && o.loaded < path.MinAnswers*o.interval:
		return cli.UsageError("path: --seconds %v: every hop is probed each %v, and it takes %d answers to judge one; give --seconds %v or more", o.loaded, o.interval, path.MinAnswers, path.MinAnswers*o.interval)
	case o.maxHops < 1 || o.maxHops > path.MaxMaxHops:
		return cli.UsageError("path: --max-hops %d: must be 1 to %d", o.maxHops, path.MaxMaxHops)
	case o.homeHops < -1 || o.homeHops > path.MaxMaxHops:
		return cli.UsageError("path: --home-hops %d: must be 0 to %d", o.homeHops, path.MaxMaxHops)
	case o.size < int(path.MinSize) || o.size > int(path.MaxSize):
		return cli.UsageError("path: --bytes %d: must be %d to %d", o.size, path.MinSize, path.MaxSize)
	case o.ip4 && o.ip6:
		return cli.UsageError("path: -4 and -6 exclude each other")
	}
	switch netio.HopWay(o.way) {
	case netio.HopAuto, netio.HopICMP, netio.HopRaw, netio.HopUDP:
	default:
		return cli.UsageError("path: --way %q: must be auto, icmp, raw or udp", o.way)
	}
	if o.marks && o.way != string(netio.HopAuto) && o.way != string(netio.HopRaw) {
		return cli.UsageError("path: --marks with --way %s: only whole ICMP messages show with which mark a probe came; leave --way out", o.way)
	}
	if o.server.server == "" {
		return nil
	}
	return o.server.check(ctx, "path")
}

// network returns the requested address family, as package net calls it.
func (o *pathFlags) network() string {
	switch {
	case o.ip4:
		return "ip4"
	case o.ip6:
		return "ip6"
	}
	return "ip"
}

func runPath(c *cobra.Command, host string, o pathFlags) error {
	if err := o.check(c.Context()); err != nil {
		return err
	}
	show := viewPath(c, host, o.quiet, o.plain || o.report)
	r, err := o.trace(c, host, show)
	show.close()
	if err != nil {
		return pathError(host, err)
	}
	if o.json {
		err = cli.PrintJSON(c.OutOrStdout(), r)
	} else {
		err = path.Write(c.OutOrStdout(), r, cli.TerminalWidth(c.OutOrStdout()))
	}
	if err != nil {
		return fmt.Errorf("path: print the result: %w", err)
	}
	o.keep(c, r, conditions{stateDir: defaultStateDir})
	if !r.Valid {
		return cli.Exit(cli.Invalid, fmt.Errorf("path to %s: the measurement is not valid: %s", host, strings.Join(r.InvalidReasons, "; ")))
	}
	return nil
}

// trace resolves the host, opens the load's session and walks the path.
func (o *pathFlags) trace(c *cobra.Command, host string, show *pathView) (*path.Result, error) {
	ctx := c.Context()
	to, err := path.Resolve(ctx, o.network(), host)
	if err != nil {
		return nil, err
	}
	if o.homeHops < 0 && onRouter(to) {
		o.homeHops = 0
	}
	cfg := path.WalkConfig{
		Host: host, To: to, Way: netio.HopWay(o.way), Path: path.Config{Interval: o.interval, MaxHops: o.maxHops},
		Size: unit.Size(o.size), Idle: o.idle, Loaded: o.loaded, Names: o.names, HomeHops: o.homeHops, Progress: show.observe, Marks: o.marks,
	}
	if o.marks {
		cfg.Way = netio.HopRaw
	}
	if o.server.server == "" {
		return path.Walk(ctx, cfg)
	}
	err = o.server.each(use{c: c, command: "path", often: true, quiet: o.quiet}, func(s chosenServer) error {
		client, err := protocolsOf(ctx).Dial(ctx, s.server, s.options(o.server.options("unbloat path", phases.ProbeSpec{})))
		if err == nil {
			cfg.Load = &path.WalkLoad{Client: client, Direction: o.direction, Flows: o.flows, CC: o.cc}
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	defer cfg.Load.Client.Close()
	return path.Walk(ctx, cfg)
}

// A link is an interface of this machine, with its addresses.
type link struct {
	name  string
	addrs []netip.Addr
}

// onRouter reports whether this machine is the router of a home whose line leads to an
// address: then there is no hop of the home before the line.
func onRouter(to netip.Addr) bool {
	forwards := false
	if text, err := os.ReadFile("/proc/sys/net/ipv4/ip_forward"); err == nil {
		forwards = strings.TrimSpace(string(text)) == "1"
	} else if text, err := exec.Command("sysctl", "-n", "net.inet.ip.forwarding").Output(); err == nil {
		forwards = strings.TrimSpace(string(text)) == "1"
	}
	c, err := net.Dial("udp", netip.AddrPortFrom(to, 33434).String()) // sends nothing
	if err != nil {
		return false
	}
	defer c.Close()
	var links []link
	interfaces, _ := net.Interfaces() // none: it is no router
	for _, i := range interfaces {
		l := link{name: i.Name}
		addrs, _ := i.Addrs()
		for _, a := range addrs {
			if p, err := netip.ParsePrefix(a.String()); err == nil {
				l.addrs = append(l.addrs, p.Addr())
			}
		}
		if i.Flags&net.FlagUp != 0 && i.Flags&net.FlagLoopback == 0 {
			links = append(links, l)
		}
	}
	return routes(c.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap(), forwards, links)
}

// aRouter is the key in a context of what a test says that this machine is.
type aRouter struct{}

// isRouter reports whether this machine is the router of a home.
func isRouter(ctx context.Context) bool {
	if is, ok := ctx.Value(aRouter{}).(bool); ok {
		return is
	}
	return slices.ContainsFunc([]string{"192.0.2.1", "2001:db8::1"}, func(beyond string) bool { return onRouter(netip.MustParseAddr(beyond)) })
}

// routes reports whether a machine that sends from an address forwards for a home behind
// another of its interfaces. Networks of containers and virtual machines are no homes.
func routes(from netip.Addr, forwards bool, links []link) bool {
	return forwards && slices.ContainsFunc(links, func(l link) bool {
		return !ofContainers.MatchString(l.name) && !slices.Contains(l.addrs, from) && slices.ContainsFunc(l.addrs, netip.Addr.IsPrivate)
	})
}

// ofContainers are the names of interfaces towards containers, virtual machines and tunnels.
var ofContainers = regexp.MustCompile(`^(docker|podman|cni|flannel|virbr|vnet|vboxnet|vmnet|lxc|lxd|incus|veth[0-9a-f]{6}|br-[0-9a-f]{12}|wg|tun|tap|tailscale|zt|utun)`)

// pathError gives an error of a trace its exit code.
func pathError(host string, err error) error {
	if known := (*cli.Error)(nil); errors.As(err, &known) {
		return err
	}
	var address *phases.AddressError
	code := cli.Failed
	switch {
	case errors.As(err, &address):
		code = cli.Usage
	case errors.Is(err, path.ErrUnknownHost):
		code = cli.Precondition
		if _, e := netip.ParseAddr(host); e == nil { // an address of the other family
			code = cli.Usage
		}
	case errors.Is(err, phases.ErrUnreachable):
		code, err = cli.Precondition, fmt.Errorf("%w; is `unbloat serve` running there, and its port open for TCP?", err)
	case errors.Is(err, netio.ErrNoRoute):
		code, err = cli.Precondition, fmt.Errorf("%w; is this machine connected, with an address of that kind (-4, -6)?", err)
	case errors.Is(err, netio.ErrNotAllowed), errors.Is(err, netio.ErrNotSupported), errors.Is(err, phases.ErrRefused):
		code = cli.Precondition
	}
	return cli.Exit(code, fmt.Errorf("path: %w", err))
}
