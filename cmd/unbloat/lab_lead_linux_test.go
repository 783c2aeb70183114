package main

import (
	"encoding/base64"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

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

// asDocumented compares the questions and commands with those in
// docs/first-use.md.
func asDocumented(t *testing.T, output string) {
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
	const file, begin, end = "../../docs/first-use.md", "```\n", "```\n"
	was, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, _ := strings.Cut(string(was), begin)
	shown, tail, _ := strings.Cut(rest, end)
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
		if err := os.WriteFile(file, []byte(head+begin+text+end+tail), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if d := cmp.Diff(asked(shown), asked(text)); d != "" {
		t.Errorf("%s has another transcript (-update rewrites it): -was +now\n%s", file, d)
	}
}

// TestFirstUse: `unbloat` without arguments, on a router's terminal, leads a
// user from bufferbloat to a line without it, permanently. The answer "no"
// undoes everything, and so does Ctrl-C, at once (UNBLOAT_LONG=1).
func TestFirstUse(t *testing.T) {
	output, inside := labtest.Output(t, labtest.Options{Server: true, Scenario: &scenario.Scenario{
		Name:  "first use",
		Line:  scenario.Line{Down: 8 * unit.MbitPerSecond, Up: 2 * unit.MbitPerSecond, RTT: 20 * time.Millisecond, BufferDown: 800 * unit.KB, BufferUp: 250 * unit.KB},
		Cases: []scenario.Case{{Name: "test", Router: scenario.Router{Mode: scenario.ModeNone}}},
	}})
	if !inside {
		asDocumented(t, output)
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
	answers := []string{"n", ""}
	if labtest.Long() {
		answers = append([]string{"\x03"}, answers...)
	}
	for _, keep := range answers {
		term := await.OpenTerminal(t, 80, 24)
		cmd := exec.Command(labtest.Unbloat(), "--server", lab.Server())
		cmd.Env = append(os.Environ(), "TERM=dumb", "UNBLOAT_STATE_DIR="+t.TempDir(), "HOME="+t.TempDir(), "UNBLOAT_STORE=")
		cmd.Stdin, cmd.Stdout, cmd.Stderr = term.TTY, term.TTY, term.TTY
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		p := &person{t: t, term: term}
		p.answers("Measure now? [Y/n]", "")
		p.answers("Do it now?", "")
		p.answers("Measure now? [Y/n]", "y")
		p.answers("Keep it? [Y/n]", keep)
		if keep == "" {
			p.answers("Apply it again at every boot?", "n")
			p.answers("Find the best rates", "n")
		}
		err := cmd.Wait()
		text := strings.ReplaceAll(term.Text(), "\r\n", "\n")
		if keep == "\x03" {
			if cmd.ProcessState.ExitCode() != cli.Failed || !strings.Contains(text, "unbloat: interrupted; the change was undone") || queues() != before {
				t.Errorf("Ctrl-C: %v, and it is\n%s\n%s", err, queues(), text)
			}
			continue
		}
		if err != nil {
			t.Fatalf("%v:\n%s", err, text)
		}
		for _, want := range []string{"leads to the internet", "$ unbloat test ", "$ unbloat plan ", "Limit the download to ", "$ unbloat apply ", "$ unbloat compare "} {
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
