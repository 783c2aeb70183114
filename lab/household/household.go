// Package household makes the loads of a scenario: what the people of a home do
// with its line while somebody calls. Each load is a process on its machine of
// the lab's emulated home, made by real programs where the kind has one
// (libtorrent, Dovecot and mbsync, dnsmasq, OpenSSH), else by real clients on
// real sockets, and each says what its user would feel.
package household

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"unbloat/internal/measure/phases"
	"unbloat/internal/measure/probe"
	"unbloat/internal/measure/verdict"
	"unbloat/lab/scenario"
	"unbloat/unit"
)

// A Task is one load, handed to the process that makes it.
type Task struct {
	Load  scenario.Load `json:"load"`
	Index int           `json:"index"` // of the load in its scenario, from 0
	Phase time.Duration `json:"phase"` // how long the loaded phase lasts
	From  time.Duration `json:"from"`  // since the phase began: what is counted
	To    time.Duration `json:"to"`
	Home  Home          `json:"home"`
}

// A Home says where in the lab a load finds what it needs.
type Home struct {
	Node       string `json:"node"`        // where the load itself runs
	Server     string `json:"server"`      // of `unbloat serve`, as measure.Dial takes it
	ServerNode string `json:"server_node"` // stands for all of the Internet
	RouterNode string `json:"router_node"`
	RouterAddr string `json:"router_addr"` // on the home's side
}

// An Outcome is what became of a load, in the clock that all of the guest shares.
type Outcome struct {
	Flows    *phases.FlowReport `json:"flows,omitempty"`
	Samples  []probe.Sample     `json:"samples,omitempty"` // of calls and games
	Sent     int                `json:"sent,omitempty"`    // datagrams of one-way streams
	Received int                `json:"received,omitempty"`
	Goodput  unit.Rate          `json:"goodput_bps,omitempty"` // of one-way streams
	Down     *verdict.Series    `json:"down,omitempty"`        // bytes that arrived in the home
	Up       *verdict.Series    `json:"up,omitempty"`          // bytes that arrived at the far side
	Bodies   []verdict.Series   `json:"bodies,omitempty"`      // of QUIC flows, one each
	QoE      QoE                `json:"felt"`
}

// Addresses of the Internet that the lab's server node stands for.
const (
	// Internet is the network whose addresses loads give to the server node: the
	// one for benchmarks (RFC 2544), because libtorrent treats private addresses
	// as those of machines in the same room, to which it uploads without limit.
	Internet = "198.18.0.0/16"
	// internetPrefix and the index of a load begin the addresses of its own.
	internetPrefix = "198.18"
)

// Ready is the line by which a load's process says that it is connected; it
// starts when it reads a line itself.
const Ready = "ready"

// A maker makes one load.
type maker interface {
	// prepare connects, and starts what the load needs elsewhere. Nothing that
	// would fill the line flows yet, or nothing any more.
	prepare(ctx context.Context) error
	// run makes the load for d.
	run(ctx context.Context, d time.Duration) (*Outcome, error)
	// close ends what prepare started.
	close()
}

// Run is the process that makes one load: it connects, says Ready on out,
// waits for a line on in, makes the load, and writes the Outcome as JSON.
func Run(ctx context.Context, task string, in io.Reader, out io.Writer) error {
	var t Task
	if err := json.Unmarshal([]byte(task), &t); err != nil {
		return fmt.Errorf("read the load: %w", err)
	}
	m := newMaker(t)
	if m == nil {
		return fmt.Errorf("load of %s: kind %q is not one the lab can make", t.Home.Node, t.Load.Kind)
	}
	defer m.close()
	wrap := func(err error) error { return fmt.Errorf("load %s of %s: %w", t.Load.Kind, t.Home.Node, err) }
	if err := m.prepare(ctx); err != nil {
		return wrap(err)
	}
	fmt.Fprintln(out, Ready)
	if _, err := bufio.NewReader(in).ReadString('\n'); err != nil {
		return fmt.Errorf("wait for the start: %w", err)
	}
	if err := phases.Sleep(ctx, t.Load.Start); err != nil {
		return err
	}
	d := t.Phase - t.Load.Start
	if t.Load.Stop > 0 {
		d = t.Load.Stop - t.Load.Start
	}
	o, err := m.run(ctx, d)
	if err != nil {
		return wrap(err)
	}
	return json.NewEncoder(out).Encode(o)
}
