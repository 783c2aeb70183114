package lab

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"unbloat/internal/cure/plan"
	"unbloat/lab/scenario"
)

// A foreignRouter is a router's own image as the agent sees it from home1.
type foreignRouter struct {
	a      *agent
	id     routerID
	before string // what its own commands said before the case
	after  RouterCase
}

// foreignState is where home1 keeps its journal of the router, and the router's keys.
const foreignState = "/run/router"

// startDHCP starts the provider's DHCP server, which gives the router's WAN its address.
func (a *agent) startDHCP(ctx context.Context) error {
	if err := os.MkdirAll(foreignState, 0o700); err != nil {
		return err
	}
	dhcp := a.in(ctx, NodeISP, "dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--user=root", "--pid-file=", "--port=0",
		"--interface="+ispHome, "--bind-interfaces", "--dhcp-leasefile="+filepath.Join(foreignState, "leases"), "--dhcp-authoritative",
		"--dhcp-range="+routerWAN4+","+routerWAN4+",infinite", "--dhcp-host="+routerMACs()[WAN]+","+routerWAN4,
		"--dhcp-option=option:router,"+ispHome4, "--dhcp-option=option:dns-server,"+ispHome4)
	if err := dhcp.Start(); err != nil {
		return fmt.Errorf("start the provider's DHCP server: %w", err)
	}
	a.running = append(a.running, dhcp)
	return nil
}

// meetRouter waits until the router answers, and leads to the server.
func (a *agent) meetRouter(ctx context.Context) error {
	out, err := output(a.self(ctx, Host(1), "lab-meet", guestOut+"/"+specName, foreignState))
	if err != nil {
		return err
	}
	if err := json.Unmarshal(out, &a.met); err != nil {
		return fmt.Errorf("read who the router is: %w", err)
	}
	return nil
}

// look returns what the router's own commands say of its queues and links; ""
// where it is not reached by SSH, or speaks no tc.
func (f *foreignRouter) look(ctx context.Context) (string, error) {
	if f.a.g.Router.rest() {
		return "", nil
	}
	out, err := output(f.a.self(ctx, Host(1), "lab-look", guestOut+"/"+specName, foreignState))
	return string(out), err
}

// command is one of this program on home1 that works on the router.
func (f *foreignRouter) command(ctx context.Context, args ...string) *exec.Cmd {
	r := f.a.g.Router
	args = append(args, r.way(f.id)...)
	return f.a.unbloat(ctx, Host(1), args...)
}

// changing is a command that keeps a journal.
func (f *foreignRouter) changing(ctx context.Context, args ...string) *exec.Cmd {
	return f.command(ctx, append(append(args, "--state-dir", foreignState), f.a.g.Router.platform()...)...)
}

// fix has the router carry out a shaping by hand: planned for its capabilities, and applied.
func (f *foreignRouter) fix(ctx context.Context, fix *scenario.Fix) (*plan.Plan, error) {
	r := f.a.g.Router
	args, err := fixArguments(f.a.g.Scenario.Line, fix)
	if err != nil {
		return nil, err
	}
	args = append(append(append([]string{"plan", "--json"}, args...), r.interfaces()...), r.platform()...)
	text, err := output(f.command(ctx, args...))
	if err != nil {
		return nil, err
	}
	var p plan.Plan
	if err := json.Unmarshal(text, &p); err != nil {
		return nil, fmt.Errorf("read the plan: %w", err)
	}
	file := filepath.Join(foreignState, "plan.json")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return nil, err
	}
	_, err = output(f.changing(ctx, "apply", "--yes", file))
	return &p, err
}

// tune has home1 find the router's shaping.
func (f *foreignRouter) tune(ctx context.Context) (*plan.Plan, *TuneResult, error) {
	return runTune(f.changing(ctx, append(f.a.tuneArguments(), f.a.g.Router.interfaces()...)...))
}

// status is what `unbloat status` says of the router.
func (f *foreignRouter) status(ctx context.Context) (json.RawMessage, error) {
	args := []string{"status", "--json"}
	if wan := f.a.g.Router.WAN; wan != "" {
		args = append(args, "--wan", wan)
	}
	out, err := output(f.changing(ctx, args...))
	return json.RawMessage(out), err
}

// undo takes back what the case changed on the router, and compares.
func (f *foreignRouter) undo(ctx context.Context, changed bool) (err error) {
	if changed {
		if _, err := output(f.changing(ctx, "revert")); err != nil {
			return fmt.Errorf("undo the case on the router: %w", err)
		}
	}
	if f.after.Reverted, err = f.status(ctx); err != nil {
		return err
	}
	now, err := f.look(ctx)
	f.after.Left = differences(f.before, now)
	return err
}
