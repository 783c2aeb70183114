// Package daemon keeps WANs shaped: it compares what a router has with what is
// wanted, and puts back what is missing. Each WAN has a loop of its own, whose
// decisions are package keep's; people and commands reach it through a Unix socket.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"unbloat/guard"
	"unbloat/internal/cure/apply"
	"unbloat/internal/keep/config"
	"unbloat/internal/keep/metrics"
	"unbloat/internal/keep/steer"
	"unbloat/internal/keep/supervise"
	"unbloat/internal/keep/tell"
	"unbloat/internal/measure/netio"
)

// Times between looks at a WAN of which nothing was heard.
const (
	pollDeaf    = 10 * time.Second // where nothing tells of changes
	pollHearing = time.Minute      // where the kernel does
)

// mostStart is how long the daemon waits for its WANs before it says that it is
// ready.
const mostStart = 20 * time.Second

// Options of a Daemon.
type Options struct {
	File    string // the configuration
	Dir     string // directory of the socket and of the lock
	Memory  string // file that remembers over reboots which WANs are off
	Version string
	Go      string // version of the compiler

	// Check refuses a configuration that a platform cannot do; nil: it is only
	// parsed. Errors are *config.Error.
	Check func(ctx context.Context, c config.Config) error
	// Open reaches the router of a WAN.
	Open func(ctx context.Context, w config.WAN) (*Router, error)
	// Classify says what kind of error a change's error is, for clients.
	Classify func(error) Code

	// Follow returns what follows a line; nil: this build has nothing that does. Setter
	// returns what gives the shapers other rates meanwhile, where no program has to.
	Follow func(c steer.Config) (Follower, error)
	Setter func() (RateSetter, error)
	// Gauge returns what measures the delay of a line whose rates are held; nil: this build
	// has nothing that does.
	Gauge func(c steer.Config) (Follower, error)
	// Program is unbloat itself, which tests and tunes for the daemon.
	Program string
	// Work runs Program with arguments, and variables besides those of this process, and
	// returns its exit code. When ctx ends it is interrupted. nil: as a child.
	Work func(ctx context.Context, args, env []string, out io.Writer) (exitCode int, err error)
	// Count reads the bytes that an interface of this machine has carried; nil: this
	// build can't.
	Count func(device string) (received, sent uint64, ok bool)
	// Reflect opens what asks far ends how a line does; nil: this machine's sockets.
	Reflect func(clock *netio.Clock, device string) (netio.ReflectorSocket, error)
	// Send tells a receiver of an incident; nil: this build can't.
	Send func(ctx context.Context, to config.Notify, secret string, m tell.Message) error
	MQTT func(ctx context.Context, to config.Notify, secret func() (string, error), h tell.House, log func(string, ...any)) (func(context.Context, tell.Message) error, error)
	// Archive keeps on a disk what lines did; nil: this build can't.
	Archive Archive
	// Metrics serves metrics at an address until ctx ends; nil: this build does not.
	Metrics func(ctx context.Context, address string, now func() metrics.Snapshot) error

	// UI serves the router's page until ctx ends, and returns how it is reached. The
	// channel is closed when it has ended, and its address is free. nil: this build does not.
	UI func(ctx context.Context, c config.Config, h PageHost) (page func(PageParams) Page, ended <-chan struct{}, err error)
	// Now is the machine's clock, which may be set; nil: time.Now. It is for what has to
	// happen at a time of day, and for times that people read.
	Now func() time.Time

	Log     io.Writer       // a line for each thing that happened
	Trouble io.Writer       // a line for each thing that failed
	Reload  <-chan struct{} // asks to read the configuration again
	Getenv  func(string) string
	// Watch tells of changes of this machine's network until ctx ends, and then closes
	// the channel; a nil channel says that nothing is told here.
	Watch func(ctx context.Context, tell func(Event)) (ended <-chan struct{}, err error)
}

// A PageHost is what the router's page needs of the daemon.
type PageHost struct {
	Daemon   *Caller
	Log      func(format string, args ...any)
	Panicked func(what any, stack []byte) // takes in a panic that was contained
}

// A Daemon keeps the WANs of a configuration.
type Daemon struct {
	o      Options
	since  time.Time
	lock   *apply.Lock // on Dir
	memory *memory
	manage *notifier
	poll   time.Duration // of this machine's WANs

	fileMu sync.Mutex // the configuration file
	logMu  sync.Mutex

	mu      sync.Mutex
	config  config.Config
	failure string // why the configuration could not be read again
	careful string // why no line is followed; "": those that are to be are
	wans    map[string]*wan
	routers map[string]chan struct{} // one change at a time on each router
	wake    chan struct{}            // something is different, for the service manager
	running context.Context          // ends when the daemon does
	ports   map[uint32]bool          // netlink ports of followers: their changes are no news
	loops   sync.WaitGroup
	watched incidents
	archive archiver
	events  events
	page    func(PageParams) Page // nil: there is none
	endPage func()                // ends the page and waits for its end; nil: there is none
	runs    runs
	planned *planned // a schedule that waits for its confirmation; nil: none

	scheduleMu sync.Mutex    // one change of the schedule at a time
	numbers    atomic.Uint64 // of decisions
	panics     atomic.Uint64 // that were contained
}

// Load reads a configuration and checks it.
func Load(ctx context.Context, file string, check func(context.Context, config.Config) error) (config.Config, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return config.Config{}, &config.Error{File: file, Err: fmt.Errorf("read the configuration: %w", errors.Unwrap(err))}
	}
	c, err := config.Parse(file, text)
	if err == nil && check != nil {
		err = check(ctx, c)
	}
	return c, err
}

// mostDying is how long what a killed daemon was starting may still have its lock: a child
// has a copy until its exec, and one that measures or tunes until it sees that it is alone.
const mostDying = 2 * time.Second

// lockOf takes the lock of a daemon's directory.
func lockOf(dir string) (*apply.Lock, error) {
	for last := time.Now().Add(mostDying); ; time.Sleep(20 * time.Millisecond) {
		lock, err := apply.TryLock(filepath.Join(dir, "unbloatd.lock"))
		if !errors.Is(err, apply.ErrLocked) || time.Now().After(last) {
			return lock, err
		}
	}
}

// Run keeps the WANs until ctx ends. Then the shaping stays, or is taken back, as
// the configuration says. An error says why the daemon could not start, or what
// could not be taken back.
func Run(ctx context.Context, o Options) error {
	c, err := Load(ctx, o.File, o.Check)
	if err != nil {
		return err
	}
	d, err := newDaemon(o, c)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(o.Dir, 0o750); err != nil {
		return fmt.Errorf("start the daemon: %w; run it as root, or choose a directory with --state-dir", err)
	}
	_ = os.Unsetenv("NOTIFY_SOCKET") // the programs that we run have nothing to tell the service manager
	lock, err := lockOf(o.Dir)
	if errors.Is(err, apply.ErrLocked) {
		return fmt.Errorf("start the daemon: another one runs with the directory %s; stop it first, or reload it with SIGHUP", o.Dir)
	}
	if err != nil {
		return fmt.Errorf("start the daemon: %w; choose with --state-dir a directory that nobody else can change", err)
	}
	defer lock.Unlock()
	d.lock = lock
	l, err := listen(Socket(o.Dir))
	if err != nil {
		return err
	}
	defer l.Close()
	if d.careful = careful(o.Dir); d.careful != "" {
		d.trouble("WARNING: %s", d.careful)
	}

	var cancel context.CancelFunc
	d.running, cancel = context.WithCancel(ctx)
	defer cancel()
	unheard, err := o.Watch(d.running, d.event)
	switch {
	case err != nil:
		d.trouble("%v; the WANs are looked at every %s", err, pollDeaf)
	case unheard != nil:
		d.poll = pollHearing
	}
	if err := d.offer(c); err != nil { // before a router is touched
		return err
	}
	d.mu.Lock()
	for _, w := range d.wans {
		d.keep(w)
	}
	d.mu.Unlock()
	d.loops.Go(func() { d.keepSchedule(d.running) })
	d.loops.Go(func() { d.keepHistory(d.running) })
	d.loops.Go(func() { d.watchHeld(d.running) })
	d.loops.Go(func() { d.watchLines(d.running) })
	d.loops.Go(func() { d.keepIncidents(d.running) })
	d.loops.Go(func() { d.keepTelling(d.running) })
	clients := d.serve(d.running, l)
	d.loop(d.running)

	d.manage.send("STOPPING=1", "STATUS=ends")
	l.Close()
	cancel()
	d.loops.Wait()
	clients.Wait()
	d.runs.close()
	if unheard != nil {
		<-unheard
	}
	forgetStarts(o.Dir)
	return d.end()
}

// offer makes the WANs known, and serves the metrics and the page, as the configuration
// asks. No loop runs yet: an address that is taken ends the daemon, and no change with it.
func (d *Daemon) offer(c config.Config) error {
	d.mu.Lock()
	for _, w := range c.WANs {
		d.add(w)
	}
	d.mu.Unlock()
	switch {
	case c.Metrics == "":
	case d.o.Metrics == nil:
		return &config.Error{File: d.o.File, Key: "metrics", Err: errors.New("this build of the daemon has none; use the full one, or remove the line")}
	default:
		if err := d.o.Metrics(d.running, c.Metrics, d.metrics); err != nil {
			return fmt.Errorf("start the daemon: serve its metrics: %w", err)
		}
	}
	return d.offerPage(c)
}

// offerPage serves the router's page, if the configuration asks for it.
func (d *Daemon) offerPage(c config.Config) error {
	switch {
	case !c.UI.Listen.IsValid():
		return nil
	case d.o.UI == nil:
		return &config.Error{File: d.o.File, Key: "ui", Err: errors.New("this build of the daemon has no page; use the full one, or remove " + c.Syntax().Table("ui"))}
	}
	ctx, cancel := context.WithCancel(d.running)
	page, ended, err := d.o.UI(ctx, c, PageHost{Daemon: d.Page(), Log: d.log, Panicked: func(what any, stack []byte) { d.panicked("the page", what, stack) }})
	if err != nil {
		cancel()
		return fmt.Errorf("serve the daemon's page: %w", err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.page, d.endPage = page, func() { cancel(); <-ended }
	return nil
}

// offerOtherPage serves the page as another configuration asks for it, or no page.
func (d *Daemon) offerOtherPage(c config.Config) {
	d.mu.Lock()
	end := d.endPage
	d.page, d.endPage = nil, nil
	d.mu.Unlock()
	if end != nil {
		end()
	}
	if err := d.offerPage(c); err != nil {
		d.trouble("reload: %v; there is no page now", err)
	}
}

// newDaemon returns a daemon whose loops do not run yet.
func newDaemon(o Options, c config.Config) (*Daemon, error) {
	d := &Daemon{o: o, since: time.Now(), config: c, wans: map[string]*wan{}, routers: map[string]chan struct{}{}, ports: map[uint32]bool{}, wake: make(chan struct{}, 1), poll: pollDeaf}
	d.manage = newNotifier(o.Getenv, os.Getpid())
	var err error
	d.memory, err = readMemory(o.Memory)
	return d, err
}

// start begins to keep a WAN. The caller holds d.mu.
func (d *Daemon) start(c config.WAN) { d.keep(d.add(c)) }

// add makes a WAN known, whose loop does not run yet. The caller holds d.mu.
func (d *Daemon) add(c config.WAN) *wan {
	key := keyOf(c.Router, c.Interface)
	poll := d.poll
	if c.Router != "" {
		poll = pollDeaf
	}
	w := &wan{d: d, key: key, name: c.Interface, routerName: c.Router, config: c, calls: make(chan func()), stopped: make(chan struct{}), news: newNews()}
	w.schedule.take(c, d.memory.with(d.config.Schedule, d.now()), d.now())
	w.supervisor = supervise.New(time.Now(), poll, false, d.memory.isOff(key))
	w.board.status = WANStatus{WAN: c.Interface, Router: c.Router, State: w.supervisor.State(), Since: time.Now().UTC().Format(time.RFC3339)}
	w.board.beat, w.board.reconciled = time.Now(), map[cause]uint64{}
	d.wans[key] = w
	if d.routers[c.Router] == nil {
		d.routers[c.Router] = make(chan struct{}, 1)
	}
	return w
}

// keep begins the loop of a WAN. The caller holds d.mu.
func (d *Daemon) keep(w *wan) {
	ctx, cancel := context.WithCancel(d.running)
	w.cancel = cancel
	d.loops.Go(func() { defer cancel(); w.run(ctx) })
}

// lockRouter waits until nobody else of this daemon changes the router.
func (d *Daemon) lockRouter(ctx context.Context, router string) (unlock func(), err error) {
	d.mu.Lock()
	c := d.routers[router]
	d.mu.Unlock()
	select {
	case c <- struct{}{}:
		return func() { <-c }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for another WAN of the same router: %w", ctx.Err())
	}
}

// loop is the control loop: it answers the service manager until ctx ends.
func (d *Daemon) loop(ctx context.Context) {
	every := 10 * time.Second
	if d.manage.watchdog > 0 {
		every = min(every, d.manage.watchdog/3)
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	ready, start := false, time.Now()
	var reloaded chan struct{} // nil: nobody reloads
	defer func() {
		if reloaded != nil {
			<-reloaded
		}
	}()
	for {
		statuses, alive := d.statuses()
		if !ready && (settled(statuses) || time.Since(start) > mostStart) {
			ready = true
			d.manage.send("READY=1")
		}
		d.manage.status(summary(statuses, d.failed(), d.isCareful()))
		if alive {
			d.manage.send("WATCHDOG=1")
		}
		asked := d.o.Reload
		if reloaded != nil { // the next one waits
			asked = nil
		}
		select {
		case <-ctx.Done():
			return
		case <-asked:
			d.manage.send("RELOADING=1", fmt.Sprintf("MONOTONIC_USEC=%d", monotonic()))
			done := make(chan struct{})
			reloaded = done
			go func() { defer close(done); d.reload(ctx) }()
		case <-reloaded:
			reloaded = nil
			d.manage.send("READY=1")
		case <-d.wake:
		case <-tick.C:
		}
	}
}

// changed tells the control loop that a status may be different.
func (d *Daemon) changed() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// settled reports whether every WAN has been looked at.
func settled(all []WANStatus) bool {
	return !slices.ContainsFunc(all, func(s WANStatus) bool { return s.State == supervise.Starting })
}

// summary is what the service manager shows.
func summary(all []WANStatus, failure, careful string) string {
	var says []string
	if careful != "" {
		says = append(says, careful)
	}
	if failure != "" {
		says = append(says, "the configuration could not be read again: "+failure)
	}
	for _, s := range all {
		says = append(says, s.Says())
	}
	return strings.Join(says, "; ")
}

// statuses returns the WANs in the configuration's order, and whether their loops
// run. One that is inside an action is given the action's time.
func (d *Daemon) statuses() (out []WANStatus, alive bool) {
	alive = true
	for _, w := range d.all() {
		s, beat := w.snapshot()
		out = append(out, s)
		if time.Since(beat) > actionTime+2*time.Minute {
			alive = false
		}
	}
	return out, alive
}

// all returns the WANs in the configuration's order.
func (d *Daemon) all() []*wan {
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []*wan
	for _, c := range d.config.WANs {
		if w := d.wans[keyOf(c.Router, c.Interface)]; w != nil {
			out = append(out, w)
		}
	}
	return out
}

// isCareful says why no line is followed; "" if those that are to be are.
func (d *Daemon) isCareful() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.careful
}

func (d *Daemon) failed() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.failure
}

// reload reads the configuration again. One that is not valid changes nothing.
func (d *Daemon) reload(ctx context.Context) {
	c, err := Load(ctx, d.o.File, d.o.Check)
	if err != nil {
		d.trouble("reload: %v; the old configuration stays in force", err)
		d.mu.Lock()
		d.failure = err.Error()
		d.mu.Unlock()
		return
	}
	d.mu.Lock()
	d.failure, d.careful = "", ""
	old := d.config
	d.config = c
	var gone []*wan
	kept := map[string]bool{}
	for _, x := range c.WANs {
		kept[keyOf(x.Router, x.Interface)] = true
	}
	for key, w := range d.wans {
		if !kept[key] {
			gone = append(gone, w)
			delete(d.wans, key)
		}
	}
	d.mu.Unlock()
	for _, w := range gone { // before others begin: they may need what it leaves
		w.cancel()
		<-w.stopped
		if err := w.stop(ctx, old.OnStop); err != nil {
			d.trouble("%s: %v", w.config.Name(), err)
		}
	}
	for _, x := range c.WANs {
		d.mu.Lock()
		w := d.wans[keyOf(x.Router, x.Interface)]
		if w == nil {
			d.start(x)
		}
		d.mu.Unlock()
		if w != nil {
			_, _ = w.call(ctx, func(context.Context) (any, error) { w.reload(x); return nil, nil })
		}
	}
	if c.Metrics != old.Metrics {
		d.log("reload: metrics: a new address applies when the daemon starts again")
	}
	if !c.UI.Equal(old.UI) {
		d.offerOtherPage(c)
	}
	d.log("reloaded: %d WANs", len(c.WANs))
}

// end does to the shaping what the configuration says.
func (d *Daemon) end() error {
	var errs []error
	for _, w := range d.all() {
		ctx, cancel := context.WithTimeout(context.Background(), actionTime)
		if err := w.stop(ctx, d.config.OnStop); err != nil {
			errs = append(errs, fmt.Errorf("end the daemon: %w", err))
		}
		cancel()
	}
	return errors.Join(errs...)
}

// event tells the WANs of this machine what has happened.
func (d *Daemon) event(e Event) {
	if e.Trouble != nil {
		d.trouble("%v; the WANs are looked at now", e.Trouble)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if e.Port != 0 && d.ports[e.Port] {
		return
	}
	for _, w := range d.wans {
		if w.routerName != "" {
			continue
		}
		if e.Rerouted != nil { // nothing is to be rebuilt for that
			w.rerouted(e.Rerouted)
		} else {
			w.news.tell(change{replaced: e.Replaced == w.name, by: e.By})
		}
	}
}

// look has every WAN looked at soon, for hooks of systems that tell nothing by
// netlink. replaced is an interface that came, went or is another one; "": none.
func (d *Daemon) look(replaced string) {
	for _, w := range d.all() {
		w.news.tell(change{replaced: replaced != "" && replaced == w.name})
	}
}

// now is the machine's clock.
func (d *Daemon) now() time.Time {
	if d.o.Now != nil {
		return d.o.Now()
	}
	return time.Now()
}

// every does something now and then until ctx ends.
func every(ctx context.Context, between time.Duration, do func()) {
	tick := time.NewTicker(between)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			do()
		}
	}
}

// Status returns what the daemon says of itself.
func (d *Daemon) status() Status {
	s := Status{Schema: StatusSchema, Version: d.o.Version, PID: os.Getpid(), Since: d.since.UTC().Format(time.RFC3339), Config: d.o.File, Failure: d.failed(), Careful: d.isCareful()}
	s.WANs, _ = d.statuses()
	if t := d.watched.teller.Load(); t != nil {
		s.Notify = t.Counts()
	}
	return s
}

// log writes a line about what the daemon does, trouble one about what fails.
func (d *Daemon) log(format string, args ...any) { d.write(d.o.Log, format, args...) }

func (d *Daemon) trouble(format string, args ...any) { d.write(d.o.Trouble, format, args...) }

func (d *Daemon) write(to io.Writer, format string, args ...any) {
	d.logMu.Lock()
	defer d.logMu.Unlock()
	if to != nil {
		fmt.Fprintln(to, strings.ReplaceAll(guard.Visible(fmt.Sprintf(format, args...)), "\n", "; ")) // one line is one entry
	}
}

// listen makes the socket. One that an earlier daemon left is replaced: its lock is
// gone.
func listen(path string) (*net.UnixListener, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("make the socket: %w", err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("make the socket: %w; a path may have about 100 characters", err)
	}
	if err := os.Chmod(path, 0o660); err != nil {
		l.Close()
		return nil, fmt.Errorf("make the socket: %w", err)
	}
	return l, nil
}
