package daemon

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"reflect"
	"runtime"
	"sync"
	"time"

	"unbloat/internal/keep/config"
	"unbloat/unit"
)

// mostUndo is how long a command may take to undo what it has changed, before its
// watchdog has to.
const mostUndo = time.Minute

// commandFor returns the arguments and variables with which `unbloat tune` or `unbloat
// test` works on a WAN for the daemon: it has the turn, asks no daemon, and prints a
// RunEvent a line. server and store are those of the configuration; store "": the result
// is not kept.
func commandFor(w config.WAN, params any, server, store string) (args, env []string) {
	key := ""
	switch p := params.(type) {
	case TestParams:
		p.Server, key = cmp.Or(p.Server, server), p.Key
		args = append([]string{MethodTest}, flagsOf(p)...)
	case TuneParams:
		p.Server, key = cmp.Or(p.Server, server), p.Key
		p.LAN, p.Goal, p.LinkLayer, p.Overhead = cmp.Or(p.LAN, w.LAN), cmp.Or(p.Goal, unit.Milliseconds(w.Goal)), cmp.Or(p.LinkLayer, string(w.LinkLayer)), cmp.Or(p.Overhead, w.Overhead)
		if p.LinkLayer == "" && p.Overhead == 0 {
			p.Framing = cmp.Or(p.Framing, w.Framing)
		}
		p.AQM, p.Side, p.Classes, p.Classifier = cmp.Or(p.AQM, string(w.AQM)), cmp.Or(p.Side, string(w.Side)), cmp.Or(p.Classes, w.Classes), cmp.Or(p.Classifier, string(w.Classifier))
		args = append([]string{MethodTune, "--own-tc", "--wan=" + w.Interface}, flagsOf(p)...)
		if w.Router != "" {
			args = append(args, "--router="+w.Router)
		}
		if w.Platform != "" {
			args = append(args, "--for="+w.Platform)
		}
	}
	keep := "--no-store"
	if store != "" {
		keep = "--store=" + store
	}
	// Root's own configuration is for root's own commands.
	return append(args, keep, "--json", "--events", "--turn-is-held="+w.Interface), []string{"UNBLOAT_CONFIG=", "UNBLOAT_KEY=" + key}
}

// flagsOf returns the flags that parameters are.
func flagsOf(params any) (args []string) {
	v := reflect.ValueOf(params)
	for i := range v.NumField() {
		name := v.Type().Field(i).Tag.Get("flag")
		if name == "" || v.Field(i).IsZero() {
			continue
		}
		if list, is := v.Field(i).Interface().([]string); is {
			for _, s := range list {
				args = append(args, "--"+name+"="+s)
			}
			continue
		}
		args = append(args, fmt.Sprintf("--%s=%v", name, v.Field(i).Interface()))
	}
	return args
}

// heard runs a command, reports its events, and returns what came of it: what its last
// line says, or what went wrong instead.
func (d *Daemon) heard(ctx context.Context, r *run, args, env []string) (result json.RawMessage, exitCode int, err error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var last RunEnd
	var strange error
	n := 0
	out := &Lines{Each: func(line []byte) {
		var e struct {
			RunEvent
			RunEnd
		}
		n++
		switch bad := json.Unmarshal(line, &e); {
		case strange != nil:
		case bad != nil:
			strange = fmt.Errorf("line %d of what it prints is no event (%w): %.100q", n, bad, line)
			stop() // nobody could follow it any more
		case e.Result != nil || e.Error != nil:
			last = e.RunEnd
		default:
			r.report(e.RunEvent)
		}
	}}
	run := d.o.Work
	if run == nil {
		run = d.child
	}
	exitCode, err = run(ctx, args, append(env, "UNBLOAT_STATE_DIR="+d.o.Dir), out)
	switch {
	case strange == nil && last.Error != nil:
		return last.Result, exitCode, last.Error
	case strange == nil && last.Result != nil:
		return last.Result, exitCode, nil
	case err == nil && strange == nil:
		err = errors.New("it ended without a result")
	}
	return nil, 1, &Error{CodeInternal, fmt.Sprintf("%s on %s, by `unbloat %[1]s`: %[3]v; what it changed is undone, and the daemon's log has what it said", args[0], r.status().WAN, cmp.Or(strange, err))}
}

// child runs unbloat itself. However this process ends, the child ends too, and its
// watchdog undoes what it has changed; no other daemon begins before, as it has our lock.
func (d *Daemon) child(ctx context.Context, args, env []string, out io.Writer) (exitCode int, err error) {
	runtime.LockOSThread() // see tie
	defer runtime.UnlockOSThread()
	c := exec.CommandContext(ctx, d.o.Program, args...)
	c.Env, c.Stdin, c.Stdout = append(os.Environ(), env...), d.lock.File(), out
	c.Stderr = &Lines{Each: func(line []byte) { d.trouble("%s", line) }}
	c.Cancel = func() error { return c.Process.Signal(os.Interrupt) } // it undoes what it has changed
	c.WaitDelay = mostUndo
	tie(c)
	if err = c.Run(); err != nil {
		err = fmt.Errorf("it ended with %w", err)
	}
	if exitCode = c.ProcessState.ExitCode(); exitCode < 0 { // it was killed, or did not even begin
		exitCode = 1
	}
	return exitCode, err
}

// Lines takes text apart: Each gets whole lines, without their end, one after the other.
// A line of more than MostLine bytes comes in pieces.
type Lines struct {
	Each func(line []byte)

	mu   sync.Mutex
	rest []byte
}

// Write implements io.Writer.
func (l *Lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rest = append(l.rest, b...)
	for {
		line, rest, whole := bytes.Cut(l.rest, []byte("\n"))
		if !whole && len(l.rest) <= MostLine {
			return len(b), nil
		}
		l.rest = rest
		if len(line) > 0 {
			l.Each(line)
		}
	}
}
