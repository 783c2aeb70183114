//go:build !omit_measure && !omit_lab

package main

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"unbloat/internal/lab"
	"unbloat/internal/lab/labtest"
	"unbloat/internal/lab/scenario"
	"unbloat/internal/screen/screentest"
	"unbloat/unit"
)

// A person at a terminal answers questions.
type person struct {
	t    *testing.T
	term *screentest.Terminal
	read int // of what was shown
}

// answers waits for a question and types an answer.
func (p *person) answers(question, answer string) {
	p.t.Helper()
	for end := time.Now().Add(5 * time.Minute); ; time.Sleep(20 * time.Millisecond) { // virtual time
		text := p.term.Text()
		if i := strings.Index(text[p.read:], question); i >= 0 {
			p.read += i + len(question)
			break
		}
		if time.Now().After(end) {
			p.t.Fatalf("%q was not asked: %q", question, text[p.read:])
		}
	}
	if _, err := p.term.Keys.WriteString(answer + "\n"); err != nil {
		p.t.Fatal(err)
	}
}

// TestFirstUse: `unbloat` alone, on a router's terminal, leads from bloat to a
// line that is cured and stays so; and an answer "no" takes everything back.
func TestFirstUse(t *testing.T) {
	if !labtest.Inside(t, labtest.Options{Server: true, Scenario: &scenario.Scenario{
		Name:  "first use",
		Line:  scenario.Line{Down: 8 * unit.MbitPerSecond, Up: 2 * unit.MbitPerSecond, RTT: 20 * time.Millisecond, BufferDown: 800 * unit.KB, BufferUp: 250 * unit.KB},
		Cases: []scenario.Case{{Name: "test", Router: scenario.Router{Mode: scenario.ModeNone}}},
	}}) {
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
	for _, keep := range []bool{false, true} {
		term := screentest.Open(t, 80, 24)
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
		if keep {
			p.answers("Keep it? [Y/n]", "")
			p.answers("Apply it again at every boot?", "n")
			p.answers("Find the best rates", "n")
		} else {
			p.answers("Keep it? [Y/n]", "n")
		}
		err := cmd.Wait()
		text := strings.ReplaceAll(term.Text(), "\r\n", "\n")
		if err != nil {
			t.Fatalf("%v:\n%s", err, text)
		}
		for _, want := range []string{"leads to the internet", "$ unbloat test ", "$ unbloat plan ", "Limit the download to ", "$ unbloat apply ", "$ unbloat compare "} {
			if !strings.Contains(text, want) {
				t.Errorf("keep %v: no %q in:\n%s", keep, want, text)
			}
		}
		shaped := regexp.MustCompile(`(?m)^qdisc cake .* bandwidth `).MatchString(queues())
		switch {
		case keep && !shaped:
			t.Errorf("kept, and there is no CAKE:\n%s\n%s", queues(), text)
		case !keep && queues() != before:
			t.Errorf("not kept, and it is not as before:\n%s\n%s", queues(), text)
		case keep:
			t.Logf("a first use:\n%s", text)
		}
	}
}
