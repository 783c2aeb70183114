package lab

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"unbloat/internal/measure/phases"
)

// Agent is what runs inside the guest: it wires the home, does the task in the
// file, and writes the result to the folder shared with the host.
func Agent(ctx context.Context, specFile string) error {
	g, err := readGuest(specFile)
	if err != nil {
		return err
	}
	a := &agent{g: g, start: time.Now()}
	result, err := a.run(ctx)
	a.stopAll()
	if err == nil {
		result.VirtualSeconds = time.Since(a.start).Seconds()
	}
	return handBack(filepath.Dir(specFile), result, err)
}

// readGuest reads the task of a boot.
func readGuest(specFile string) (g Guest, err error) {
	text, err := os.ReadFile(specFile)
	if err != nil {
		return g, err
	}
	if err := json.Unmarshal(text, &g); err != nil {
		return g, fmt.Errorf("read %s: %w", specFile, err)
	}
	return g, nil
}

// handBack writes the result, or why there is none, to the folder shared with
// the host.
func handBack(dir string, result any, failed error) error {
	if failed != nil {
		return os.WriteFile(filepath.Join(dir, errorName), []byte(failed.Error()), 0o644)
	}
	text, err := json.Marshal(result)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, resultName), text, 0o644)
}

const linksSettle = 2 * time.Second

type agent struct {
	g       Guest
	start   time.Time
	running []*exec.Cmd // what stopAll ends
	met     routerID    // who the router's own image is, once it was met
}

// wire makes the home, and waits until its links carry packets.
func (a *agent) wire(ctx context.Context) error {
	for _, b := range wiring(a.g.Scenario, a.g.Engine, a.g.Router) {
		if err := runBatch(ctx, b); err != nil {
			return err
		}
	}
	if err := a.settings(ctx); err != nil {
		return err
	}
	// The kernel gathers link events for up to a second before it gives a new
	// interface its queue; until then packets vanish.
	return phases.Sleep(ctx, linksSettle)
}

func (a *agent) run(ctx context.Context) (*CaseResult, error) {
	if err := a.wire(ctx); err != nil {
		return nil, err
	}
	if len(a.g.Command) == 0 || a.g.Server {
		if err := a.startServer(ctx); err != nil {
			return nil, err
		}
	}
	switch {
	case a.g.Shell:
		return a.shell(ctx)
	case len(a.g.Command) > 0:
		return a.command(ctx)
	}
	return a.measure(ctx)
}

func runBatch(ctx context.Context, b batch) error {
	argv := b.argv()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Stdin = strings.NewReader(b.text())
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("wire the home: %s: %w: %s\nof:\n%s", strings.Join(argv, " "), err, strings.TrimSpace(string(out)), b.text())
	}
	return nil
}

// settings are those of the nodes' kernels: forwarding, and interfaces that
// hand over real packets instead of 64 kB bundles. Between namespaces a packet keeps
// the hash that its sender's socket gave it, and TCP takes another hash after each
// timeout. No wire carries a hash: a router would see the retransmission in a queue
// of its own. So a socket keeps its hash (net.core.txrehash).
func (a *agent) settings(ctx context.Context) error {
	hosts := a.g.Scenario.Hosts()
	for _, n := range nodes(hosts, a.g.Router) {
		script := "echo 1 > /proc/sys/net/ipv4/ip_forward; echo 0 > /proc/sys/net/core/txrehash; for i in $(ls /sys/class/net); do [ $i = lo ] || ethtool -K $i tso off gso off gro off >/dev/null 2>&1; done; true"
		if a.g.Scenario.Home.ECN {
			script = "echo 1 > /proc/sys/net/ipv4/tcp_ecn; " + script
		}
		if out, err := a.in(ctx, n, "sh", "-c", script).CombinedOutput(); err != nil {
			return fmt.Errorf("settings of %s: %w: %s", n, err, out)
		}
	}
	return nil
}

// in returns a command that runs in a node's namespace.
func (a *agent) in(ctx context.Context, node string, argv ...string) *exec.Cmd {
	return exec.CommandContext(ctx, "ip", append([]string{"netns", "exec", node}, argv...)...)
}

// unbloat returns a command of unbloat in a node's namespace.
func (a *agent) unbloat(ctx context.Context, node string, args ...string) *exec.Cmd {
	return a.in(ctx, node, append([]string{GuestUnbloat}, args...)...)
}

// self returns a command of this same program in a node's namespace.
func (a *agent) self(ctx context.Context, node string, args ...string) *exec.Cmd {
	return a.in(ctx, node, append([]string{GuestLab}, args...)...)
}

func (a *agent) stopAll() {
	for _, c := range a.running {
		_ = c.Process.Kill()
	}
}

// command runs a program in a node and keeps what it printed.
func (a *agent) command(ctx context.Context) (*CaseResult, error) {
	cmd := a.in(ctx, a.g.Node, a.g.Command...)
	cmd.Dir = a.g.Dir
	cmd.Env = append(os.Environ(), a.g.Env...)
	out, err := cmd.CombinedOutput()
	r := CommandResult{Output: string(out), ExitCode: cmd.ProcessState.ExitCode()}
	if cmd.ProcessState == nil {
		return nil, fmt.Errorf("run %s in %s: %w", strings.Join(a.g.Command, " "), a.g.Node, err)
	}
	return &CaseResult{Name: a.g.Case, Commands: []CommandResult{r}}, nil
}

// shell gives a prompt in a node.
func (a *agent) shell(ctx context.Context) (*CaseResult, error) {
	fmt.Printf("\n%s on a real kernel: nodes %s; the server is at %s.\nThis is %s; \"ip netns exec NODE sh\" enters another; exit ends everything.\n\n",
		a.g.Scenario.Name, strings.Join(nodes(a.g.Scenario.Hosts(), a.g.Router), ", "), Server(), a.g.Node)
	cmd := a.in(ctx, a.g.Node, "setsid", "-c", "bash", "--norc", "-i")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(append(os.Environ(), "PS1="+a.g.Node+"# ", "PATH="+filepath.Dir(GuestUnbloat)+":"+os.Getenv("PATH")), a.g.Env...)
	_ = cmd.Run() // a shell's exit code is its last command's
	return &CaseResult{}, nil
}
