package main

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"unbloat/internal/cure/plan"
	"unbloat/internal/show/cli"
	"unbloat/lab"
	"unbloat/lab/scenario"
	"unbloat/testkit/await"
	"unbloat/testkit/labtest"
	"unbloat/unit"
)

// A person answers questions at a terminal.
type person struct {
	t    *testing.T
	term *await.Terminal
	read int // how much of the output was read
}

// answers waits for a question and types an answer.
func (p *person) answers(question, answer string) {
	p.t.Helper()
	await.Until(p.t, 5*time.Minute, "the question "+question, func() bool { // virtual time
		text := p.term.Text()
		i := strings.Index(text[p.read:], question)
		if i >= 0 {
			p.read += i + len(question)
		}
		return i >= 0
	})
	if _, err := p.term.Keys.WriteString(answer + "\n"); err != nil {
		p.t.Fatal(err)
	}
}

// transcriptMark begins the line in which the guest passes the transcript to
// the host.
const transcriptMark = "transcript of a first use: "

// asDocumented compares the questions and commands with those in a block of
// docs/first-use.md, counted from 0.
func asDocumented(t *testing.T, output string, block int) {
	t.Helper()
	_, rest, found := strings.Cut(output, transcriptMark)
	if !found {
		return // it failed or was skipped, and has said so
	}
	line, _, _ := strings.Cut(rest, "\n")
	b, err := base64.StdEncoding.DecodeString(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	text := regexp.MustCompile(`(?:\r\x1b\[K[^\r\n]*)+\r\x1b\[K`).ReplaceAllString(string(b), "")
	text = regexp.MustCompile(`/tmp/unbloat-\d+`).ReplaceAllString(text, "/tmp/unbloat-1")
	const file, fence = "../../docs/first-use.md", "```\n"
	was, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(string(was), fence) // those with odd numbers are within fences
	at := 2*block + 1
	if at >= len(parts) {
		t.Fatalf("%s has no block %d", file, block)
	}
	if block > 0 {
		text = brief(text)
	}
	digits := regexp.MustCompile(`[0-9][0-9.,]*`)
	asked := func(text string) (out []string) { // the questions and commands: the figures between them differ from run to run
		for line := range strings.Lines(text) {
			if strings.HasPrefix(line, "$ unbloat") || strings.Contains(line, "[Y/n]") || strings.Contains(line, "[y/N]") {
				out = append(out, strings.TrimSpace(digits.ReplaceAllString(line, "N")))
			}
		}
		return out
	}
	if *updatePlans {
		parts[at] = text
		if err := os.WriteFile(file, []byte(strings.Join(parts, fence)), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if d := cmp.Diff(asked(parts[at]), asked(text)); d != "" {
		t.Errorf("%s has another transcript (-update rewrites it): -was +now\n%s", file, d)
	}
}

// brief is a transcript without what the one before it shows: what test and plan print,
// and what is said ahead of a question.
func brief(text string) string {
	var out []string
	for i, p := range strings.Split(strings.TrimSpace(text), "\n\n") {
		command, _, _ := strings.Cut(p, " --")
		switch {
		case command == "$ unbloat test" || command == "$ unbloat plan":
			lines := strings.Split(p, "\n")
			n := 1
			for n < len(lines) && strings.HasPrefix(lines[n], "  ") {
				n++
			}
			out = append(out, strings.Join(lines[:n], "\n")+"\n…")
		case i == 0 || strings.HasPrefix(p, "$ ") || strings.HasPrefix(p, "Before:") || strings.HasPrefix(p, "Done."):
			out = append(out, p)
		case strings.Contains(p, "n] "):
			lines := strings.Split(p, "\n")
			at := len(lines) - 1
			for at > 0 && strings.HasPrefix(lines[at], "  ") {
				at--
			}
			if !strings.HasSuffix(out[len(out)-1], "…") {
				lines[at] = "…\n" + lines[at]
			}
			out = append(out, strings.Join(lines[at:], "\n"))
		}
	}
	return strings.Join(out, "\n\n") + "\n"
}

// aFirstUse is the line of both.
func aFirstUse() *scenario.Scenario {
	return &scenario.Scenario{
		Name:  "first use",
		Line:  scenario.Line{Down: 8 * unit.MbitPerSecond, Up: 2 * unit.MbitPerSecond, RTT: 20 * time.Millisecond, BufferDown: 800 * unit.KB, BufferUp: 250 * unit.KB},
		Cases: []scenario.Case{{Name: "test", Router: scenario.Router{Mode: scenario.ModeNone}}},
	}
}

// guideAt runs the guide on a terminal of its own, with that home, and returns what was
// said when a person had answered.
func guideAt(t *testing.T, home string, answers func(*person), args ...string) (text string, code int) {
	t.Helper()
	term := await.OpenTerminal(t, 80, 24)
	cmd := exec.Command(labtest.Unbloat(), append(args, "--server", lab.Server())...)
	cmd.Env = append(os.Environ(), "TERM=dumb", "UNBLOAT_STATE_DIR="+t.TempDir(), "HOME="+home, "XDG_STATE_HOME=", "SSH_AUTH_SOCK=", "UNBLOAT_STORE=")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = term.TTY, term.TTY, term.TTY
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	answers(&person{t: t, term: term})
	_ = cmd.Wait() // its exit code says it
	return strings.ReplaceAll(term.Text(), "\r\n", "\n"), cmd.ProcessState.ExitCode()
}

// TestFirstUseOverSSH: the same from a machine of the home, of a router that is an OpenWrt
// without sqm-scripts as far as anybody can tell who comes by SSH: nothing of unbloat's is
// on it. What is kept is there after a restart, by an init script.
func TestFirstUseOverSSH(t *testing.T) {
	output, inside := labtest.Output(t, labtest.Options{Server: true, Node: lab.Host(1), Scenario: aFirstUse()})
	if !inside {
		asDocumented(t, output, 1)
		return
	}
	const sshd = "/usr/sbin/sshd"
	home, run := t.TempDir(), t.TempDir()
	for name, text := range map[string]string{"/etc/openwrt_release": "DISTRIB_ID='OpenWrt'\nDISTRIB_RELEASE='25.12.0'\n", "/etc/rc.common": "", "/etc/init.d/.keep": ""} {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	// An init script of OpenWrt is run by rc.common; this has what enabling one takes.
	if err := os.WriteFile("/etc/rc.common", []byte("#!/bin/sh\n[ \"$2\" = enable ] && ln -sf \"$1\" \"/etc/rc.d-$(basename \"$1\")\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"/run/sshd", filepath.Join(home, ".ssh")} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	user := filepath.Join(home, ".ssh", "id_ed25519")
	for _, key := range []string{filepath.Join(run, "host"), user} {
		if out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key).CombinedOutput(); err != nil {
			t.Skipf("SKIPPED: ssh-keygen: %v: %s; install openssh-server", err, out)
		}
	}
	public, err := os.ReadFile(filepath.Join(run, "host.pub"))
	if err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(run, "config")
	for file, text := range map[string]string{
		filepath.Join(home, ".ssh", "known_hosts"): "10.1.0.1 " + string(public),
		config: fmt.Sprintf("ListenAddress 10.1.0.1\nHostKey %s/host\nAuthorizedKeysFile %s.pub\nPidFile none\nStrictModes no\nUsePAM no\nPermitRootLogin prohibit-password\nUseDNS no\nSetEnv SHLVL=2\n", run, user),
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	server := labtest.In(t.Context(), lab.NodeRouter, sshd, "-D", "-e", "-f", config)
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = server.Process.Kill(); _ = server.Wait() }()
	await.Until(t, time.Minute, "sshd", func() bool {
		out, err := labtest.In(t.Context(), lab.NodeRouter, "ss", "-Hltn", "src", "10.1.0.1:22").Output()
		return err == nil && len(out) > 0
	})
	text, code := guideAt(t, home, func(p *person) {
		p.answers("Measure now? [Y/n]", "")
		p.answers("Do it now?", "")
		p.answers("Measure now? [Y/n]", "")
		p.answers("Keep it? [Y/n]", "")
		p.answers("Apply it again at every boot?", "")
		p.answers("Find the best rates", "n")
	}, "--router", "ssh://root@10.1.0.1")
	queues, err := labtest.In(t.Context(), lab.NodeRouter, "tc", "qdisc", "show", "dev", lab.RouterWAN).CombinedOutput()
	script, _ := os.ReadFile("/etc/init.d/unbloat")
	if code != cli.Done || err != nil || !strings.Contains(string(queues), "qdisc cake") || !strings.Contains(string(script), "USE_PROCD") || !strings.Contains(text, "runs openwrt") {
		t.Fatalf("exit code %d\n%s\n%s\n%s", code, text, queues, script)
	}
	fmt.Printf("%s%s\n", transcriptMark, base64.StdEncoding.EncodeToString([]byte(text)))
}

// TestFirstUse: `unbloat` without arguments, on a router's terminal, leads a
// user from bufferbloat to a line without it, permanently. The answer "no"
// undoes everything, and so does Ctrl-C, at once (UNBLOAT_LONG=1).
func TestFirstUse(t *testing.T) {
	output, inside := labtest.Output(t, labtest.Options{Server: true, Scenario: aFirstUse()})
	if !inside {
		asDocumented(t, output, 0)
		return
	}
	queues := func() string {
		out, err := exec.Command("tc", "qdisc", "show", "dev", lab.RouterWAN).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return string(out)
	}
	before := queues()
	planIsWhatApplyDoes(t)
	answers := []string{"n", ""}
	if labtest.Long() {
		answers = append([]string{"\x03"}, answers...)
	}
	for _, keep := range answers {
		text, code := guideAt(t, t.TempDir(), func(p *person) {
			p.answers("Measure now? [Y/n]", "")
			p.answers("Do it now?", "")
			p.answers("Measure now? [Y/n]", "y")
			p.answers("Keep it? [Y/n]", keep)
			if keep == "" {
				p.answers("Apply it again at every boot?", "n")
				p.answers("Find the best rates", "n")
			}
		})
		if keep == "\x03" {
			if code != cli.Failed || !strings.Contains(text, "unbloat: interrupted; the change was undone") || queues() != before {
				t.Errorf("Ctrl-C: exit code %d, and it is\n%s\n%s", code, queues(), text)
			}
			continue
		}
		if code != cli.Done {
			t.Fatalf("exit code %d:\n%s", code, text)
		}
		for _, want := range []string{"leads to the internet", "$ unbloat test ", "$ unbloat plan ", "Limit the download to ", "$ unbloat apply ", "\nBefore: grade F"} {
			if !strings.Contains(text, want) {
				t.Errorf("keep %q: no %q in:\n%s", keep, want, text)
			}
		}
		shaped := regexp.MustCompile(`(?m)^qdisc cake .* bandwidth `).MatchString(queues())
		switch {
		case keep == "" && !shaped:
			t.Errorf("kept, and there is no CAKE:\n%s\n%s", queues(), text)
		case keep != "" && queues() != before:
			t.Errorf("not kept, and it is not as before:\n%s\n%s", queues(), text)
		case keep == "":
			fmt.Printf("%s%s\n", transcriptMark, base64.StdEncoding.EncodeToString([]byte(text)))
		}
	}
}

// planIsWhatApplyDoes: without --wan and --here `plan` finds on a router what `apply` finds.
func planIsWhatApplyDoes(t *testing.T) {
	t.Helper()
	of := func(into any, args ...string) {
		cmd := exec.Command(labtest.Unbloat(), append(args, "--down", "8mbit", "--up", "2mbit", "--json")...)
		cmd.Env = append(os.Environ(), "UNBLOAT_STATE_DIR="+t.TempDir())
		var errs strings.Builder
		cmd.Stderr = &errs
		out, err := cmd.Output()
		if err == nil {
			err = json.Unmarshal(out, into)
		}
		if err != nil || strings.Contains(errs.String(), "guess") {
			t.Fatalf("%q: %v: %s", args, err, errs.String())
		}
	}
	var planned plan.Plan
	var would struct{ Plan plan.Plan }
	of(&planned, "plan")
	of(&would, "apply", "--dry-run")
	if d := cmp.Diff(would.Plan, planned); d != "" || planned.WAN != lab.RouterWAN {
		t.Errorf("plan of %s: -apply +plan\n%s", planned.WAN, d)
	}
}
