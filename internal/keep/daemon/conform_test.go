package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"unbloat/internal/cure/apply"
	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform"
	"unbloat/internal/cure/platform/all"
	"unbloat/internal/keep/config"
	"unbloat/internal/keep/follow"
	"unbloat/internal/keep/metrics"
	"unbloat/internal/keep/steer"
	"unbloat/internal/keep/supervise"
	"unbloat/testkit/await"
	"unbloat/testkit/fake"
	"unbloat/testkit/opnsensefake"
	"unbloat/testkit/pfctl"
	"unbloat/testkit/pfsensefake"
	"unbloat/unit"
)

// standIns are the platforms' stand-ins, and their WANs.
func standIns() map[string]func() (r platform.Runner, wan string) {
	return map[string]func() (platform.Runner, string){
		"linux":        func() (platform.Runner, string) { return fake.NewLinux(), "wan" },
		"openwrt":      func() (platform.Runner, string) { return fake.NewOpenWrt(), "wan" },
		"clearos":      func() (platform.Runner, string) { return fake.NewClearOS(), "wan" },
		"openbsd":      func() (platform.Runner, string) { return fake.NewOpenBSD(pfctl.Today), "em0" },
		"openbsd-altq": func() (platform.Runner, string) { return fake.NewOpenBSD(pfctl.ALTQWithMatch), "em0" },
		"freebsd":      func() (platform.Runner, string) { return fake.NewFreeBSD(), "igb0" },
		"opnsense":     func() (platform.Runner, string) { return opnsensefake.API{Router: opnsensefake.NewWithGuests()}, "wan" },
		"pfsense":      func() (platform.Runner, string) { return pfsensefake.New(), "igb0" },
	}
}

// A mood is how a router behaves.
type mood int

const (
	fine        mood = iota
	gone             // it can't be reached
	failing          // what would change it fails
	lying            // what would change it succeeds, and nothing happens
	stalling         // it does not answer until somebody loses patience
	mostOfMoods = stalling
)

// A moody router is a stand-in that goes, fails, lies and stalls.
type moody struct {
	mu   sync.Mutex
	is   mood
	at   platform.Runner
	ours func(argv []string) bool // a command that changes something
}

func (m *moody) set(is mood) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.is = is
}

var errGone = &platform.PreconditionError{Doing: "reach the router", What: "it does not answer", Remedy: "switch it on", Err: platform.ErrUnreachable}

// answers returns an error if the router can't be reached.
func (m *moody) answers() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.is == gone {
		return errGone
	}
	return nil
}

func (m *moody) Run(ctx context.Context, argv []string, stdin []byte) ([]byte, []byte, error) {
	m.mu.Lock()
	is := m.is
	m.mu.Unlock()
	switch changes := m.ours(argv); {
	case is == gone:
		return nil, nil, errGone
	case is == stalling:
		select {
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		case <-time.After(time.Minute): // an undo has no other limit
			return nil, nil, errGone
		}
	case is == failing && changes:
		return nil, []byte("no such thing"), errors.New("exit status 1")
	case is == lying && changes:
		return nil, nil, nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.at.Run(ctx, argv, stdin)
}

// A sentry is a town's watchdog: what `unbloat watchdog` runs, as a goroutine. It meets
// the router's moods, and outlives the daemon.
type sentry struct {
	x  *town
	at platform.Backend
}

func (g sentry) Arm(_ context.Context, j *apply.Journal) error {
	said := make(chan error, 1)
	e := g.x.engine(g.at)
	e.Watchdog = nil // it asks nobody else
	go func() {
		err := e.Watch(g.x.t.Context(), filepath.Join(e.Dir, j.WAN+".journal.json"), armed(said))
		select {
		case said <- cmp.Or(err, errors.New("it ended at once")):
		default: // it watched
		}
	}()
	return <-said
}

func (g sentry) Alive(_ context.Context, j *apply.Journal) bool {
	l, err := apply.TryLock(filepath.Join(g.x.journal, j.WAN+".watchdog"))
	l.Unlock()
	return errors.Is(err, apply.ErrLocked)
}

func (sentry) Renew(context.Context, *apply.Journal) error { return nil }
func (sentry) Close(context.Context, *apply.Journal) error { return nil }

// armed is told when a watchdog watches: it closes its output then.
type armed chan<- error

func (armed) Write(p []byte) (int, error) { return len(p), nil }
func (a armed) Close() error              { a <- nil; return nil }

// A town is a daemon that keeps one stand-in.
type town struct {
	t       *testing.T
	driver  *platform.Driver
	router  *moody
	backend platform.Backend // past the moods
	wan     string
	noBPF   string // why the router can't have the program of the classes
	dir     string
	journal string // directory of the daemon's journal
	begun   time.Time
	d       *Daemon
	end     context.CancelFunc
	random  *rand.Rand
	follows bool // its line is followed
	lasting bool // its daemon is not killed
	silent  bool // routers elsewhere do not answer
	follow  func(steer.Config) (Follower, error)
	setter  RateSetter
	log     io.Writer // nil: nobody reads it
}

func newPuppet(c steer.Config) (Follower, error) {
	return &puppet{line: c, rates: [2]unit.Rate{c.Params.Rates[0].Usual, c.Params.Rates[1].Usual}}, nil
}

// noNetlink is a machine without it.
type noNetlink struct{}

func (noNetlink) Set(string, unit.Rate) error { return errors.New("there is no netlink here") }
func (noNetlink) Port() uint32                { return 0 }
func (noNetlink) Close() error                { return nil }

// A puppet follows a line as the test says.
type puppet struct {
	line  steer.Config
	mu    sync.Mutex
	rates [2]unit.Rate
}

func (p *puppet) Run(ctx context.Context)    { <-ctx.Done() }
func (p *puppet) NewLine()                   {}
func (p *puppet) Metrics(string) metrics.WAN { return metrics.WAN{} }
func (p *puppet) View() steer.View {
	r := p.Rates()
	return steer.View{Down: follow.Belief{Rate: r[0]}, Up: follow.Belief{Rate: r[1]}}
}

func (p *puppet) Rates() [2]unit.Rate {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.rates
}

// set gives the line's shapers other rates.
func (p *puppet) set(ctx context.Context, rates [2]unit.Rate) error {
	err := p.line.Set(ctx, rates)
	if err == nil {
		p.mu.Lock()
		p.rates = rates
		p.mu.Unlock()
	}
	return err
}

// slow reports whether a platform's rates are changed by programs.
func slow(d *platform.Driver) bool { return d.Retune != nil && !d.Retune.Netlink }

// here is the daemon's own machine, where it runs on OPNsense.
type here struct{}

func (here) Run(_ context.Context, argv []string, _ []byte) ([]byte, []byte, error) {
	if slices.Equal(argv, []string{"cat", "/conf/config.xml"}) {
		return []byte("<opnsense><interfaces><wan><if>igb0</if></wan></interfaces></opnsense>"), nil, nil
	}
	return nil, nil, &platform.MissingToolError{Tool: argv[0]}
}

// followRandomly gives a line that is followed other rates.
func (x *town) followRandomly() string {
	l := x.only().following.line()
	if l == nil {
		return "the line is not followed now"
	}
	ctx, cancel := context.WithTimeout(x.t.Context(), actionTime)
	defer cancel()
	return fmt.Sprint("followed: ", l.Follower.(*puppet).set(ctx, [2]unit.Rate{x.rate(), x.rate()}))
}

func (x *town) config() config.Config {
	c, err := config.Parse("F", x.text())
	if err != nil {
		x.t.Fatal(err)
	}
	return c
}

// write writes the configuration, with more keys of its WAN.
func (x *town) write(more string) {
	text := fmt.Sprintf("[[wan]]\ninterface = %q\ndown = \"50 Mbit/s\"\nup = \"10 Mbit/s\"\n%s", x.wan, more)
	if err := os.WriteFile(x.file(), []byte(text), 0o644); err != nil {
		x.t.Fatal(err)
	}
}

func (x *town) file() string { return filepath.Join(x.dir, "unbloat.toml") }

func (x *town) text() []byte {
	b, err := os.ReadFile(x.file())
	if err != nil {
		x.t.Fatal(err)
	}
	return b
}

// start starts the daemon, as after a crash.
func (x *town) start() {
	d, err := newDaemon(Options{File: x.file(), Memory: filepath.Join(x.dir, "state.json"), Log: cmp.Or[io.Writer](x.log, io.Discard), Getenv: func(string) string { return "" }, Open: x.open,
		Follow: x.follow, Setter: func() (RateSetter, error) { return x.setter, nil }}, x.config())
	if err != nil {
		x.t.Fatal(err)
	}
	d.poll = pollHearing
	d.running, x.end = context.WithCancel(x.t.Context())
	x.d = d
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, w := range d.config.WANs {
		d.start(w)
	}
}

func (x *town) stop() {
	x.end()
	x.d.loops.Wait()
}

func (x *town) open(ctx context.Context, w config.WAN) (*Router, error) {
	if w.Router != "" && x.silent {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if err := x.router.answers(); err != nil {
		return nil, err
	}
	b, err := x.driver.Backend(platform.Options{Runner: x.router, API: x.driver.Scheme != ""})
	if err != nil {
		return nil, err
	}
	taking, err := x.driver.Backend(platform.Options{Runner: x.router, API: x.driver.Scheme != "", Replace: true})
	if err != nil {
		return nil, err
	}
	e := x.engine(b)
	take := *e
	take.Backend = taking
	return &Router{Driver: x.driver, Here: here{}, Engine: e, Taking: &take, Close: func() {},
		Plan: func(_ context.Context, w config.WAN) (plan.Plan, error) {
			c := assumed(x.driver, w.Interface, w.LAN)
			c.NoBPF = x.noBPF
			return plan.Make(w.PlanLine(), c, w.Preferences())
		}}, nil
}

// engine returns one that changes the router as it is in its moods, with deadlines in
// the test's time.
func (x *town) engine(b platform.Backend) *apply.Engine {
	return &apply.Engine{Backend: b, Runner: x.router, Dir: x.journal, Watchdog: sentry{x, b}, Uptime: func() time.Duration { return time.Since(x.begun) }}
}

func (x *town) only() *wan { return x.d.all()[0] }

// differs says in what the router is not as it is wanted.
func (x *town) differs() ([]string, error) {
	p := x.only().plan
	e := &apply.Engine{Backend: x.backend, Dir: x.dir}
	rec, err := e.Record(x.wan)
	if err != nil || rec == nil || p == nil {
		return []string{"nothing is recorded"}, err
	}
	now, err := x.backend.Observe(x.t.Context(), *p, rec.Wanted)
	if err != nil {
		return nil, err
	}
	if is := x.only().rates.Running(); is != nil && is != x.only().rates.Settled() {
		if steps, err := x.backend.Retune(now, *p, *is); errors.Is(err, errors.ErrUnsupported) {
			p = is // the whole plan has them
		} else if err != nil || len(steps) > 0 {
			return []string{fmt.Sprintf("it does not have the rates to which it was followed: %q", steps)}, err
		}
		if now, err = x.backend.Retuned(now, *is, *p); err != nil {
			return nil, err
		}
	}
	wanted, err := x.backend.Desire(x.t.Context(), *p, now, rec.Origin)
	if err != nil {
		return nil, err
	}
	_, differences, err := x.backend.Compare(now, wanted)
	return differences, err
}

// damage takes away a part of the shaping, or sets other rates, as somebody does
// who stops anywhere.
func (x *town) damage() string {
	ctx := x.t.Context()
	e := &apply.Engine{Backend: x.backend, Dir: x.dir}
	rec, err := e.Record(x.wan)
	if err != nil || rec == nil {
		return "nothing is there to be damaged"
	}
	now, err := x.backend.Observe(ctx, rec.Plan, rec.Wanted)
	if err != nil {
		return err.Error()
	}
	to, err := x.backend.Baseline(ctx, now, rec.Origin)
	if x.random.IntN(2) == 0 {
		to, err = x.backend.Desire(ctx, rec.Plan.In(x.driver.Language).WithRates(x.rate(), x.rate()), now, rec.Origin)
	}
	if err != nil {
		return err.Error()
	}
	steps, _, err := x.backend.Compare(now, to)
	if err != nil {
		return err.Error()
	}
	steps = steps[:x.random.IntN(len(steps)+1)]
	x.router.mu.Lock()
	defer x.router.mu.Unlock()
	for _, s := range steps {
		if x.random.IntN(4) > 0 {
			_, _, _ = x.router.at.Run(ctx, s.Argv, []byte(s.Stdin))
		}
	}
	return fmt.Sprintf("%d commands by hand", len(steps))
}

func (x *town) rate() unit.Rate { return unit.Rate(2+x.random.IntN(90)) * unit.MbitPerSecond }

// happen does one random thing and says what.
func (x *town) happen() string {
	ctx, from := x.t.Context(), &Caller{does: "test"}
	w := x.only()
	call := func(f func(context.Context) (any, error)) string {
		_, err := w.call(ctx, f)
		return fmt.Sprint(err)
	}
	things := 13
	if x.follows {
		things += 5
	}
	switch x.random.IntN(things) {
	case 0:
		is := mood(x.random.IntN(int(mostOfMoods) + 1))
		x.router.set(is)
		return fmt.Sprintf("the mood is %d", is)
	case 1, 2:
		x.router.set(fine)
		return "the mood is fine"
	case 3:
		return "revert: " + call(func(ctx context.Context) (any, error) { return w.revert(ctx, from) })
	case 4:
		return "on: " + call(func(ctx context.Context) (any, error) { return w.on(ctx, from, OnParams{}) })
	case 5:
		p, err := plan.Make(plan.Line{}, assumed(x.driver, x.wan, ""), plan.Preferences{Down: plan.RatePreference{Rate: x.rate()}, Up: plan.RatePreference{Rate: x.rate()}})
		if err != nil {
			x.t.Fatal(err)
		}
		return "apply: " + call(func(ctx context.Context) (any, error) {
			return w.apply(ctx, from, ApplyParams{Plan: p, Yes: x.random.IntN(2) == 0, Confirm: 5})
		})
	case 6:
		return "confirm: " + call(func(ctx context.Context) (any, error) { return w.confirm(ctx, from) })
	case 7:
		if x.lasting {
			return "nothing"
		}
		x.stop()
		x.start()
		return "it was killed and starts"
	case 12:
		if _, err := w.call(ctx, func(context.Context) (any, error) { return nil, w.turn(from, false) }); err != nil {
			return "a turn: " + err.Error()
		}
		said := x.tune()
		time.Sleep(time.Second)
		return said + call(func(context.Context) (any, error) { w.release(from); return nil, nil })
	case 8:
		x.d.event(Event{Replaced: x.wan})
		return "another interface"
	case 13, 14, 15, 16, 17:
		return x.followRandomly()
	default:
		what := x.damage()
		if x.random.IntN(2) == 0 {
			x.d.event(Event{})
		}
		return what
	}
}

// tune keeps other rates as a command does that has the turn.
func (x *town) tune() string {
	p, err := plan.Make(plan.Line{Down: x.rate(), Up: x.rate()}, assumed(x.driver, x.wan, ""), plan.Preferences{})
	if err != nil {
		x.t.Fatal(err)
	}
	tr, err := x.engine(x.backend).Begin(x.t.Context(), p, apply.Options{Confirm: time.Minute, Hold: true})
	if err != nil {
		return "tune: " + err.Error()
	}
	defer tr.Close()
	if x.random.IntN(3) == 0 {
		return fmt.Sprint("tune, reverted: ", tr.Revert(x.t.Context()))
	}
	return fmt.Sprint("tune, kept: ", tr.Commit())
}

// changing returns which commands change a platform's router: those that a plan's
// steps begin with.
func changing(steps []platform.Step) func([]string) bool {
	var known []string
	for _, s := range steps {
		known = append(known, s.Argv[0])
	}
	return func(argv []string) bool {
		if !slices.Contains(known, argv[0]) {
			return false
		}
		joined := " " + strings.Join(argv, " ") + " "
		return !slices.ContainsFunc([]string{" show ", " -j ", " -s", " -n ", " -k ", " list ", " get ", " -l "}, func(read string) bool { return strings.Contains(joined, read) })
	}
}

// TestConformance: the daemon over every driver's stand-in, with damage, commands,
// crashes and routers that go, fail, lie and stall. Whenever the router is fine for
// long enough, what is there is what is wanted, or the daemon has said why not. The
// seed is printed; UNBLOAT_SEED gives another, UNBLOAT_LONG=1 10,000
// events each, UNBLOAT_EVENTS as many as it says.
func TestConformance(t *testing.T) {
	await.NotShort(t)
	seed := uint64(1) // the same each time; a long run draws its own
	if os.Getenv("UNBLOAT_LONG") != "" {
		seed = uint64(time.Now().UnixNano())
	}
	seed = seedOf(t, seed)
	events := 40
	if os.Getenv("UNBLOAT_LONG") != "" {
		events = 10_000
	}
	if text := os.Getenv("UNBLOAT_EVENTS"); text != "" {
		var err error
		if events, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	if missing := slices.DeleteFunc(all.Names(), func(n string) bool { return standIns()[n] != nil }); len(missing) > 0 {
		t.Errorf("%q have no stand-in here", missing)
	}
	for _, name := range slices.Sorted(maps.Keys(standIns())) {
		t.Run(name, func(t *testing.T) {
			if events > 1000 {
				t.Parallel()
			}
			dir := inMemory(t)
			synctest.Test(t, func(t *testing.T) { conforms(t, name, dir, seed, events) })
		})
	}
}

// seedOf returns the seed of UNBLOAT_SEED, or the usual one, and prints it.
func seedOf(t *testing.T, usual uint64) uint64 {
	t.Helper()
	if text := os.Getenv("UNBLOAT_SEED"); text != "" {
		var err error
		if usual, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("UNBLOAT_SEED=%d", usual)
	return usual
}

// inMemory returns a directory in memory, if this machine has such a place: what is
// written there many thousand times is synced each time.
func inMemory(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "unbloat-test-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// newTown returns a town whose daemon does not run yet. Its router is fine.
func newTown(t *testing.T, name, dir string, seed uint64) *town {
	t.Helper()
	driver, err := all.Find(name)
	if err != nil {
		t.Fatal(err)
	}
	if driver.OwnTC != nil { // as `unbloat daemon` does
		driver = driver.OwnTC()
	}
	at, wan := standIns()[name]()
	x := &town{t: t, driver: driver, wan: wan, dir: dir, journal: dir, begun: time.Now(), follow: newPuppet, setter: noNetlink{}, random: rand.New(rand.NewPCG(seed, 3))}
	if x.backend, err = driver.Backend(platform.Options{Runner: at, API: driver.Scheme != "", Replace: true}); err != nil {
		t.Fatal(err)
	}
	if x.follows = slow(driver); x.follows {
		x.write("follow = true\n")
	} else {
		x.write("")
	}
	// What changes a router is told by a plan's own steps.
	p, err := plan.Make(plan.Line{Down: 50 * unit.MbitPerSecond, Up: 10 * unit.MbitPerSecond}, assumed(driver, wan, ""), plan.Preferences{})
	if err != nil {
		t.Fatal(err)
	}
	steps, err := (&apply.Engine{Backend: x.backend, Dir: dir}).Preview(t.Context(), p)
	if err != nil || len(steps) == 0 {
		t.Fatalf("%d steps: %v", len(steps), err)
	}
	if x.follows {
		steps = append(steps, platform.Step{Argv: []string{"dnctl"}})
	}
	x.router = &moody{at: at, ours: changing(steps)}
	return x
}

// settle makes the router fine for longer than any retry, and than any change waits for
// its confirmation.
func (x *town) settle() {
	x.router.set(fine)
	x.bound()
}

// bound is the time within which the daemon has done what can be done, or knows why not.
func (x *town) bound() {
	time.Sleep(actionTime + pollHearing + 5*time.Second)
	synctest.Wait()
}

// afresh gives the town a new router, of which nothing is recorded.
func (x *town) afresh(name string) {
	x.t.Helper()
	x.stop()
	for _, f := range []string{".journal.json", ".committed.json"} {
		if err := os.Remove(filepath.Join(x.dir, x.wan+f)); err != nil && !errors.Is(err, os.ErrNotExist) {
			x.t.Fatal(err)
		}
	}
	fresh, _ := standIns()[name]()
	x.router.mu.Lock()
	x.router.at = fresh
	x.router.mu.Unlock()
	var err error
	if x.backend, err = x.driver.Backend(platform.Options{Runner: fresh, API: x.driver.Scheme != "", Replace: true}); err != nil {
		x.t.Fatal(err)
	}
	x.start()
}

func conforms(t *testing.T, name, dir string, seed uint64, events int) {
	x := newTown(t, name, dir, seed)
	x.start()
	defer func() { x.stop() }()

	var story []string
	states := map[supervise.State]int{}
	for i := range events {
		what := x.happen()
		pause := time.Duration(x.random.IntN(3000)) * time.Millisecond
		story = append(story, fmt.Sprintf("%d: %s, then %v", i, what, pause))
		time.Sleep(pause)
		if x.random.IntN(4) > 0 {
			continue
		}
		w := x.only()
		s, _ := w.snapshot()
		tell := func(format string, args ...any) {
			t.Helper()
			s, _ = w.snapshot()
			t.Fatalf("%s\n%s\nthe last events:\n%s", fmt.Sprintf(format, args...), fmt.Sprintf("%+v", s), strings.Join(story[max(0, len(story)-12):], "\n"))
		}
		right := func() {
			t.Helper()
			if differences, err := x.differs(); err != nil || len(differences) > 0 {
				tell("it says that it is in place, and %v %q", err, differences)
			}
		}
		if x.random.IntN(4) == 0 { // what can be read, the daemon must know
			is := []mood{failing, lying}[x.random.IntN(2)]
			x.router.set(is)
			story = append(story, fmt.Sprintf("the mood is %d, and %s", is, x.damage()))
			x.bound()
			if s, _ := w.snapshot(); s.State == supervise.InPlace {
				right()
			}
		}
		x.settle()
		w = x.only()
		s, _ = w.snapshot()
		states[s.State]++
		switch s.State {
		case supervise.InPlace:
			right()
		case supervise.Suspended:
			if !x.d.memory.isOff(x.wan) {
				tell("it is off, and would not be after a restart")
			}
		default:
			if s.Why == "" || name == "linux" || name == "openwrt" {
				tell("the router is fine, and it is not in place")
			}
			// By hand somebody took away what told our parts from others', which the
			// platform's driver does not touch then. The router is set to factory defaults,
			// and what was recorded of it is thrown away.
			x.afresh(name)
		}
	}
	t.Logf("%d events: %v", events, states)
	if len(states) == 0 || events >= 100 && (states[supervise.InPlace] == 0 || states[supervise.Suspended] == 0) {
		t.Errorf("that shows nothing: %v", states)
	}
}

// assumed is what a router of a driver is taken to have. The stand-in for Linux has wan
// and lan.
func assumed(d *platform.Driver, wan, lan string) plan.Capabilities {
	if lan == "" && d.Name() == "linux" {
		lan = "lan"
	}
	return d.Language.Assume(wan, lan)
}
