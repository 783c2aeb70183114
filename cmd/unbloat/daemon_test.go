package main

import (
	"context"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"unbloat/internal/cure/apply"
	"unbloat/internal/cure/platform"
	"unbloat/internal/cure/platform/openwrt"
	kept "unbloat/internal/keep/config"
	"unbloat/internal/keep/daemon"
	"unbloat/internal/keep/supervise"
	"unbloat/internal/show/cli"
	"unbloat/testkit/await"
	"unbloat/testkit/fake"
	"unbloat/unit"
)

// daemon starts the daemon on a stage and returns its process.
func (s *stage) daemon(t *testing.T, config string) (*exec.Cmd, *said) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(self, "daemon", "--config", config)
	c.Env = append(os.Environ(), asProgram+"=1", "PATH="+s.path, "UNBLOAT_STATE_DIR="+s.state)
	var out said
	c.Stdout, c.Stderr = &out, &out
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait(); s.unwatched(t) })
	return c, &out
}

// unwatched waits until the stage's watchdogs have ended. One that lost its daemon in
// the middle of a change undoes it first, and writes to the state directory.
func (s *stage) unwatched(t *testing.T) {
	t.Helper()
	locks, _ := filepath.Glob(filepath.Join(s.state, "*.watchdog"))
	for _, name := range locks {
		await.Until(t, time.Minute, "the watchdog of "+name+" to end", func() bool {
			l, err := apply.TryLock(name)
			if err == nil {
				l.Unlock()
			}
			return err == nil
		})
	}
}

// kept is how the daemon keeps the only WAN; its state is "" if it does not answer.
func (s *stage) kept(ctx context.Context) daemon.WANStatus {
	c, err := daemon.Dial(ctx, daemon.Socket(s.state))
	if err != nil {
		return daemon.WANStatus{}
	}
	defer c.Close()
	var is daemon.Status
	if err := c.Call(ctx, daemon.MethodStatus, "", "", nil, &is); err != nil || len(is.WANs) != 1 {
		return daemon.WANStatus{}
	}
	return is.WANs[0]
}

// TestDaemonPrint: the configuration is printed as OpenWrt writes it, and back.
func TestDaemonPrint(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) (string, string, int) {
		code, out, errs := ran(t, []string{asProgram + "=1"}, append([]string{self, "daemon"}, args...)...)
		return out, errs, code
	}
	toml := filepath.Join(t.TempDir(), "unbloat.toml")
	uci := filepath.Join(t.TempDir(), "unbloat")
	const text = "[[wan]]\ninterface = \"eth0\"\ndown = \"50 Mbit/s\"\nfollow = false\n\n[ui]\nlisten = \"192.168.1.1:7690\"\n"
	if err := os.WriteFile(toml, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	out, errs, code := run("--config", toml, "--print", "uci")
	if code != 0 || out != "config wan\n\toption interface 'eth0'\n\toption down '50 Mbit/s'\n\toption follow '0'\n\nconfig ui 'page'\n\toption listen '192.168.1.1:7690'\n" {
		t.Errorf("exit %d: %q %s", code, out, errs)
	}
	if err := os.WriteFile(uci, []byte(out), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, errs, code := run("--config", uci, "--print", "toml"); code != 0 || out != text {
		t.Errorf("exit %d: %q %s", code, out, errs)
	}
	if _, errs, code := run("--config", uci, "--print", "yaml"); code != cli.Usage || !strings.Contains(errs, "must be toml or uci") {
		t.Errorf("exit %d: %s", code, errs)
	}
}

// TestDaemon: the daemon as a person uses it, on the platforms whose router is in
// memory: it applies its configuration, commands go through it, and what is there
// when it is killed is there when it comes back.
func TestDaemon(t *testing.T) {
	for _, p := range stages() {
		if p.platform == "openbsd-altq" || p.platform == "pfsense" {
			continue // as openbsd and freebsd; each takes seconds of programs
		}
		if testing.Short() && p.platform != "openbsd" {
			continue // one will do after an edit
		}
		t.Run(p.platform, func(t *testing.T) {
			s := p.make(t)
			start := s.Text()
			config := filepath.Join(t.TempDir(), "unbloat.toml")
			down := "down = \"40 Mbit/s\""
			text := "[[wan]]\ninterface = \"" + p.wan + "\" # the modem\nlan = \"" + p.lan + "\"\nplatform = \"" + p.platform + "\"\ndown = \"50 Mbit/s\"\nup = \"10 Mbit/s\"\n"
			uci := p.platform == "openbsd" // OpenWrt's way to write it, which every daemon reads
			if uci {
				config, down = filepath.Join(t.TempDir(), "etc/config/unbloat"), "option down '40 Mbit/s'"
				if err := os.MkdirAll(filepath.Dir(config), 0o755); err != nil {
					t.Fatal(err)
				}
				text = "config wan 'home'\n\toption interface '" + p.wan + "' # the modem\n\toption lan '" + p.lan + "'\n\toption platform '" + p.platform + "'\n\toption down '50 Mbit/s'\n\toption up '10 Mbit/s'\n"
			}
			if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
			run := func(want int, says string, args ...string) {
				t.Helper()
				if out, code := s.run(t, args...); code != want || !strings.Contains(out, says) {
					t.Fatalf("%q: exit %d, want %d with %q\n%s", args, code, want, says, out)
				}
			}
			run(0, "down carries 50 Mbit/s", "daemon", "--check", "--config", config)
			cmd, log := s.daemon(t, config)
			is := func(what string, state supervise.State) {
				t.Helper()
				defer func() {
					if t.Failed() {
						t.Logf("the daemon said:\n%s", log)
					}
				}()
				await.Until(t, 2*time.Minute, what, func() bool { return s.kept(t.Context()).State == state })
			}
			is("the daemon to apply its configuration", supervise.InPlace)
			applied := s.Text()
			if applied == start {
				t.Fatalf("it applied nothing:\n%s", log)
			}
			run(0, "The daemon: "+p.wan+" is kept at", "status", "--wan", p.wan, "--for", p.platform)
			at := []string{"--wan", p.wan, "--for", p.platform}
			rates := append([]string{"apply", "--down", "40mbit", "--up", "8mbit", "--lan", p.lan}, at...)
			run(0, "undone in", rates...)
			run(0, "Kept", append([]string{"confirm"}, at...)...)
			kept := s.Text()
			if text, err := os.ReadFile(config); err != nil || kept == applied || !strings.Contains(string(text), down) || !strings.Contains(string(text), "# the modem") {
				t.Errorf("%v: it kept\n%s\nand the configuration is\n%s", err, kept, text)
			}
			again := func() {
				t.Helper()
				if err := cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
				_ = cmd.Wait()
				cmd, log = s.daemon(t, config)
			}
			again()
			is("the daemon to find what it left", supervise.InPlace)
			if now := s.Text(); now != kept {
				t.Errorf("it was killed, and now it is\n%s\nit was\n%s\nit says %s", now, kept, log)
			}
			await.Until(t, time.Minute, "the daemon to say that nothing was changed", func() bool { return strings.Contains(log.String(), "nothing was changed") })
			run(0, "is off", append([]string{"revert"}, at...)...)
			if now := s.Text(); now != start {
				t.Errorf("reverted, it is\n%s\nit was\n%s", now, start)
			}
			again()
			is("the daemon to know that it is off", supervise.Suspended)
			if files, err := os.ReadDir(filepath.Dir(config)); err != nil || uci && len(files) != 1 {
				t.Errorf("beside /etc/config/unbloat is %v, %v", files, err)
			}
			run(0, "is kept at", append([]string{"apply", "--again", "--yes"}, at...)...)
			if s.Text() != kept {
				t.Errorf("it is on, and it is\n%s", s.Text())
			}
			if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			if err := cmd.Wait(); err != nil || s.Text() != kept {
				t.Errorf("it ended with %v and left\n%s", err, s.Text())
			}
		})
	}
}

// TestFollowRefused: what a platform can't do is refused when the configuration is
// read, with the line and the reason.
func TestFollowRefused(t *testing.T) {
	file := filepath.Join(t.TempDir(), "unbloat.toml")
	for _, x := range []struct{ more, want string }{
		{"platform = \"freebsd\"", ""},
		{"platform = \"pfsense\"", ""},
		{"platform = \"openbsd\"\nlan = \"em1\"", ""},
		{"router = \"opnsense+https://127.0.0.1\"", ""}, // of its interface "wan"
		{"platform = \"openbsd-altq\"\nlan = \"em1\"", ":5: follow: on openbsd-altq a shaper can't get another rate in place"},
		{"platform = \"clearos\"\nlan = \"em1\"", ":5: follow: on clearos a shaper can't"},
		{"platform = \"freebsd\"\nclasses = \"on\"", ":5: follow: on freebsd it takes a plan without classes"},
		{"platform = \"linux\"\naqm = \"fq_codel\"", ":5: follow: it takes CAKE"},
		{"router = \"ssh://root@192.0.2.1\"", ":5: follow: only the router itself can follow its line"},
		{"router = \"opnsense+https://192.0.2.1\"", ":5: follow: only the router itself can follow its line"},
	} {
		text := "[[wan]]\ninterface = \"em0\"\ndown = \"50 Mbit/s\"\nup = \"10 Mbit/s\"\nfollow = true\n" + x.more + "\n"
		if x.want == "" && strings.Contains(x.more, "opnsense") {
			text = strings.Replace(text, "em0", "wan", 1)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		f := daemonFlags{config: file}
		_, err := daemon.Load(t.Context(), file, f.checker())
		if x.want == "" && err != nil || x.want != "" && (err == nil || !strings.Contains(err.Error(), x.want)) {
			t.Errorf("%s: %v, want %q", x.more, err, x.want)
		}
	}
}

// TestDaemonThatKeepsDying: killed at random moments again and again, the daemon comes
// up with the rates of the configuration, follows no line and says so, until it is
// reloaded; one that ends as it should is not counted.
func TestDaemonThatKeepsDying(t *testing.T) {
	await.NotShort(t)
	seed := rand.Uint64()
	t.Log("seed", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	f := fake.NewLinux()
	s := newStage(t, f.Machine, f, f.Text)
	const wan, lan, platform = "wan", "lan", "linux"
	config := filepath.Join(t.TempDir(), "unbloat.toml")
	text := "[[wan]]\ninterface = \"" + wan + "\"\nlan = \"" + lan + "\"\nplatform = \"" + platform + "\"\ndown = \"50 Mbit/s\"\nup = \"10 Mbit/s\"\nfollow = true\n"
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	ask := func() (is daemon.Status) {
		c, err := daemon.Dial(t.Context(), daemon.Socket(s.state))
		if err != nil {
			return is
		}
		defer c.Close()
		_ = c.Call(t.Context(), daemon.MethodStatus, "", "", nil, &is)
		return is
	}
	state := func() supervise.State { return s.kept(t.Context()).State }
	var log *said
	cmd, _ := s.daemon(t, config)
	await.Until(t, 40*time.Second, "the first start", func() bool { return state() == supervise.InPlace })
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		cmd, log = s.daemon(t, config)
		await.Until(t, 40*time.Second, "the daemon to answer", func() bool { return ask().PID == cmd.Process.Pid })
		if is := ask(); (is.Careful != "") != (i == 4) {
			t.Fatalf("start %d: careful: %q", i+1, is.Careful)
		}
		if i == 4 {
			break
		}
		for range random.IntN(200) { // each takes some milliseconds
			ask()
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
	}
	await.Until(t, 40*time.Second, "the daemon to shape the line", func() bool { return state() == supervise.InPlace })
	if is := ask(); is.WANs[0].Line != nil {
		t.Errorf("%+v\n%s", is, log)
	}
	await.Until(t, time.Minute, "the daemon to say why", func() bool { return strings.Contains(log.String(), "was started 5 times within 10m0s") })
	if out, _ := s.run(t, "status", "--wan", wan, "--for", platform); !strings.Contains(out, "WARNING: the daemon was started 5 times") {
		t.Errorf("status says\n%s", out)
	}
	if err := cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	await.Until(t, 40*time.Second, "the line to be followed again", func() bool { is := ask(); return is.Careful == "" && len(is.WANs) == 1 && is.WANs[0].Line != nil })
}

// TestDaemonSchedule: a machine that goes first by the schedule has a rule of its own
// while that holds, and a reload without the schedule takes it away; what the platform
// can't do is refused when the configuration is read.
func TestDaemonSchedule(t *testing.T) {
	await.NotShort(t)
	f := fake.NewLinux()
	s := newStage(t, f.Machine, f, f.Text)
	config := filepath.Join(t.TempDir(), "unbloat.toml")
	write := func(text string) {
		if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	const line = "[[wan]]\ninterface = \"wan\"\nlan = \"lan\"\nplatform = \"linux\"\ndown = \"50 Mbit/s\"\nup = \"10 Mbit/s\"\n"
	// Both together hold at any time.
	const first = "[[schedule]]\ndo = \"first\"\nmachine = \"192.168.1.77\"\nfrom = \"00:00\"\nto = \"12:00\"\n[[schedule]]\ndo = \"first\"\nmachine = \"192.168.1.77\"\nfrom = \"12:00\"\nto = \"00:00\"\n"
	write(line + first)
	if out, code := s.run(t, "daemon", "--check", "--config", config); code != 0 || !strings.Contains(out, "wan: schedule: 192.168.1.77 goes first, every day from 00:00 to 12:00") {
		t.Errorf("exit %d: %s", code, out)
	}
	cmd, log := s.daemon(t, config)
	await.Until(t, 40*time.Second, "the machine's rule", func() bool {
		return s.kept(t.Context()).State == supervise.InPlace && strings.Contains(s.Text(), "192.168.1.77")
	})
	write(line)
	if err := cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	await.Until(t, 40*time.Second, "the rule to go", func() bool {
		return s.kept(t.Context()).State == supervise.InPlace && !strings.Contains(s.Text(), "192.168.1.77") && strings.Contains(log.String(), "reloaded")
	})
	write(strings.Replace(line, "linux", "pfsense", 1) + first)
	if out, code := s.run(t, "daemon", "--check", "--config", config); code != cli.Usage || !strings.Contains(out, "unbloat.toml:7: schedule: on pfsense a machine can't go first or last") {
		t.Errorf("exit %d: %s", code, out)
	}
}

// TestDaemonBesideSQM: on OpenWrt the daemon refuses a WAN that sqm-scripts shapes, with
// the way to hand it over, and keeps it once it is handed over.
func TestDaemonBesideSQM(t *testing.T) {
	o := fake.NewOpenWrt()
	driver := openwrt.Driver().OwnTC()
	b, err := driver.Backend(platform.Options{Runner: o})
	if err != nil {
		t.Fatal(err)
	}
	r := &router{driver: driver, runner: o, engine: &apply.Engine{Backend: b, Runner: o, Dir: t.TempDir()}, owned: true}
	w := kept.WAN{Interface: "wan", LAN: "lan", Down: 50 * unit.MbitPerSecond, Up: 10 * unit.MbitPerSecond}
	for _, enabled := range []string{"1", "0"} {
		o.Files[fake.SQMConfig] = "config queue 'home'\n\toption enabled '" + enabled + "'\n\toption interface 'wan'\n"
		p, err := planOf(t.Context(), r, w)
		if enabled == "1" {
			if codeOf(err) != daemon.CodePrecondition || !strings.Contains(err.Error(), "sqm-scripts shapes it too (section home); hand it over: uci set sqm.home.enabled=0") {
				t.Errorf("beside sqm-scripts: %v", err)
			}
		} else if err != nil || p.DownBps == 0 {
			t.Errorf("handed over: %v %+v", err, p)
		}
	}
}
