package lab

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"unbloat/internal/cure/plan"
	"unbloat/internal/measure/phases"
	"unbloat/lab/scenario"
	"unbloat/unit"
)

// Where the router keeps what follows its line.
const (
	followDir    = "/run/unbloatd"
	followConfig = followDir + "/unbloat.toml"
	followSocket = followDir + "/unbloatd.sock"
	followLog    = followDir + "/decisions.log"
)

// followSettles is how long what follows the line has before the measuring begins.
const followSettles = 3 * time.Second

// daemonConfig is the configuration of `unbloat daemon` for a case.
func daemonConfig(d *scenario.Daemon, log bool) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "[[wan]]\ninterface = %q\nlan = %q\n", RouterWAN, RouterLAN)
	for _, k := range []struct {
		key  string
		rate unit.Rate
	}{{"down", d.Down}, {"up", d.Up}, {"least_down", d.LeastDown}, {"most_down", d.MostDown}, {"least_up", d.LeastUp}, {"most_up", d.MostUp}} {
		if k.rate > 0 {
			fmt.Fprintf(&b, "%s = \"%dbit\"\n", k.key, k.rate)
		}
	}
	if d.Follow {
		fmt.Fprintf(&b, "follow = true\nreflectors = [\"%s\"]\n", strings.Join(Reflectors(), `", "`))
		if log {
			fmt.Fprintf(&b, "decisions = %q\n", followLog)
		}
	}
	return b.Bytes()
}

// daemon starts `unbloat daemon` on the router, and waits until it keeps the WAN.
func (a *agent) daemon(ctx context.Context, d *scenario.Daemon) error {
	if err := os.MkdirAll(followDir, 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(followConfig, daemonConfig(d, a.g.Log), 0o600); err != nil {
		return err
	}
	cmd := a.unbloat(ctx, NodeRouter, "daemon", "--config", followConfig, "--state-dir", followDir)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, io.MultiWriter(&said, os.Stderr)
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the daemon: %w", err)
	}
	a.running = append(a.running, cmd)
	for range 200 {
		if s, err := askDaemon(ctx); err == nil && s.State == "in place" && (s.Line != nil || !d.Follow) {
			return phases.Sleep(ctx, followSettles)
		}
		if err := phases.Sleep(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
	return fmt.Errorf("the daemon does not keep the WAN; it says: %s", cmp.Or(strings.TrimSpace(said.String()), "nothing"))
}

// wanStatus is what the lab reads of what the daemon says of its WAN.
type wanStatus struct {
	State string `json:"state"`
	Line  *struct {
		ProbeBytes uint64 `json:"probe_bytes"`
	} `json:"line"`
}

// askDaemon asks the daemon by its socket how its one WAN is.
func askDaemon(ctx context.Context) (s wanStatus, err error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", followSocket)
	if err != nil {
		return s, err
	}
	defer c.Close()
	if _, err := io.WriteString(c, "{\"id\":1,\"method\":\"status\"}\n"); err != nil {
		return s, err
	}
	line, err := bufio.NewReader(c).ReadBytes('\n')
	if err != nil {
		return s, err
	}
	var answer struct {
		Result struct {
			WANs []wanStatus `json:"wans"`
		} `json:"result"`
	}
	if err := json.Unmarshal(line, &answer); err != nil {
		return s, err
	}
	if len(answer.Result.WANs) != 1 {
		return s, errors.New("the daemon does not speak of one WAN")
	}
	return answer.Result.WANs[0], nil
}

// autorateConfig is what cake-autorate is told: the interfaces, the reflectors and
// the rates. All else is its own defaults.
func autorateConfig(d *scenario.Daemon) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "dl_if=%s\nul_if=%s\nreflectors=(\"%s\")\n", plan.IFBName(RouterWAN), RouterWAN, strings.Join(Reflectors(), `" "`))
	for _, k := range []struct {
		key  string
		rate unit.Rate
	}{{"min_dl", d.LeastDown}, {"base_dl", d.Down}, {"max_dl", d.MostDown}, {"min_ul", d.LeastUp}, {"base_ul", d.Up}, {"max_ul", d.MostUp}} {
		fmt.Fprintf(&b, "%s_shaper_rate_kbps=%d\n", k.key, k.rate/unit.KbitPerSecond)
	}
	// It starts only if what it takes for activity is below the least rates.
	fmt.Fprintf(&b, "connection_active_thr_kbps=%d\n", min(2*unit.MbitPerSecond, d.LeastDown, d.LeastUp)/unit.KbitPerSecond)
	return b.Bytes()
}

// autorate shapes the line with CAKE at the usual rates, and has cake-autorate,
// unchanged, follow it.
func (a *agent) autorate(ctx context.Context, d *scenario.Daemon) (*plan.Plan, error) {
	p, err := a.fix(ctx, &scenario.Fix{AQM: string(plan.CAKE), Down: d.Down, Up: d.Up})
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(followDir, 0o700); err != nil {
		return nil, err
	}
	config := filepath.Join(followDir, "config.lab.sh")
	if err := os.WriteFile(config, autorateConfig(d), 0o600); err != nil {
		return nil, err
	}
	if err := os.Symlink("/proc/self/fd", "/dev/fd"); err != nil && !errors.Is(err, os.ErrExist) { // bash's process substitution
		return nil, err
	}
	cmd := a.in(ctx, NodeRouter, "setsid", "bash", filepath.Join(a.g.Autorate, autorateProgram), config)
	cmd.Env = append(os.Environ(), "CAKE_AUTORATE_SCRIPT_PREFIX="+a.g.Autorate)
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start cake-autorate: %w", err)
	}
	a.running = append(a.running, cmd)
	if err := phases.Sleep(ctx, followSettles); err != nil {
		return nil, err
	}
	// Its probes are the proof that it runs.
	if out, err := exec.CommandContext(ctx, "ip", "netns", "pids", NodeRouter).Output(); err != nil || !running(string(out), "fping") {
		text, _ := os.ReadFile("/var/log/cake-autorate.lab.log")
		return nil, fmt.Errorf("cake-autorate sends no probes; it says: %s", cmp.Or(strings.TrimSpace(string(text)), "nothing"))
	}
	return p, nil
}

// running says whether one of the processes, a number a line, has this name.
func running(pids, name string) bool {
	for pid := range strings.FieldsSeq(pids) {
		if text, err := os.ReadFile(filepath.Join("/proc", pid, "comm")); err == nil && strings.TrimSpace(string(text)) == name {
			return true
		}
	}
	return false
}

// watchShapers starts what looks at the router's shapers; the returned function
// ends it and says what it saw.
func (a *agent) watchShapers(ctx context.Context) (stop func() (*ShaperRates, error), err error) {
	cmd := a.self(ctx, NodeRouter, "lab-shapers", RouterWAN)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("watch the shapers: %w", err)
	}
	return func() (*ShaperRates, error) {
		if err := errors.Join(in.Close(), cmd.Wait()); err != nil {
			return nil, fmt.Errorf("watch the shapers: %w: %s", err, errs.String())
		}
		var s ShaperRates
		if err := json.Unmarshal(out.Bytes(), &s); err != nil {
			return nil, fmt.Errorf("watch the shapers: %w", err)
		}
		return &s, nil
	}, nil
}
