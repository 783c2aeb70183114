package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"unbloat/internal/cure/plan"
	"unbloat/lab/scenario"
)

// A Router is a router's own disk image, which takes the place of the lab's
// router in the home: between its switch and its modem. It runs under QEMU, in
// real time. The lab reaches it as a user does, from home1 over the LAN, by SSH
// or by the API of its platform. It is booted once; each case ends with `unbloat
// revert`.
type Router struct {
	Image      string        `json:"image"`        // the disk image; it is not written to
	Address    netip.Addr    `json:"address"`      // on its LAN, IPv4; the home is in the same /24
	User       string        `json:"user"`         // of SSH; "": root
	Identity   string        `json:"identity"`     // private key file for SSH, absolute
	Scheme     string        `json:"scheme"`       // of addresses of its API, as in opnsense+https; "": it is reached by SSH
	APIKeyFile string        `json:"api_key_file"` // of its API, absolute
	Platform   string        `json:"platform"`     // "": the router is asked
	WAN        string        `json:"wan"`          // what the router calls its second network card; "": that of its default route
	LAN        string        `json:"lan"`          // its first; "": not said
	Boot       time.Duration `json:"boot"`         // how long it may take until it answers; 0: DefaultBoot
}

// DefaultRouterAddress is the address at which most routers leave the factory.
const DefaultRouterAddress = "192.168.1.1"

// DefaultBoot is how long a router may take to boot. OPNsense takes minutes
// where no hypervisor helps.
const DefaultBoot = 15 * time.Minute

// RouterResult is what a run found out about a router's image.
type RouterResult struct {
	Image       string  `json:"image"`
	Accelerator string  `json:"accelerator"` // kvm or tcg
	BootSeconds float64 `json:"boot_seconds"`
}

// RouterCase is what a router said of itself in a case, each an object as
// `unbloat status --json` prints it.
type RouterCase struct {
	Measured json.RawMessage `json:"measured"` // right before the case was measured
	Reverted json.RawMessage `json:"reverted"` // after it was undone
	// Left is what differs, after it was undone, from what the router's own
	// commands printed before the case; empty: nothing. Asked of those that speak
	// tc, others' is empty.
	Left []string `json:"left"`
}

// rest says that the router is reached by its API.
func (r *Router) rest() bool { return r.Scheme != "" }

// user is the account on the router.
func (r *Router) user() string {
	if r.User == "" {
		return "root"
	}
	return r.User
}

// way are the flags that lead `unbloat` to the router, given who it showed itself to be.
func (r *Router) way(id routerID) []string {
	var args []string
	if r.rest() {
		args = append(args, "--router", r.Scheme+"://"+r.Address.String(), "--api-key-file", r.APIKeyFile, "--fingerprint", id.Fingerprint)
	} else {
		args = append(args, "--router", "ssh://"+r.user()+"@"+r.Address.String(), "--identity", r.Identity, "--known-hosts", id.KnownHosts)
	}
	return args
}

// platform is the flag that says what the router is, where somebody said it.
func (r *Router) platform() []string {
	if r.Platform == "" {
		return nil
	}
	return []string{"--for", r.Platform}
}

// interfaces are the flags that name the router's interfaces, where they are known.
func (r *Router) interfaces() []string {
	var args []string
	if r.WAN != "" {
		args = append(args, "--wan", r.WAN)
	}
	if r.LAN != "" {
		args = append(args, "--lan", r.LAN)
	}
	return args
}

// fixArguments are those of `unbloat plan` for what somebody chose by hand.
func fixArguments(l scenario.Line, f *scenario.Fix) ([]string, error) {
	if f.Tins != "" {
		return nil, &UnsupportedCaseError{"tins", "`unbloat plan` has no flag for them"}
	}
	if f.Framing != "" {
		return nil, &UnsupportedCaseError{"framing", "`unbloat plan` takes it from a measurement alone"}
	}
	var args []string
	add := func(set bool, name, value string) {
		if set {
			args = append(args, name, value)
		}
	}
	add(l.RTT > 0, "--rtt", l.RTT.String())
	add(f.AQM != "", "--aqm", f.AQM)
	add(f.Down > 0, "--shape-down", f.Down.String())
	add(f.Up > 0, "--shape-up", f.Up.String())
	add(f.Down == 0 && f.Up > 0, "--only", string(plan.DirectionUp))
	add(f.Up == 0 && f.Down > 0, "--only", string(plan.DirectionDown))
	add(f.Target > 0, "--target", f.Target.String())
	add(f.Interval > 0, "--interval", f.Interval.String())
	add(f.Limit > 0, "--limit", fmt.Sprint(f.Limit))
	add(f.Quantum > 0, "--quantum", fmt.Sprint(int64(f.Quantum)))
	add(f.Side != "", "--side", f.Side)
	add(f.Classes != "", "--classes", f.Classes)
	if f.Table {
		args = append(args, "--flow-table")
	}
	if f.ECN != nil {
		add(*f.ECN, "--ecn", "on")
		add(!*f.ECN, "--ecn", "off")
	}
	return args, nil
}

// UnsupportedCaseError says that a case asks for what an image's router can't be told,
// or what the lab's kernels do not run.
type UnsupportedCaseError struct{ What, Why string }

func (e *UnsupportedCaseError) Error() string {
	return fmt.Sprintf("a router's image can't be given %s: %s; leave that case out (--case)", e.What, e.Why)
}

// InputError says that what was asked for is wrong in itself.
type InputError struct {
	What string
	Err  error
}

func (e *InputError) Error() string {
	if e.Err != nil {
		return e.What + ": " + e.Err.Error()
	}
	return e.What
}

// Unwrap returns the error of the system, if there was one.
func (e *InputError) Unwrap() error { return e.Err }

// check completes a Router, and refuses before anything is started what cannot work.
func (r *Router) check(s *scenario.Scenario) error {
	if !r.Address.Is4() {
		return &InputError{fmt.Sprintf("the router's address %s is not IPv4", r.Address), nil}
	}
	if last := r.Address.As4()[3]; last == 0 || last > 99 {
		return &InputError{fmt.Sprintf("the router's address %s: its last number must be 1 to 99; the home's machines have those from 101", r.Address), nil}
	}
	if lab := netip.MustParsePrefix("10.2.0.0/15"); lab.Contains(r.Address) {
		return &InputError{fmt.Sprintf("the router's address %s is in %s, which the lab's provider has", r.Address, lab), nil}
	}
	if r.Boot == 0 {
		r.Boot = DefaultBoot
	}
	if _, err := Inspect(r.Image); err != nil {
		return err
	}
	var err error
	if r.Image, err = filepath.Abs(r.Image); err != nil {
		return err
	}
	for _, file := range []string{r.Image, r.Identity, r.APIKeyFile} {
		if file == "" {
			continue
		}
		if strings.HasPrefix(file, "/run/") || strings.HasPrefix(file, "/dev/shm/") {
			return &InputError{fmt.Sprintf("the lab can't see %s: it has folders of its own in place of /run and /dev/shm; put the file elsewhere", file), nil}
		}
		f, err := os.Open(file)
		if err != nil {
			return &InputError{"read the key for the router", err}
		}
		f.Close()
	}
	for _, c := range s.Line.Vary {
		if c.More > 0 || c.Silent {
			return &UnsupportedCaseError{"changes of the provider's network (vary with more or silent)", "the lab's own distance is not there"}
		}
	}
	if s.Line.EchoOnly {
		return &UnsupportedCaseError{"a provider that answers no ICMP timestamps (line.echo_only)", "the lab's own distance is not there"}
	}
	if s.Home.Away != nil {
		return &UnsupportedCaseError{"machines that are farther away than others (home.away)", "the distance is one for all of them"}
	}
	for _, tool := range []struct{ name, pkg, for_ string }{
		{QEMU, Package, "the program that runs the router's image"},
		{"dnsmasq", "dnsmasq-base", "the DHCP server of the lab's provider"},
	} {
		if _, err := exec.LookPath(tool.name); errors.Is(err, exec.ErrNotFound) {
			return &MissingError{tool.name + ", " + tool.for_ + ",", "install the package " + tool.pkg + " (apt-get install " + tool.pkg + ")"}
		}
	}
	return nil
}

// MACs of a router's network cards: those that the lab's router has at the same places.
func routerMACs() [2]string {
	var m [2]string
	m[LAN], m[WAN] = mac(3, 0), mac(0, 0)
	return m
}

// runRouter runs the cases of a scenario on a router's image, one after the other.
func runRouter(ctx context.Context, s *scenario.Scenario, cases []scenario.Case, o Options) (*Result, error) {
	r := *o.Router
	if err := r.check(s); err != nil {
		return nil, err
	}
	names, err := imageCases(cases, s.Line)
	if err != nil {
		return nil, err
	}
	if o.Programs, err = o.Programs.find(); err != nil {
		return nil, err
	}
	g := Guest{Engine: Realtime, Scenario: s, Cases: names, Programs: o.Programs, Seed: o.seed(), Router: &r}
	start := time.Now()
	var console io.Writer
	if o.Console != nil {
		console = o.Console
	}
	b, err := bootBeside(ctx, g, console)
	if err != nil {
		return nil, fmt.Errorf("lab run %s on %s: %w", s.Name, r.Image, err)
	}
	result := &Result{Schema: Schema, Scenario: s.Name, Engine: Realtime, Kernel: b.Kernel, Seed: o.seed(), Cases: b.Cases,
		Router: &RouterResult{Image: r.Image, Accelerator: b.Accelerator, BootSeconds: b.BootSeconds}}
	for _, c := range b.Cases {
		result.VirtualSeconds += c.VirtualSeconds
	}
	result.WallSeconds = time.Since(start).Seconds()
	return result, nil
}

// imageCases returns the names of cases, or the error of one that a router's image
// can't be given.
func imageCases(cases []scenario.Case, l scenario.Line) (names []string, err error) {
	for _, c := range cases {
		names = append(names, c.Name)
		switch c.Router.Mode {
		case scenario.ModeDaemon, scenario.ModeOracle, scenario.ModeAutorate:
			err = &UnsupportedCaseError{"rates that follow the line (" + c.Router.Mode + ")", "the lab's own router is"}
		case scenario.ModeFix:
			_, err = fixArguments(l, c.Router.Fix)
		}
		if err != nil {
			return nil, fmt.Errorf("case %s: %w", c.Name, err)
		}
	}
	return names, nil
}

// besideResult is what the process in the namespaces hands back.
type besideResult struct {
	Kernel      string       `json:"kernel"` // of this machine
	Accelerator string       `json:"accelerator"`
	BootSeconds float64      `json:"boot_seconds"`
	Cases       []CaseResult `json:"cases"`
}

// routerID is who a router showed itself to be when it first answered.
type routerID struct {
	KnownHosts  string    `json:"known_hosts,omitempty"` // a file
	Fingerprint string    `json:"fingerprint,omitempty"`
	Answered    time.Time `json:"answered"` // when it did, first
}

// Meet is a process in home1 that waits for the router, and then for the server
// beyond it. It writes a routerID as JSON.
func Meet(ctx context.Context, g Guest, dir string, out io.Writer) error {
	r := g.Router
	ctx, cancel := context.WithTimeout(ctx, r.Boot)
	defer cancel()
	var id routerID
	if r.rest() {
		sum, err := Fingerprint(ctx, r.Address.String()+":443")
		if err != nil {
			return fmt.Errorf("the router does not answer HTTPS at %s, where the home's LAN is: its LAN must be the first network card, with that address and a web server: %w", r.Address, err)
		}
		id.Fingerprint = sum
	} else {
		line, err := HostKey(ctx, r.Address.String()+":22")
		if err != nil {
			return fmt.Errorf("the router does not answer SSH at %s, where the home's LAN is: its LAN must be the first network card, with that address and an SSH server: %w", r.Address, err)
		}
		id.KnownHosts = dir + "/" + knownHosts
		if err := os.WriteFile(id.KnownHosts, []byte(line+"\n"), 0o600); err != nil {
			return err
		}
	}
	id.Answered = time.Now()
	if err := Reached(ctx, Server()); err != nil {
		return fmt.Errorf("the router answers, but does not lead to the server at %s: its WAN must be the second network card, take its address by DHCP, and forward: %w", Server(), err)
	}
	return json.NewEncoder(out).Encode(id)
}

// looks are the commands that show the state of a router with tc, before and
// after a case.
func looks() []string { return []string{"tc qdisc show", "ip -o link show", "nft -s list ruleset"} }

// Look is a process in home1 that asks the router itself how its queues and links
// are, and writes what it says.
func Look(ctx context.Context, g Guest, dir string, out io.Writer) error {
	r := g.Router
	shell := MachineShell{Address: r.Address.String() + ":22", User: r.user(), Identity: r.Identity, KnownHosts: dir + "/" + knownHosts}
	said, err := shell.Say(ctx, looks()...)
	if err != nil {
		return fmt.Errorf("ask the router: %w", err)
	}
	_, err = io.WriteString(out, said)
	return err
}

// knownHosts is the file of the router's host key.
const knownHosts = "known_hosts"

// differences are the lines that one text has and the other has not.
func differences(before, after string) []string {
	count := map[string]int{}
	for line := range strings.Lines(before) {
		count[line]++
	}
	out := []string{}
	for line := range strings.Lines(after) {
		if count[line]--; count[line] < 0 {
			out = append(out, "+"+strings.TrimSpace(line))
		}
	}
	for line := range strings.Lines(before) {
		if count[line] > 0 {
			count[line]--
			out = append(out, "-"+strings.TrimSpace(line))
		}
	}
	return out
}
