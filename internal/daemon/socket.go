package daemon

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"unbloat/internal/door"
)

// A client is a connection to the socket.
type client struct {
	d    *Daemon
	conn net.Conn
	name string // for events; "": a command
	does string // the command that has a turn
	turn []*wan
	runs []*run // that end with the connection
}

// serve answers clients until the listener is closed; the returned group ends when
// all of them have.
func (d *Daemon) serve(ctx context.Context, l net.Listener) *sync.WaitGroup {
	full, _ := json.Marshal(Response{Error: &Error{CodeBusy, fmt.Sprintf("%d clients are being answered now; ask again", mostClient)}})
	at := &door.Listener{Listener: l, Limits: door.Limits{Most: mostClient, Crowded: mostClient, Share: mostClient}, Refusal: append(full, '\n')}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			conn, err := at.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				c := &client{d: d, conn: conn}
				stop := context.AfterFunc(ctx, func() { conn.Close() })
				defer stop()
				c.run(ctx)
			})
		}
	})
	return &all
}

// run answers the requests of a client, one after the other.
func (c *client) run(ctx context.Context) {
	defer c.conn.Close()
	defer c.goes()
	in := bufio.NewReaderSize(c.conn, 4096)
	for {
		line, err := c.readLine(in)
		if errors.Is(err, errLongLine) {
			c.answer(Response{Error: &Error{CodeRequest, fmt.Sprintf("a request has at most %d bytes", MostLine)}})
			return // where the next one begins is not known
		}
		if err != nil {
			return
		}
		if len(line) == 0 {
			continue
		}
		out := c.respond(ctx, line)
		if !c.answer(out) || out.Error != nil && out.Error.Code == CodeInternal {
			return
		}
	}
}

// respond makes the answer to a line.
func (c *client) respond(ctx context.Context, line []byte) (out Response) {
	result, err := c.d.contain("a request by the socket", func() (any, error) {
		var r Request
		if err := json.Unmarshal(line, &r); err != nil {
			return nil, &Error{CodeRequest, "a request is one JSON object on one line, as in {\"id\":1,\"method\":\"status\"}: " + err.Error()}
		}
		out.ID = r.ID
		result, err := c.do(ctx, r)
		if err != nil {
			return nil, err
		}
		return json.Marshal(result)
	})
	if err != nil {
		out.Error = errorFor(err, c.d.o.Classify)
	} else {
		out.Result = result.([]byte)
	}
	return out
}

var errLongLine = errors.New("the line is too long")

// readLine reads a line of at most MostLine bytes. A client may say nothing for a
// long time, as long as nobody wants its place, and as long as it has the turn for ever;
// but it must finish a line that it has begun.
func (c *client) readLine(in *bufio.Reader) ([]byte, error) {
	idle := time.Now().Add(mostIdle)
	if c.turn != nil || len(c.runs) > 0 {
		idle = time.Time{}
	}
	if err := c.conn.SetReadDeadline(idle); err != nil {
		return nil, err
	}
	if _, err := in.Peek(1); err != nil {
		return nil, err
	}
	if err := c.conn.SetReadDeadline(time.Now().Add(mostSlow)); err != nil {
		return nil, err
	}
	var line []byte
	for {
		part, err := in.ReadSlice('\n')
		if len(line)+len(part) > MostLine {
			return nil, errLongLine
		}
		line = append(line, part...)
		switch {
		case err == nil:
			return line[:len(line)-1], nil
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF) && len(line) > 0:
			return line, nil
		default:
			return nil, err
		}
	}
}

// answer sends a line; it returns false if the client does not take it.
func (c *client) answer(r Response) bool {
	b, err := json.Marshal(r)
	if err != nil {
		return false
	}
	_ = c.conn.SetWriteDeadline(time.Now().Add(mostSlow))
	_, err = c.conn.Write(append(b, '\n'))
	return err == nil
}

// do does what a request asks for.
func (c *client) do(ctx context.Context, r Request) (any, error) {
	switch r.Method {
	case MethodStatus:
		s := c.d.status()
		if r.WAN == "" && r.Router == "" {
			return s, nil
		}
		w, err := c.d.find(r)
		if err != nil {
			return nil, err
		}
		one, _ := w.snapshot()
		s.WANs = []WANStatus{one}
		return s, nil
	case MethodApply:
		var a ApplyParams
		if err := params(r, &a); err != nil {
			return nil, err
		}
		if r.WAN != "" && r.WAN != a.Plan.WAN {
			return nil, &Error{CodeUsage, fmt.Sprintf("apply to %s: the plan is for %q; make one for it", r.WAN, a.Plan.WAN)}
		}
		r.WAN = a.Plan.WAN
		return c.on(ctx, r, func(ctx context.Context, w *wan) (any, error) { return w.apply(ctx, c, a) })
	case MethodConfirm, MethodRevert:
		var p IDParams
		if len(r.Params) > 0 {
			if err := params(r, &p); err != nil {
				return nil, err
			}
		}
		return c.on(ctx, r, func(ctx context.Context, w *wan) (any, error) {
			switch err := w.waiting(p.Change); {
			case err != nil:
				return nil, err
			case r.Method == MethodConfirm:
				return w.confirm(ctx, c)
			}
			return w.revert(ctx, c)
		})
	case MethodOn:
		var p OnParams
		if err := optional(r, &p); err != nil {
			return nil, err
		}
		return c.on(ctx, r, func(ctx context.Context, w *wan) (any, error) { return w.on(ctx, c, p) })
	case MethodTurn:
		var p TurnParams
		if err := params(r, &p); err != nil {
			return nil, err
		}
		return c.take(ctx, r, p)
	case MethodLook:
		c.d.look(r.WAN)
		return nil, nil
	}
	return c.ask(ctx, r)
}

// ask does what is asked for by the methods that change nothing themselves.
func (c *client) ask(ctx context.Context, r Request) (any, error) {
	switch r.Method {
	case MethodDecisions:
		var p DecisionsParams
		of, err := c.named(r, &p)
		if err != nil {
			return nil, err
		}
		return c.d.decisions(of, p), nil
	case MethodWhy:
		var p WhyParams
		if err := params(r, &p); err != nil {
			return nil, err
		}
		return c.on(ctx, r, func(ctx context.Context, w *wan) (any, error) { return w.whyFlow(ctx, p) })
	case MethodTune:
		var p TuneParams
		w, err := c.one(r, &p)
		if err != nil {
			return nil, err
		}
		return c.d.begin(ctx, c, w, MethodTune, Job{Tune: &p}, p.Unattended)
	case MethodTest:
		var p TestParams
		w, err := c.one(r, &p)
		if err != nil {
			return nil, err
		}
		return c.d.begin(ctx, c, w, MethodTest, Job{Test: &p}, p.Unattended)
	case MethodRun:
		var p RunParams
		if err := optional(r, &p); err != nil {
			return nil, err
		}
		return c.runStatus(ctx, p)
	case MethodHistory:
		var p HistoryParams
		w, err := c.one(r, &p)
		if err != nil {
			return nil, err
		}
		return w.history(ctx, p)
	}
	if out, known, err := c.doPage(ctx, r); known {
		return out, err
	}
	all := methods()
	return nil, &Error{CodeMethod, fmt.Sprintf("there is no method %q; there are %s and %s", r.Method, strings.Join(all[:len(all)-1], ", "), all[len(all)-1])}
}

// named reads params that need not be given, and returns the WANs that the request
// names; without a name, all.
func (c *client) named(r Request, to any) ([]*wan, error) {
	if err := optional(r, to); err != nil {
		return nil, err
	}
	if r.WAN == "" && r.Router == "" {
		return c.d.all(), nil
	}
	w, err := c.d.find(r)
	return []*wan{w}, err
}

// one reads params that need not be given, and returns the WAN that the request names.
func (c *client) one(r Request, to any) (*wan, error) {
	if err := optional(r, to); err != nil {
		return nil, err
	}
	return c.d.find(r)
}

// optional reads params that need not be given.
func optional(r Request, to any) error {
	if len(r.Params) == 0 {
		return nil
	}
	return params(r, to)
}

func params(r Request, to any) error {
	if len(r.Params) == 0 {
		return &Error{CodeUsage, r.Method + " needs params"}
	}
	if err := json.Unmarshal(r.Params, to); err != nil {
		return &Error{CodeUsage, fmt.Sprintf("params of %s: %v", r.Method, err)}
	}
	return nil
}

// on does something in the loop of the WAN that a request names.
func (c *client) on(ctx context.Context, r Request, f func(context.Context, *wan) (any, error)) (any, error) {
	w, err := c.d.find(r)
	if err != nil {
		return nil, err
	}
	return w.call(ctx, func(ctx context.Context) (any, error) { return f(ctx, w) })
}

// find returns the WAN that a request names; without a name, the only one.
func (d *Daemon) find(r Request) (*wan, error) {
	all := d.all()
	var found []*wan
	for _, w := range all {
		if w.routerName == r.Router && (r.WAN == "" || w.name == r.WAN) {
			found = append(found, w)
		}
	}
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		return nil, &Error{CodeUsage, "several WANs are kept; say which with wan"}
	}
	return nil, &Error{CodeUnknownWAN, fmt.Sprintf("the daemon keeps no %s; its configuration is %s", keyOf(r.Router, r.WAN), d.o.File)}
}

// take gives a client the turn on a WAN, or on all of a router. It waits for what
// is being done there.
func (c *client) take(ctx context.Context, r Request, p TurnParams) (any, error) {
	if c.turn != nil {
		return nil, &Error{CodeUsage, "you have a turn already; it ends with the connection"}
	}
	if p.For == "" {
		return nil, &Error{CodeUsage, "turn: say what for"}
	}
	c.does = p.For
	out := Turn{WANs: []string{}}
	for _, w := range c.d.all() {
		if w.routerName != r.Router || r.WAN != "" && w.name != r.WAN {
			continue
		}
		if _, err := w.call(ctx, func(context.Context) (any, error) { return w.turn(c, p.KeepOn) }); err != nil {
			c.leave()
			return nil, err
		}
		c.turn = append(c.turn, w)
		out.WANs = append(out.WANs, w.name)
	}
	if len(c.turn) == 0 {
		return nil, &Error{CodeUnknownWAN, fmt.Sprintf("the daemon keeps no %s; its configuration is %s", keyOf(r.Router, r.WAN), c.d.o.File)}
	}
	return out, nil
}

// goes ends what ends with the connection.
func (c *client) goes() {
	for _, r := range c.runs {
		r.cancel()
	}
	c.leave()
}

// leave gives back the turn.
func (c *client) leave() {
	for _, w := range c.turn {
		_, _ = w.call(context.Background(), func(context.Context) (any, error) { w.release(c); return nil, nil })
	}
	c.turn = nil
}
