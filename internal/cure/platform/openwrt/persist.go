package openwrt

import (
	"context"
	"fmt"
	"strings"

	"unbloat/internal/cure/lang/sqm"
	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform"
	"unbloat/internal/cure/platform/conf"
	"unbloat/internal/cure/platform/linux"
)

// InitScript applies a plan at boot without sqm-scripts.
const InitScript = "/etc/init.d/unbloat"

// initMark is the second line of our script. A script without it is not ours.
const initMark = "# Made by unbloat; `unbloat revert` removes it."

// A Persister makes a plan survive a reboot with a procd init script that runs its
// commands at boot and whenever the interface comes up. The script
// needs unbloat for the BPF program alone.
type Persister struct{ Runner platform.Runner }

// script writes the init script of a plan.
func script(p plan.Plan) (string, error) {
	commands, err := linux.FirstCommands(p)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	bpf := linux.Programs(p)
	line("#!/bin/sh /etc/rc.common\n%s\n\nSTART=95\nUSE_PROCD=1\n", initMark)
	bpf.Unjudged(&b, "logger -t unbloat")
	line("stop_service() {")
	sqm.Stop(&b, p, bpf)
	line("\treturn 0\n}\n\nstart_service() {\n\tstop_service")
	bpf.Start(&b, commands, func(argv []string) { line("\t%s || return 1", strings.Join(argv, " ")) })
	sqm.Start(&b, p)
	line("}\n\nservice_triggers() {\n\tprocd_add_raw_trigger \"interface.*.up\" 2000 %s restart\n}", InitScript)
	return b.String(), nil
}

// Persist writes the script and enables it.
func (k Persister) Persist(ctx context.Context, p plan.Plan) error {
	text, err := script(p)
	if err != nil {
		return fmt.Errorf("keep the plan over a reboot: %w", err)
	}
	now, err := conf.Read(ctx, k.Runner, InitScript)
	if err != nil {
		return err
	}
	if f := now.Get(InitScript); f.Exists && !strings.Contains(string(f.Content), initMark) {
		return &platform.PreconditionError{Doing: "keep the plan over a reboot", What: InitScript + " is there and was not made by unbloat", Remedy: "rename or remove it, or leave out --persist"}
	}
	steps := conf.Steps(now, now.Put(InitScript, text, "755"), nil)
	return k.run(ctx, append(steps, platform.Step{Argv: []string{InitScript, "enable"}}))
}

func (k Persister) run(ctx context.Context, steps []platform.Step) error {
	for _, s := range steps {
		if _, errOut, err := k.Runner.Run(ctx, s.Argv, []byte(s.Stdin)); err != nil {
			return &platform.CommandError{Argv: s.Argv, Stderr: string(errOut), Err: err}
		}
	}
	return nil
}

// Forget removes what Keep wrote. done is false if there was nothing to remove.
func (k Persister) Forget(ctx context.Context) (done bool, err error) {
	if !k.Persists() {
		return false, nil
	}
	return true, k.run(ctx, []platform.Step{{Argv: []string{InitScript, "disable"}}, {Argv: []string{"rm", "-f", InitScript}}})
}

// Persists reports whether a plan is applied at boot.
func (k Persister) Persists() bool {
	out, err := platform.Output(context.Background(), k.Runner, "cat", InitScript)
	return err == nil && strings.Contains(string(out), initMark)
}
