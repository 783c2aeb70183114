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

	"unbloat/guard"
)

// A client is a connection to the socket.
type client struct {
	Caller
	conn net.Conn
}

// serve answers clients until the listener is closed; the returned group ends when
// all of them have.
func (d *Daemon) serve(ctx context.Context, l net.Listener) *sync.WaitGroup {
	full, _ := json.Marshal(Response{Error: &Error{CodeBusy, fmt.Sprintf("%d clients are being answered now; ask again", mostClient)}})
	at := &guard.Listener{Listener: l, Limits: guard.Limits{Most: mostClient, Crowded: mostClient, Share: mostClient}, Refusal: append(full, '\n')}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			conn, err := at.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				c := &client{Caller{d: d}, conn}
				stop := context.AfterFunc(ctx, func() { conn.Close() })
				defer stop()
				c.answers(ctx)
			})
		}
	})
	return &all
}

// answers answers the requests of a client, one after the other.
func (c *client) answers(ctx context.Context) {
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
func (c *Caller) do(ctx context.Context, r Request) (any, error) {
	for _, m := range methods() {
		if m.name == r.Method {
			return m.do(ctx, c, r)
		}
	}
	all := Methods()
	return nil, &Error{CodeMethod, fmt.Sprintf("there is no method %q; there are %s and %s", r.Method, strings.Join(all[:len(all)-1], ", "), all[len(all)-1])}
}

// A method is one of the socket's.
type method struct {
	name string
	do   func(ctx context.Context, c *Caller, r Request) (any, error)
}

// Methods returns the names of all of them.
func Methods() (out []string) {
	for _, m := range methods() {
		out = append(out, m.name)
	}
	return out
}

// methods are all of them, in the order in which an error names them.
func methods() []method {
	return []method{
		{MethodStatus, bare((*Caller).Status)},
		{MethodApply, needs((*Caller).Apply)},
		{MethodConfirm, takes((*Caller).Confirm)},
		{MethodRevert, takes((*Caller).Revert)},
		{MethodOn, takes((*Caller).On)},
		{MethodTurn, needs((*Caller).Turn)},
		{MethodLook, bare((*Caller).Look)},
		{MethodDecisions, takes((*Caller).Decisions)},
		{MethodWhy, needs((*Caller).Why)},
		{MethodTune, takes((*Caller).Tune)},
		{MethodTest, takes((*Caller).Test)},
		{MethodRun, takes((*Caller).Run)},
		{MethodHistory, takes((*Caller).History)},
		{MethodIncidents, takes((*Caller).Incidents)},
		{MethodSettings, bare((*Caller).Settings)},
		{MethodChange, needs((*Caller).Change)},
		{MethodEvents, bare((*Caller).Events)},
		{MethodClasses, needs((*Caller).Classes)},
		{MethodSchedule, takes((*Caller).Schedule)},
		{MethodWhile, needs((*Caller).While)},
		{MethodPage, takes((*Caller).Page)},
	}
}

// bare is a method without params.
func bare[R any](f func(*Caller, context.Context, Name) (R, error)) func(context.Context, *Caller, Request) (any, error) {
	return func(ctx context.Context, c *Caller, r Request) (any, error) { return f(c, ctx, r.Name) }
}

// takes is a method whose params need not be given.
func takes[P, R any](f func(*Caller, context.Context, Name, P) (R, error)) func(context.Context, *Caller, Request) (any, error) {
	return func(ctx context.Context, c *Caller, r Request) (any, error) {
		var p P
		if len(r.Params) > 0 {
			if err := json.Unmarshal(r.Params, &p); err != nil {
				return nil, &Error{CodeUsage, fmt.Sprintf("params of %s: %v", r.Method, err)}
			}
		}
		return f(c, ctx, r.Name, p)
	}
}

// needs is a method whose params must be given.
func needs[P, R any](f func(*Caller, context.Context, Name, P) (R, error)) func(context.Context, *Caller, Request) (any, error) {
	return func(ctx context.Context, c *Caller, r Request) (any, error) {
		if len(r.Params) == 0 {
			return nil, &Error{CodeUsage, r.Method + " needs params"}
		}
		return takes(f)(ctx, c, r)
	}
}
