//go:build unix

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"unbloat/internal/cure/platform"
	"unbloat/internal/measure/verdict"
	"unbloat/internal/show/cli"
	"unbloat/reason"
	"unbloat/testkit/await"
)

// commands is what stands for the program in tests of the guide: it notes each command,
// and remembers whether a change waits. LATE has apply end well although a signal told
// it to end; STUCK has revert fail.
const commands = `#!/bin/sh
cd "$(dirname "$0")"
echo "$*" >> ran
case $1 in
test)
	eval "cp measured \"\${$(($#))}\""
	[ -z "$DOUBTFUL" ] || { cp certain measured; exit 4; };;
apply)
	case "$*" in *--again*) [ -z "$UNBOOTED" ] || exit 3; touch boot; exit 0;; esac
	[ -z "$LATE" ] || { trap : TERM; touch applying; until [ -e told ]; do sleep 0.01; done; }
	touch waits; [ -z "$UNCHANGED" ] || rm waits;;
confirm) rm waits; touch kept; [ -z "$GONE" ] || rm unbloat;;
revert) [ -z "$STUCK" ] || exit 1; rm waits;;
status) if [ -e waits ]; then echo '{"pending":[{"wan":"wan0"}]}'; else echo '{"pending":[]}'; fi;;
esac
`

// A guided is a guide whose questions a test answers.
type guided struct {
	t    *testing.T
	dir  string
	out  *said
	keys *io.PipeWriter
	stop context.CancelFunc
	done chan error
}

// guide starts the guide, with a variable of commands set.
func guide(t *testing.T, set string) *guided {
	t.Helper()
	g := &guided{t: t, dir: t.TempDir(), out: new(said), done: make(chan error, 1)}
	if set != "" {
		t.Setenv(set, "1")
	}
	measured, err := json.Marshal(verdict.Test{Schema: verdict.TestSchema, Valid: true, Grade: "F"})
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string][]byte{"unbloat": []byte(commands), "measured": measured, "certain": measured} {
		if err := os.WriteFile(filepath.Join(g.dir, name), text, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	in, keys := io.Pipe()
	g.stop, g.keys = stop, keys
	l := &leader{leadFlags: leadFlags{wan: "wan0"}, ctx: ctx, in: cli.NewInlet(ctx, in), out: g.out, exe: filepath.Join(g.dir, "unbloat"), dir: g.dir}
	go func() { g.done <- l.end(l.guide(nil)) }()
	t.Cleanup(func() { stop(); keys.Close() })
	return g
}

// until waits until the guide asks a question.
func (g *guided) until(question string) {
	g.t.Helper()
	await.Until(g.t, 20*time.Second, question, func() bool { return strings.HasSuffix(g.out.String(), question) })
}

func (g *guided) has(name string) bool {
	_, err := os.Stat(filepath.Join(g.dir, name))
	return err == nil
}

// ran counts the runs of a command.
func (g *guided) ran(command string) (n int) {
	b, _ := os.ReadFile(filepath.Join(g.dir, "ran"))
	for line := range strings.Lines(string(b)) {
		if strings.HasPrefix(line, command) {
			n++
		}
	}
	return n
}

// questions are those of the guide, in their order.
var questions = []string{"Measure now? [Y/n] ", "unless you keep it. [Y/n] ", "Measure now? [Y/n] ", "Keep it? [y/N] ", "at every boot? [Y/n] ", "is not kept. [Y/n] "}

// A signal at a question is no, at once: what was applied and not kept is undone, and
// what is said of the router is true. So is the end of input.
func TestSignalAtAQuestion(t *testing.T) {
	for at, question := range questions {
		for _, how := range []string{"interrupted", "nobody answers"} {
			g := guide(t, "")
			for _, before := range questions[:at] {
				g.until(before)
				fmt.Fprintln(g.keys, "y")
			}
			g.until(question)
			if how == "interrupted" {
				g.stop()
			} else {
				g.keys.Close()
			}
			err := <-g.done
			text, code := cli.ErrorText(err), cli.ExitCode(err)
			where := fmt.Sprintf("%s at %q", how, question)
			if g.has("waits") {
				t.Errorf("%s: the change still waits: %s", where, text)
			}
			want := how + "; nothing was changed"
			switch at {
			case 2, 3:
				want = how + "; the change was undone"
			case 4, 5:
				want = ""
			}
			if text != want || code != map[bool]int{true: cli.Done, false: cli.Failed}[want == ""] {
				t.Errorf("%s: exit code %d, %q, want %q", where, code, text, want)
			}
			if undone := g.ran("revert"); undone != map[bool]int{true: 1}[at == 2 || at == 3] || g.has("kept") != (at >= 4) || g.has("boot") != (at == 5) || g.ran("tune") > 0 {
				t.Errorf("%s: %d reverts, kept %v, %d tunings", where, undone, g.has("kept"), g.ran("tune"))
			}
		}
	}
}

// What a signal or a failure between questions leaves is taken back too, and nothing
// that went wrong is hidden.
func TestGuideSaysWhatIsTrue(t *testing.T) {
	answer := func(g *guided, most int) {
		for _, q := range questions[:most] {
			g.until(q)
			fmt.Fprintln(g.keys, "y")
		}
	}
	t.Run("a signal while apply ends well", func(t *testing.T) {
		g := guide(t, "LATE")
		answer(g, 2)
		await.Until(t, 20*time.Second, "apply", func() bool { return g.has("applying") })
		g.stop()
		if err := os.WriteFile(filepath.Join(g.dir, "told"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if text := cli.ErrorText(<-g.done); text != "interrupted; the change was undone" || g.has("waits") {
			t.Errorf("%q, waits %v", text, g.has("waits"))
		}
	})
	t.Run("the undo fails", func(t *testing.T) {
		g := guide(t, "STUCK")
		answer(g, 3)
		g.until(questions[3])
		g.stop()
		text := cli.ErrorText(<-g.done)
		if !strings.HasPrefix(text, "interrupted\n") || !strings.Contains(text, "is not undone yet") || strings.Contains(text, "was undone") {
			t.Errorf("%q", text)
		}
	})
	t.Run("its time has passed", func(t *testing.T) {
		g := guide(t, "")
		answer(g, 3)
		g.until(questions[3])
		if err := os.Remove(filepath.Join(g.dir, "waits")); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(g.keys, "n")
		if err := <-g.done; err != nil || g.ran("revert") > 0 || !strings.Contains(g.out.String(), "the change's time has passed") {
			t.Errorf("%v, %d reverts of what was there before: %s", err, g.ran("revert"), g.out)
		}
	})
	t.Run("it was there before", func(t *testing.T) {
		g := guide(t, "UNCHANGED")
		answer(g, 2)
		g.until(questions[5])
		fmt.Fprintln(g.keys, "n")
		if err := <-g.done; err != nil || g.ran("revert")+g.ran("confirm") > 0 {
			t.Errorf("%v", err)
		}
	})
	t.Run("the program is gone", func(t *testing.T) {
		g := guide(t, "GONE")
		answer(g, 5)
		err := <-g.done
		if text := cli.ErrorText(err); cli.ExitCode(err) != cli.Failed || !strings.Contains(text, "run unbloat apply") {
			t.Errorf("exit code %d, %q", cli.ExitCode(err), text)
		}
		_ = err.Error() // does not panic
	})
}

// A boot that can't be had leaves what is kept, and the guide goes on: it was confirmed
// before. Where there is no boot to ask for, it says how long the change stays.
func TestKeptBeforeBoot(t *testing.T) {
	g := guide(t, "UNBOOTED")
	for _, q := range questions[:5] {
		g.until(q)
		fmt.Fprintln(g.keys, "y")
	}
	g.until(questions[5])
	fmt.Fprintln(g.keys, "n")
	if err := <-g.done; err != nil || !g.has("kept") || g.has("boot") || !strings.Contains(g.out.String(), "stays until the router restarts") {
		t.Errorf("%v, kept %v, boot %v:\n%s", err, g.has("kept"), g.has("boot"), g.out)
	}
	for _, c := range []struct {
		boot platform.Persister
		says string
	}{{platform.Absent{}, "It stays until the router restarts."}, {platform.Lasting{}, "It stays over a restart of the router."}} {
		out := new(said)
		l := &leader{ctx: t.Context(), out: out, boot: c.boot}
		if boot, err := l.lasts(); boot || err != nil || !strings.Contains(out.String(), c.says) {
			t.Errorf("%T: %v, %v, %q", c.boot, boot, err, out)
		}
	}
}

// The question whether to keep a change follows three lines: what was, what is, what it costs.
func TestThreeLinesBeforeKeep(t *testing.T) {
	g := guide(t, "")
	for _, q := range questions[:3] {
		g.until(q)
		fmt.Fprintln(g.keys, "y")
	}
	g.until(questions[3])
	g.keys.Close()
	<-g.done
	lines := strings.Split(strings.TrimSpace(strings.Split(g.out.String(), "Keep it?")[0]), "\n")
	if n := len(lines); !strings.HasPrefix(lines[n-2], "Before: grade F") || !strings.HasPrefix(lines[n-1], "Now:    grade F") || g.ran("compare") > 0 {
		t.Errorf("%q", lines)
	}
	var b said
	l := &leader{out: &b}
	before, after := aTest(1200), aTest(8.5)
	before.Grade, after.Grade, after.Download.GoodputDownBps = "F", "A", 45e6
	l.brief(before, after)
	if want := "Before: grade F; while the line is busy, packets wait up to 1200 ms longer\nNow:    grade A; while the line is busy, packets wait up to 8.50 ms longer\nSpeed:  download 48.2 → 45.0 Mbit/s (7 % less), upload 4.71 → 4.71 Mbit/s (as before)\n"; strings.TrimLeft(b.String(), "\n") != want {
		t.Errorf("%q", b.String())
	}
	if !isBetter(before, after) || isBetter(after, before) {
		t.Error("better is worse")
	}
}

// With a measurement that is not valid, though the line is bad for certain, a person goes
// on, measures again or stops; the plan is then of the rates that were seen.
func TestDoubtfulButCertain(t *testing.T) {
	doubtful := aTest(1200)
	doubtful.Spoil(reason.Terminal, reason.Of(reason.ProbesLate, "p99_ms", 30.0, "most_ms", 1.0).In(verdict.PhaseUpload))
	text, err := json.Marshal(doubtful)
	if err != nil {
		t.Fatal(err)
	}
	const question = "or stop [s]? "
	for answer, tests := range map[string]int{"": 1, "m": 2, "s": 1} {
		g := guide(t, "DOUBTFUL")
		for _, name := range []string{"measured", "certain"} {
			if err := os.WriteFile(filepath.Join(g.dir, name), text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		g.until(questions[0])
		fmt.Fprintln(g.keys, "y")
		g.until(question)
		if !strings.Contains(g.out.String(), "bad enough to mend: go on") {
			t.Errorf("%q", g.out)
		}
		if fmt.Fprintln(g.keys, answer); answer == "m" {
			await.Until(t, 20*time.Second, "another test", func() bool { return g.ran("test") == 2 })
			await.Until(t, 20*time.Second, "the question again", func() bool { return strings.Count(g.out.String(), question) == 2 })
			fmt.Fprintln(g.keys, "s")
		}
		if answer == "" {
			g.until(questions[1])
			ran, _ := os.ReadFile(filepath.Join(g.dir, "ran"))
			if !strings.Contains(string(ran), "plan --down 50") || !strings.Contains(string(ran), "kbit --up 4") {
				t.Errorf("%s", ran)
			}
			g.keys.Close()
		}
		if err := <-g.done; (err == nil) != (answer != "") || g.ran("test") != tests {
			t.Errorf("%q: %v, %d tests", answer, err, g.ran("test"))
		}
	}
}

// A signal ends every wait for standard input, at once and as a failure: at a question
// on a terminal, and where a command reads a plan or a result.
func TestSignalEndsReading(t *testing.T) {
	s, _ := newLinux(t)
	run := func(signal syscall.Signal, in *os.File, out io.Writer, waits func(), args ...string) int {
		cmd := exec.Command(os.Args[0], args...)
		cmd.Env = append(os.Environ(), asProgram+"=1", "TERM=dumb", "PATH="+s.path, "UNBLOAT_STATE_DIR="+s.state)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = in, out, out
		if _, terminal := out.(*os.File); terminal {
			cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() { _ = cmd.Wait(); close(ended) }()
		waits()
		if err := cmd.Process.Signal(signal); err != nil {
			t.Fatal(err)
		}
		select {
		case <-ended:
		case <-time.After(20 * time.Second):
			t.Errorf("%v at %v is not heard", signal, args)
			_ = cmd.Process.Kill()
			<-ended
		}
		return cmd.ProcessState.ExitCode()
	}
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		term := await.OpenTerminal(t, 80, 24)
		code := run(signal, term.TTY, term.TTY, func() {
			await.Until(t, 20*time.Second, "the question", func() bool { return strings.HasSuffix(term.Text(), questions[0]) })
		}, "--wan", "wan")
		await.True(5*time.Second, func() bool { return strings.Contains(term.Text(), "unbloat: ") })
		if code != cli.Failed || !strings.Contains(term.Text(), "unbloat: interrupted; nothing was changed") {
			t.Errorf("%v at a question: exit code %d: %q", signal, code, term.Text())
		}
	}
	for _, args := range [][]string{{"apply", "-", "--dry-run", "--for", "linux"}, {"report", "-"}, {"plan", "--result", "-"}} {
		in, feed, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		out := new(said)
		code := run(syscall.SIGINT, in, out, func() {
			if _, err := feed.Write([]byte(strings.Repeat(" ", 1<<20))); err != nil { // more than a pipe holds: it is being read
				t.Fatal(err)
			}
		}, args...)
		in.Close()
		feed.Close()
		if code != cli.Failed || !strings.Contains(out.String(), "interrupted") {
			t.Errorf("%v: exit code %d: %q", args, code, out)
		}
	}
}
