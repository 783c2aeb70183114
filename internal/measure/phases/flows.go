package phases

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"unbloat/internal/measure/netio"
	"unbloat/internal/measure/probe"
	"unbloat/internal/measure/verdict"
	"unbloat/unit"
)

// A Direction of a load, as seen by the client.
type Direction string

// Directions.
const (
	Up   Direction = probe.DirUp
	Down Direction = probe.DirDown
)

// A FlowSpec describes a group of greedy TCP flows.
type FlowSpec struct {
	Dir   Direction
	Flows int
	CC    string        // congestion control of the sender, "" for its default
	DSCP  int           // 0–63, of the sender
	Bin   time.Duration // of the goodput series; 100 ms
	Limit time.Duration // the sender stops by itself after it; 0: only at Stop (or the server's limit)
}

// Flows is a running group of greedy TCP flows.
type Flows struct {
	client   *Client
	spec     FlowSpec
	group    uint32
	conns    []*net.TCPConn
	sender   *netio.Sender
	receiver *netio.Receiver
	start    unit.Instant
}

// A FlowReport is what became of a group of flows. Instants are of the client's clock.
type FlowReport struct {
	Dir        Direction
	Start, End unit.Instant
	Series     []verdict.Series     // per flow, at the receiver
	Whole      []verdict.Series     `json:",omitempty"` // the same with what carries the payload within TCP, where that is more
	Sender     []probe.SenderSample // of all flows together
	ServerCPU  float64              // busiest share, 0–1
	Broken     []string             // flows that ended before their time
	Fresh      *verdict.Handshakes  `json:",omitempty"` // handshake times of fresh connections under load, where they were tried
	OnLoad     []probe.Sample       `json:",omitempty"` // round trips on the loaded connections themselves, where they are known
}

// Goodput returns the rate that arrived from start to end.
func (r *FlowReport) Goodput() unit.Rate {
	return unit.Rate(verdict.Goodput(r.Series, r.Start, r.End))
}

// StartFlows opens a group of flows and starts it.
func (c *Client) StartFlows(ctx context.Context, spec FlowSpec) (*Flows, error) {
	f, err := c.openFlows(ctx, spec)
	if err != nil {
		return nil, err
	}
	if err := f.begin(ctx); err != nil {
		f.abandon()
		return nil, err
	}
	return f, nil
}

// CheckCC returns an error if this machine or the server can't send with a
// congestion control; nothing flows meanwhile. The server's wraps ErrRefused.
func (c *Client) CheckCC(ctx context.Context, cc string) error {
	if cc == "" {
		return nil
	}
	for _, dir := range []Direction{Up, Down} {
		f, err := c.openFlows(ctx, FlowSpec{Dir: dir, Flows: 1, CC: cc})
		if err != nil {
			return err
		}
		f.abandon()
	}
	return nil
}

// dialers is how many data connections are opened at once.
const dialers = 16

// openFlows opens the connections of a group; nothing flows yet.
func (c *Client) openFlows(ctx context.Context, spec FlowSpec) (*Flows, error) {
	if spec.Flows < 1 || spec.Flows > probe.MaxFlows {
		return nil, fmt.Errorf("start %d flows: must be 1 to %d", spec.Flows, probe.MaxFlows)
	}
	if spec.Bin <= 0 {
		spec.Bin = 100 * time.Millisecond
	}
	f := &Flows{client: c, spec: spec, group: c.groups.Add(1), conns: make([]*net.TCPConn, spec.Flows)}
	errs := make([]error, spec.Flows)
	var wg sync.WaitGroup
	slots := make(chan struct{}, dialers)
	for i := range spec.Flows {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			f.conns[i], errs[i] = c.openFlow(ctx, spec, f.group)
		})
	}
	wg.Wait()
	for i, err := range errs {
		if err != nil {
			f.abandon()
			return nil, fmt.Errorf("open flow %d of %d %s: %w", i+1, spec.Flows, spec.Dir, err)
		}
	}
	return f, nil
}

// openFlow opens one data connection.
func (c *Client) openFlow(ctx context.Context, spec FlowSpec, group uint32) (*net.TCPConn, error) {
	var mine, theirs netio.TCPOptions // the sender's choice
	if spec.Dir == Up {
		mine = netio.TCPOptions{CC: spec.CC, DSCP: spec.DSCP}
	} else {
		theirs = netio.TCPOptions{CC: spec.CC, DSCP: spec.DSCP}
	}
	conn, err := netio.DialTCP(ctx, c.peer.String(), c.options.Patience, mine)
	if err != nil {
		return nil, err
	}
	reply, err := ask(ctx, conn, bufio.NewReaderSize(conn, 512), probe.Request{
		Op: probe.OpData, Token: c.token, Group: group, Dir: string(spec.Dir), CC: theirs.CC, DSCP: theirs.DSCP,
	}, c.options.Patience)
	if err == nil && reply.Error != "" {
		err = fmt.Errorf("%w: %s", ErrRefused, reply.Error)
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

// begin starts the load at both ends.
func (f *Flows) begin(ctx context.Context) error {
	c := f.client
	if f.spec.Dir == Down {
		f.receiver = netio.NewReceiver(c.clock, f.spec.Bin, netio.Budget{}, f.conns)
	}
	_, err := c.control.do(ctx, probe.Request{
		Op: probe.OpStart, Group: f.group, Flows: f.spec.Flows, Limit: f.spec.Limit, Bin: f.spec.Bin,
	})
	if err != nil {
		return fmt.Errorf("start %d flows %s: %w", f.spec.Flows, f.spec.Dir, err)
	}
	f.start = c.clock.Now()
	if f.spec.Dir == Up {
		f.sender = netio.NewSender(c.clock, c.payload(), netio.Budget{Time: f.spec.Limit}, f.conns)
	}
	return nil
}

// moved returns how many bytes have arrived so far, as far as this end knows.
func (f *Flows) moved() int64 {
	switch {
	case f.receiver != nil:
		return f.receiver.Total()
	case f.sender != nil:
		return f.sender.Acked()
	}
	return 0
}

// abandon closes what is open.
func (f *Flows) abandon() {
	switch {
	case f.receiver != nil:
		f.receiver.Stop()
	case f.sender != nil:
		f.sender.Stop()
	default:
		for _, c := range f.conns {
			if c != nil {
				c.Close()
			}
		}
	}
}

// lastBytes is how long a receiver waits for a sender's own end, so that the
// queue drains into it instead of being answered with resets.
const lastBytes = netio.Overrun + time.Second

// Stop ends the flows and returns what became of them. It must be called once.
func (f *Flows) Stop(ctx context.Context) (FlowReport, error) {
	c := f.client
	r := FlowReport{Dir: f.spec.Dir, Start: f.start, End: c.clock.Now()}
	var broke []netio.FlowError
	if f.spec.Limit > 0 {
		f.awaitEnd(ctx)
	}
	if f.sender != nil {
		r.Sender, broke = f.sender.Stop()
	}
	reply, err := c.control.do(ctx, probe.Request{Op: probe.OpStop, Group: f.group})
	if err == nil && reply.Load == nil {
		err = errors.New("the server's report is empty")
	}
	if err != nil {
		f.abandon()
		return r, fmt.Errorf("stop %d flows %s: %w", f.spec.Flows, f.spec.Dir, err)
	}
	r.ServerCPU = reply.Load.CPU
	if f.receiver != nil {
		var bins []netio.Bins
		bins, broke = f.receiver.Stop()
		for _, b := range bins {
			r.Series = append(r.Series, verdict.Series{Start: b.Start, Bin: b.Width, Bytes: b.Bytes})
		}
		r.Sender = reply.Load.Sender
		shiftSender(r.Sender, -c.clockOffset())
	} else {
		start := reply.Load.Start.Add(-c.clockOffset())
		for _, b := range reply.Load.Flows {
			r.Series = append(r.Series, verdict.Series{Start: start, Bin: reply.Load.Bin, Bytes: b})
		}
	}
	due := r.End
	if f.spec.Limit > 0 {
		due = min(due, f.start.Add(f.spec.Limit-100*time.Millisecond)) // the other end's clock starts a little earlier
	}
	for _, e := range broke {
		if e.At.Before(due) {
			r.Broken = append(r.Broken, fmt.Sprintf("%s %s after %.1f s", f.spec.Dir, e.Error(), e.At.Sub(f.start).Seconds()))
		}
	}
	if len(r.Broken) > 0 && len(reply.Load.Errors) > 0 {
		r.Broken[0] += fmt.Sprintf(" (the server says: %s)", reply.Load.Errors[0])
	}
	return r, nil
}

// awaitEnd waits until flows of limited time have ended by themselves, but not for long.
func (f *Flows) awaitEnd(ctx context.Context) {
	end := f.start.Add(f.spec.Limit)
	if f.client.clock.Now().Add(time.Second).Before(end) {
		return // stopped early
	}
	for f.client.clock.Now().Before(end.Add(lastBytes)) && !f.ended() {
		if Sleep(ctx, 20*time.Millisecond) != nil {
			return
		}
	}
}

// ended reports whether every flow has ended by itself.
func (f *Flows) ended() bool {
	if f.sender != nil {
		return f.sender.Ended()
	}
	return f.receiver.Ended()
}

func shiftSender(s []probe.SenderSample, by time.Duration) {
	for i := range s {
		s[i].At = s[i].At.Add(by)
	}
}

// clockOffset returns the server's clock less the client's: from the probes of
// the phases if they run, else from the quickest exchange on the control connection.
func (c *Client) clockOffset() time.Duration {
	c.mu.Lock()
	p := c.probe
	c.mu.Unlock()
	if p != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		if o, ok := probe.ClockOffset(p.session.Samples(0, c.clock.Now())); ok {
			return o
		}
	}
	return c.control.clockOffset()
}
