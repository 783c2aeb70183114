//go:build !router

package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"rsc.io/qr"

	"unbloat/guard"
	"unbloat/internal/serve"
	"unbloat/internal/show/cli"
	"unbloat/internal/show/store"
	"unbloat/unit"
)

// serveFlags are the flags of `unbloat serve`.
type serveFlags struct {
	options        serve.Options
	cert, certKey  string
	stateDir       string
	quiet          bool
	store          string // the page's results
	keep           int
	keepGiven      bool
	keepFor        daysValue
	drain          time.Duration
	servers        string
	logClients     bool
	pageSessions   int
	bytes, perHour sizeValue
	netperfData    string
	keyFile        string
}

func newServeCommand() *cobra.Command {
	var o serveFlags
	cmd := &cobra.Command{
		Use:     "serve",
		GroupID: "main",
		Short:   "Run the test server, for unbloat and for other programs",
		Long: `Run the test server that ` + "`unbloat test --server`" + ` measures against, and that
other programs know: irtt, iperf3 (TCP), netperf (TCP_STREAM, TCP_MAERTS, TCP_RR
and UDP_RR, which is what flent runs), and on one port for HTTP and HTTPS ndt7,
LibreSpeed's, Cloudflare's and networkQuality's clients.

Open the ports in the firewall; the page's is TCP and, where browsers know
WebTransport, UDP. netperf's tests move their data on further ports
(--netperf-data), TCP and UDP. HTTPS uses --cert and --cert-key, or a
self-signed certificate, which is made at the first start; its fingerprint is
logged, for clients to pin. Datagrams without a session's token are not answered,
and no answer is longer than its request.

With --key clients need the key: unbloat's and irtt's prove that they know it
(irtt --hmac=KEY), HTTP's send it ("Authorization: Bearer KEY", or
access_token=KEY in the query, as ndt7's do), and the page asks for it. iperf3's
and netperf's clients cannot send a key, so these two are not served then.

Each address (of IPv6: each /64) has limits. The defaults are enough for a
household or an office: twenty tests an hour at 1 Gbit/s (100 GB), four clients
that measure all the time (4 h of sessions an hour), two tests at once with 256
flows in each direction (1100 connections). Raise --max-bytes-per-address for
faster lines; lower it if you pay for traffic. A new connection has 30 s for its
first request, because the line that is measured may queue for seconds. Refusals
are counted by reason in /metrics (--metrics), and logged by number once a
minute. Clients' addresses are neither stored nor logged (--log-clients).

With --store postgres://… several servers behind one name share the page's
results and the limits of addresses. While the database is away results wait in
--state-dir. After SIGTERM the server takes no new sessions, and lets running
ones continue for --drain; sockets of systemd stay open meanwhile.
docs/running-a-server.md describes how to run one server, or five.`,
		Example: "  unbloat serve\n  unbloat serve --key SECRET --metrics 127.0.0.1:7677\n  unbloat serve --web :443 --cert fullchain.pem --cert-key privkey.pem --irtt \"\"",
		Args:    cli.ExactArgs(0, "no arguments"),
	}
	o.register(cmd.Flags())
	cmd.RunE = func(c *cobra.Command, _ []string) error {
		if err := o.check(c.Flags()); err != nil {
			return err
		}
		o.defaults(c.Flags())
		o.keepGiven = c.Flags().Changed("keep-results")
		return runServe(c, &o)
	}
	return cmd
}

func (o *serveFlags) register(f *pflag.FlagSet) {
	d := serve.DefaultLimits()
	p := &o.options
	f.StringVar(&p.Listen, "listen", ":7676", "`ADDRESS` for unbloat's own protocol, TCP and UDP")
	f.StringVar(&p.Irtt, "irtt", ":2112", "`ADDRESS` for irtt, UDP; \"\": none")
	f.StringVar(&p.Iperf3, "iperf3", ":5201", "`ADDRESS` for iperf3, TCP; \"\": none")
	f.StringVar(&p.Netperf, "netperf", ":12865", "`ADDRESS` for netperf, as flent runs it, TCP; \"\": none")
	f.StringVar(&o.netperfData, "netperf-data", "12866-13121", "`PORTS` for the data of netperf's tests, TCP and UDP, one a test; \"\": any")
	f.StringVar(&p.Web, "web", ":7680", "`ADDRESS` for HTTP and HTTPS: ndt7, LibreSpeed, Cloudflare, networkQuality; \"\": none")
	f.StringVar(&p.Metrics, "metrics", "", "`ADDRESS` for /metrics, such as 127.0.0.1:7677")
	f.StringVar(&o.cert, "cert", "", "PEM `FILE` with the certificate of HTTPS")
	f.StringVar(&o.certKey, "cert-key", "", "PEM `FILE` with its key")
	f.StringVar(&o.stateDir, "state-dir", "", "`DIR` where the self-signed certificate and the page's results are kept (default: $XDG_STATE_HOME/unbloat)")
	f.StringVar(&o.store, "store", "", "`FILE` in which the page's results are kept, or postgres://… that servers share (default: page.db in --state-dir)")
	f.StringVar(&o.store, "results", "", "the former name of --store")
	_ = f.MarkHidden("results") // only for old scripts
	f.IntVar(&o.keep, "keep-results", 1000, "how many of the page's results are kept, the newest; 0: in memory only; in a database: any number")
	f.Var(&o.keepFor, "keep", "for how long the page's results are kept, such as 90d (default: for ever)")
	cli.DurationFlag(f, &o.drain, "drain", 90*time.Second, "how long sessions may go on after SIGTERM, while no new ones are taken")
	f.StringVar(&o.servers, "servers", "", "signed `FILE` of `unbloat servers sign`, served at /servers.json")
	f.BoolVar(&o.logClients, "log-clients", false, "log clients' addresses, and each refusal")
	f.IntVar(&o.pageSessions, "max-page-sessions", serve.DefaultPageLimits().Sessions, "tests of the page at once")
	f.StringVar(&p.Key, "key", "", "`KEY` that clients must know (others on this machine see it; better --key-file or UNBLOAT_KEY)")
	f.StringVar(&o.keyFile, "key-file", "", "`FILE` whose first line is the key")
	f.IntVar(&p.Limits.Sessions, "max-sessions", d.Sessions, "sessions at once")
	f.IntVar(&p.Limits.PerAddress, "max-sessions-per-address", d.PerAddress, "sessions of one address at once")
	f.IntVar(&p.Limits.Conns, "max-connections", d.Conns, "TCP connections at once")
	f.IntVar(&p.Limits.AddressConns, "max-connections-per-address", d.AddressConns, "TCP connections of one address at once")
	f.IntVar(&p.Limits.Flows, "max-flows", d.Flows, "data connections of one session, both ways together")
	f.IntVar(&p.Limits.Streams, "max-streams", d.Streams, "streams of datagrams of one session")
	cli.DurationFlag(f, &p.Limits.Handshake, "max-handshake", d.Handshake, "how long a new connection may take for its first request")
	cli.DurationFlag(f, &p.Limits.Idle, "max-idle", d.Idle, "after what time an inactive session is closed")
	cli.DurationFlag(f, &p.Limits.Session, "max-session", d.Session, "how long one session may last")
	cli.DurationFlag(f, &p.Limits.Load, "max-load", d.Load, "how long one load may last")
	cli.DurationFlag(f, &p.Limits.AddressTime, "max-time-per-address", d.AddressTime, "how long the sessions of one address may last within an hour, in total")
	f.Var(&o.bytes, "max-bytes", "what one session may move, such as 50GB (default: no limit)")
	f.Var(&o.perHour, "max-bytes-per-address", fmt.Sprintf("what one address may move within an hour (default %s; no limit for this machine itself)", d.AddressBytes))
	f.BoolVar(&o.quiet, "quiet", false, "log warnings only")
}

// check refuses values with which no server can run: a limit that admits
// nobody, an invalid address, half a certificate.
func (o *serveFlags) check(f *pflag.FlagSet) error {
	key, err := serverKey(o.options.Key, f.Changed("key"), o.keyFile, os.LookupEnv)
	if err != nil {
		return err
	}
	o.options.Key = key
	f.Visit(func(flag *pflag.Flag) {
		v := flag.Value.String()
		switch {
		case err != nil:
		case strings.HasPrefix(flag.Name, "max-"):
			if v == "" || v == "0" || v == "0s" || strings.HasPrefix(v, "-") {
				err = cli.UsageError("serve: --%s: must be more than 0", flag.Name)
			}
		case flag.Name == "drain" && o.drain < 0:
			err = cli.UsageError("serve: --drain %v: must be 0 or more", o.drain)
		case flag.Name == "keep-results" && o.keep < 0:
			err = cli.UsageError("serve: --keep-results %d: must be 0 or more", o.keep)
		}
	})
	for _, a := range []struct{ name, address string }{{"listen", o.options.Listen}, {"irtt", o.options.Irtt}, {"iperf3", o.options.Iperf3}, {"netperf", o.options.Netperf}, {"web", o.options.Web}, {"metrics", o.options.Metrics}} {
		if err != nil || a.address == "" && a.name != "listen" {
			continue
		}
		_, port, e := net.SplitHostPort(a.address)
		if _, notNumber := strconv.ParseUint(port, 10, 16); e != nil || notNumber != nil {
			err = cli.UsageError("serve: --%s %q: is not an address to listen on; write it like :7676, 127.0.0.1:7676 or [::1]:7676", a.name, a.address)
		}
	}
	if err == nil {
		if o.options.NetperfData, err = serve.ParsePortRange(o.netperfData); err != nil {
			err = cli.UsageError("serve: --netperf-data: %v", err)
		}
	}
	if err == nil && (o.cert == "") != (o.certKey == "") {
		err = cli.UsageError("serve: --cert and --cert-key go together: one is the certificate, the other its private key")
	}
	return err
}

// defaults sets the addresses of the other protocols to that of --listen. If a
// port is in use, the protocol is left out, unless its address was given.
func (o *serveFlags) defaults(f *pflag.FlagSet) {
	host, _, err := net.SplitHostPort(o.options.Listen)
	if err != nil {
		return // listening returns the error
	}
	o.options.Lenient = true
	for name, address := range map[string]*string{"irtt": &o.options.Irtt, "iperf3": &o.options.Iperf3, "netperf": &o.options.Netperf, "web": &o.options.Web} {
		if f.Changed(name) {
			o.options.Lenient = false
		} else {
			*address = host + *address
		}
	}
	if o.options.Key != "" && !f.Changed("iperf3") {
		o.options.Iperf3 = "" // its clients cannot send the key
	}
	if o.options.Key != "" && !f.Changed("netperf") {
		o.options.Netperf = "" // nor can these
	}
}

func runServe(c *cobra.Command, o *serveFlags) error {
	level := slog.LevelInfo
	if o.quiet {
		level = slog.LevelWarn
	}
	var attrs func([]string, slog.Attr) slog.Attr
	if o.logClients {
		level = min(level, slog.LevelDebug)
	} else {
		attrs = withoutClients
	}
	log := slog.New(slog.NewTextHandler(c.ErrOrStderr(), &slog.HandlerOptions{Level: level, ReplaceAttr: attrs}))
	p := o.options
	p.Log, p.Limits.Bytes, p.Limits.AddressBytes = log, unit.Size(o.bytes), unit.Size(o.perHour)
	p.Drain = o.drain
	hurry, unwatch := hurried()
	defer unwatch()
	p.Hurry = hurry
	var err error
	if p.Sockets, err = serve.InheritSockets(os.Getenv); err != nil {
		return cli.Exit(cli.Precondition, fmt.Errorf("serve: %w", err))
	}
	if o.servers != "" {
		if p.Servers, err = newServerList(o.servers, log); err != nil {
			return cli.Exit(cli.Precondition, fmt.Errorf("serve: %w", err))
		}
	}
	if store.IsDatabase(o.store) {
		budgets, err := store.OpenBudgets(o.store, serve.BudgetWindow, time.Now)
		if err != nil {
			return cli.Exit(cli.Precondition, fmt.Errorf("serve: %w", err))
		}
		defer budgets.Close()
		p.Budgets = budgets
	}
	if p.Web != "" {
		cert, err := o.certificate()
		if err != nil && o.options.Lenient && o.cert == "" {
			log.Warn("HTTPS is not served", "reason", err)
		} else if err != nil {
			return cli.Exit(cli.Precondition, fmt.Errorf("serve: %w", err))
		}
		if p.Cert = cert; cert != nil {
			log.Info("certificate", "sha256", guard.Fingerprint(cert))
		}
	}
	var people *serve.Page
	account := &pageAccount{}
	if p.Web != "" {
		results, closeResults, err := o.openResults(c.Context(), log)
		if err != nil {
			return cli.Exit(cli.Precondition, fmt.Errorf("serve: %w", err))
		}
		defer closeResults()
		options := serve.PageOptions{Log: log, Account: account, Limits: serve.PageLimits{Sessions: o.pageSessions}}
		if results != nil {
			options.Store, p.Waiting = results, results.Waiting
		}
		people = serve.NewPage(options)
		defer people.Close()
		p.Page, p.Stopping = people, people.Close // the server waits for the page's sessions
	}
	s, err := serve.Listen(p)
	if err != nil {
		return cli.Exit(cli.Precondition, err)
	}
	account.Server = s // no request comes before Serve
	if people != nil && s.Web().IsValid() {
		if err := listenDatagrams(people, s.Web(), p.Sockets); err != nil {
			log.Warn("the page's probes travel over TCP only", "reason", err)
		}
	}
	for _, unused := range p.Sockets.Unused() {
		log.Warn("nothing listens on a socket of the service manager", "socket", unused)
	}
	log.Info("serving", "address", s.Addr(), "irtt", s.Irtt(), "iperf3", s.Iperf3(), "netperf", s.Netperf(), "web", s.Web(), "metrics", s.Metrics())
	if !o.quiet && cli.IsTerminal(c.ErrOrStderr()) {
		printHowTo(c.ErrOrStderr(), s.Addr(), s.Web(), ownAddresses(), p.Key != "")
	}
	err = s.Serve(c.Context())
	log.Info("stopped")
	return err
}

// listenDatagrams listens for the page's probes as datagrams.
func listenDatagrams(people *serve.Page, at netip.AddrPort, sockets *serve.Sockets) error {
	c, err := sockets.Datagrams(net.UDPAddrFromAddrPort(at))
	if err == nil {
		_, err = people.ServeDatagrams(c)
	}
	return err
}

// withoutClients removes clients' addresses from the log.
func withoutClients(_ []string, a slog.Attr) slog.Attr {
	if a.Key == "from" || a.Key == "to" {
		return slog.Attr{}
	}
	return a
}

// hurried returns a channel that is closed when the server must end at once: by
// Ctrl-C, or by any second signal.
func hurried() (hurry <-chan struct{}, stop func()) {
	signals, done, closed := make(chan os.Signal, 2), make(chan struct{}), make(chan struct{})
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		for n := 0; n < 2; n++ {
			select {
			case s := <-signals:
				if s == os.Interrupt {
					n++
				}
			case <-done:
				return
			}
		}
		close(closed)
	}()
	return closed, func() { signal.Stop(signals); close(done) }
}

// pageAccount is the server, which is created after the page.
type pageAccount struct{ *serve.Server }

// openResults opens the store of the page's results; nil keeps them in memory.
func (o *serveFlags) openResults(ctx context.Context, log *slog.Logger) (serve.Kept, func(), error) {
	none := func() {}
	file, database := o.store, store.IsDatabase(o.store)
	keeping := serve.Keeping{Most: o.keep, For: time.Duration(o.keepFor), Tool: version, Log: log}
	switch {
	case database:
		dir, err := o.dir()
		if err != nil {
			return nil, none, err
		}
		keeping.Spool = filepath.Join(dir, "waiting")
		if !o.keepGiven {
			keeping.Most = 0
		}
	case o.keep <= 0:
		return nil, none, nil
	}
	if file == "" {
		dir, err := o.dir()
		if err != nil {
			log.Warn("results of the page are kept in memory only", "reason", err)
			return nil, none, nil
		}
		file = filepath.Join(dir, "page.db")
	}
	keeping.Place = file
	kept, err := serve.OpenKept(ctx, keeping)
	switch {
	case err != nil && o.store != "":
		return nil, none, err
	case err != nil:
		log.Warn("results of the page are kept in memory only", "reason", err)
		return nil, none, nil
	}
	return kept, func() {
		if err := kept.Close(); err != nil {
			log.Warn("close the page's results", "reason", err)
		}
	}, nil
}

// certificate returns the user's certificate, or a self-signed one.
func (o *serveFlags) certificate() (*tls.Certificate, error) {
	if o.cert != "" || o.certKey != "" {
		cert, err := tls.LoadX509KeyPair(o.cert, o.certKey)
		if err != nil {
			return nil, fmt.Errorf("read the certificate %s and its key %s: %w; both must be PEM files", o.cert, o.certKey, err)
		}
		return &cert, nil
	}
	dir, err := o.dir()
	if err != nil {
		return nil, err
	}
	return serve.OwnCertificate(dir, time.Now())
}

// dir returns the directory for what the server keeps across restarts.
func (o *serveFlags) dir() (string, error) {
	if o.stateDir != "" {
		return o.stateDir, nil
	}
	base, err := stateHome()
	if err != nil {
		return "", fmt.Errorf("find where the server keeps its state: %w; --state-dir names it", err)
	}
	return filepath.Join(base, "unbloat"), nil
}

// sizeValue is a flag for a size such as 50GB.
type sizeValue unit.Size

func (v *sizeValue) Set(s string) error { return (*unit.Size)(v).UnmarshalText([]byte(s)) }
func (v *sizeValue) Type() string       { return "SIZE" }
func (v *sizeValue) String() string {
	if *v == 0 {
		return ""
	}
	return unit.Size(*v).String()
}

// daysValue is a flag for a duration such as 90d, 12w or 36h.
type daysValue time.Duration

func (v *daysValue) Set(s string) error {
	day := 24 * time.Hour
	for suffix, one := range map[string]time.Duration{"d": day, "w": 7 * day} {
		if n, is := strings.CutSuffix(s, suffix); is {
			k, err := strconv.ParseUint(n, 10, 16)
			if err != nil || k == 0 {
				return fmt.Errorf("%q: give it as 90d, 12w or 36h", s)
			}
			*v = daysValue(time.Duration(k) * one)
			return nil
		}
	}
	d, err := unit.ParseDuration(s)
	if err != nil || d <= 0 {
		return fmt.Errorf("%q: give it as 90d, 12w or 36h", s)
	}
	*v = daysValue(d)
	return nil
}
func (v *daysValue) Type() string { return "TIME" }
func (v *daysValue) String() string {
	if *v == 0 {
		return ""
	}
	return fmt.Sprintf("%gd", time.Duration(*v).Hours()/24)
}

// serverKey returns the key that clients must have: from --key, --key-file, or
// UNBLOAT_KEY. An empty one is an error, since it would admit anybody.
func serverKey(key string, given bool, file string, getenv func(string) (string, bool)) (string, error) {
	switch {
	case given && file != "":
		return "", cli.UsageError("serve: give --key or --key-file, not both")
	case given && key == "":
		return "", cli.UsageError("serve: --key is empty, and would let anybody in; leave it out if that is meant")
	case given:
		return key, nil
	case file != "":
		key, err := readKey(file)
		if err != nil {
			return "", cli.UsageError("serve: --key-file: %w", err)
		}
		return key, nil
	}
	if env, set := getenv("UNBLOAT_KEY"); set {
		if env == "" {
			return "", cli.UsageError("serve: UNBLOAT_KEY is empty, and would let anybody in; unset it if that is meant")
		}
		return env, nil
	}
	return "", nil
}

// printHowTo prints how to use the server from another machine, with a QR code
// of the page's address for a phone.
func printHowTo(w io.Writer, own, web netip.AddrPort, addresses []netip.Addr, key bool) {
	host := own.Addr()
	if host.IsUnspecified() {
		host = netip.Addr{}
		for _, a := range addresses {
			if !a.IsLoopback() && !a.IsLinkLocalUnicast() && (!host.IsValid() || a.Is4() && !host.Is4()) {
				host = a
			}
		}
		if !host.IsValid() {
			host = netip.AddrFrom4([4]byte{127, 0, 0, 1})
		}
	}
	server := host.String()
	if own.Port() != 7676 {
		server = net.JoinHostPort(host.String(), strconv.Itoa(int(own.Port())))
	}
	more := ""
	if key {
		more = " --key-file FILE"
	}
	fmt.Fprintf(w, "\nMeasure against this server from the other end of the line:\n  unbloat test --server %s%s\n", server, more)
	if !web.IsValid() {
		return
	}
	page := "http://" + net.JoinHostPort(host.String(), strconv.Itoa(int(web.Port()))) + "/"
	fmt.Fprintf(w, "or open %s in a browser.\n\n", page)
	if code, err := qr.Encode(page, qr.L); err == nil {
		fmt.Fprintln(cli.Raw(w), halfBlocks(code))
	}
	fmt.Fprintln(w, "Ctrl-C ends it.")
}

// halfBlocks draws a code, dark on light in any terminal, with two rows of
// modules in a row of characters.
func halfBlocks(code *qr.Code) string {
	const quiet = 2 // modules of margin
	var b strings.Builder
	light := func(x, y int) bool { return !code.Black(x, y) }
	for y := -quiet; y < code.Size+quiet; y += 2 {
		b.WriteString("  \x1b[30;107m")
		for x := -quiet; x < code.Size+quiet; x++ {
			switch up, low := light(x, y), light(x, y+1); {
			case up && low:
				b.WriteByte(' ')
			case up:
				b.WriteString("▄")
			case low:
				b.WriteString("▀")
			default:
				b.WriteString("█")
			}
		}
		b.WriteString("\x1b[0m\n")
	}
	return b.String()
}

// ownAddresses returns the addresses of this machine's interfaces.
func ownAddresses() []netip.Addr {
	var out []netip.Addr
	found, err := net.InterfaceAddrs()
	if err != nil {
		return nil
	}
	for _, a := range found {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			out = append(out, p.Addr().Unmap())
		}
	}
	return out
}
