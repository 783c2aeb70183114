package linux

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform"
)

// unitMark is the first line of our unit file. A file without it is not ours.
const unitMark = "# Made by unbloat; `unbloat revert` removes it."

// A Persister makes a plan survive a reboot with a plan file and a systemd unit
// that applies it. Root is prefixed to every path ("" is the real system).
type Persister struct {
	Root   string
	Exe    string // absolute path of the program
	Runner platform.Runner
}

func (k Persister) planPath() string { return k.Root + "/etc/unbloat/plan.json" }
func (k Persister) unitPath() string { return k.Root + "/etc/systemd/system/unbloat.service" }
func (k Persister) wantPath() string {
	return k.Root + "/etc/systemd/system/multi-user.target.wants/unbloat.service"
}

// unit returns the unit file. It restarts on failure, since PPPoE may come up
// long after network-online.target.
func (k Persister) unit(wan string) string {
	return strings.Join([]string{unitMark,
		"[Unit]",
		"Description=Shape the internet line on " + wan + " (unbloat)",
		"Wants=network-online.target",
		"After=network.target network-online.target",
		"StartLimitIntervalSec=0",
		"",
		"[Service]",
		"Type=oneshot",
		"RemainAfterExit=yes",
		"ExecStart=" + k.Exe + " apply --yes --quiet /etc/unbloat/plan.json",
		"Restart=on-failure",
		"RestartSec=10",
		"RestartPreventExitStatus=2 3", // retrying an unreadable plan is useless, and one that stops connections does so again
		"",
		"[Install]",
		"WantedBy=multi-user.target",
		""}, "\n")
}

// Persist writes plan and unit and enables the unit. It returns an error if a
// foreign unit has the same name. There is one plan: that of another WAN is
// replaced.
func (k Persister) Persist(ctx context.Context, p plan.Plan) error {
	if err := k.checkUnit(); err != nil {
		return err
	}
	b, err := json.MarshalIndent(p, "", " ")
	if err != nil {
		return fmt.Errorf("keep the plan: %w", err)
	}
	for _, f := range []struct {
		path, text string
		mode       fs.FileMode
	}{{k.planPath(), string(b) + "\n", 0o600}, {k.unitPath(), k.unit(p.WAN), 0o644}} {
		if err := replaceFile(f.path, f.text, f.mode); err != nil {
			return fmt.Errorf("keep the plan over a reboot: %w", err)
		}
	}
	if err := os.MkdirAll(filepath.Dir(k.wantPath()), 0o755); err != nil {
		return fmt.Errorf("enable the unit: %w", err)
	}
	if err := os.Symlink("/etc/systemd/system/unbloat.service", k.wantPath()); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("enable the unit: %w", err)
	}
	k.reload(ctx)
	return nil
}

// Forget removes what Keep wrote. done is false if there was nothing to remove.
func (k Persister) Forget(ctx context.Context) (done bool, err error) {
	if b, err := os.ReadFile(k.unitPath()); err == nil && !strings.HasPrefix(string(b), unitMark) {
		return false, nil
	}
	for _, path := range []string{k.wantPath(), k.unitPath(), k.planPath()} {
		if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err := os.Remove(path); err != nil {
			return done, fmt.Errorf("stop keeping the plan: %w", err)
		}
		done = true
	}
	if done {
		_ = os.Remove(filepath.Dir(k.planPath())) // succeeds only if it is empty
		k.reload(ctx)
	}
	return done, nil
}

// Persists reports whether a plan is applied at boot.
func (k Persister) Persists() bool {
	b, err := os.ReadFile(k.unitPath())
	return err == nil && strings.HasPrefix(string(b), unitMark)
}

// checkUnit returns an error if a foreign unit has our name.
func (k Persister) checkUnit() error {
	b, err := os.ReadFile(k.unitPath())
	if err == nil && !strings.HasPrefix(string(b), unitMark) {
		return &platform.PreconditionError{Doing: "keep the plan over a reboot", What: k.unitPath() + " is there and was not made by unbloat",
			Remedy: "rename or remove it, or leave out --persist"}
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("keep the plan over a reboot: %w", err)
	}
	if _, err := os.Stat(k.Root + "/etc/systemd/system"); err != nil {
		return &platform.PreconditionError{Doing: "keep the plan over a reboot", What: "this system has no /etc/systemd/system",
			Remedy: "call `unbloat apply --yes PLAN` from its own start scripts", Err: err}
	}
	return nil
}

// reload makes a running systemd read the change; without systemd the files are
// enough.
func (k Persister) reload(ctx context.Context) {
	if _, err := os.Stat(k.Root + "/run/systemd/system"); err == nil && k.Runner != nil && k.Root == "" {
		_, _, _ = k.Runner.Run(ctx, []string{"systemctl", "daemon-reload"}, nil)
	}
}

func replaceFile(path, text string, mode fs.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".unbloat-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.WriteString(text)
	if err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
