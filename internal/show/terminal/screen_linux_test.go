package terminal

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"unbloat/testkit/await"
)

// A key ends the view, and the terminal is as before, with its cursor and its
// own screen.
func TestScreenGivesTheTerminalBack(t *testing.T) {
	for _, key := range []string{"\x03", "q", ""} {
		p := await.OpenTerminal(t, 60, 15)
		before := p.State()
		asked := make(chan struct{})
		once := sync.OnceFunc(func() { close(asked) })
		s := OpenScreen(ScreenConfig{In: p.TTY, Out: p.TTY, Options: Options{}, Interrupt: once, Draw: func(_ time.Duration, o Options) string {
			return fmt.Sprintf("screen of %d by %d", o.Width, o.Height)
		}})
		p.Wait("screen of 60 by 15")
		p.Wait("\x1b[?1049h")
		if p.State() == before {
			t.Error("the terminal was not made raw: a key would be echoed")
		}
		if key != "" {
			if _, err := p.Keys.WriteString(key); err != nil {
				t.Fatal(err)
			}
			select {
			case <-asked:
			case <-time.After(30 * time.Second):
				t.Fatalf("key %q did not interrupt", key)
			}
		}
		s.Close()
		s.Close() // a second Close does nothing
		p.Wait("\x1b[?1049l")
		if after := p.State(); after != before {
			t.Errorf("key %q: the terminal was %+v and is %+v", key, before, after)
		}
		end := p.Text()[strings.LastIndex(p.Text(), "\x1b[?1049l"):]
		if !strings.Contains(p.Text(), "\x1b[?25h") || strings.Contains(end, "screen of") {
			t.Errorf("key %q: no cursor, or drawn after the end: %q", key, end)
		}
	}
}

// On which terminals a view can be shown, and how.
func TestSuitable(t *testing.T) {
	p := await.OpenTerminal(t, 80, 24)
	env := func(vars ...string) func(string) string {
		return func(name string) string {
			for _, v := range vars {
				if n, value, _ := strings.Cut(v, "="); n == name {
					return value
				}
			}
			return ""
		}
	}
	file, err := os.CreateTemp(t.TempDir(), "x")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for _, c := range []struct{ in, out *os.File }{{file, p.TTY}, {p.TTY, file}, {p.TTY, p.TTY}} { // the last one is not this process's own terminal
		if SuitableScreen(c.in, c.out, env("TERM=xterm")) {
			t.Errorf("%s to %s is suitable", c.in.Name(), c.out.Name())
		}
	}
	for _, c := range []struct {
		vars string
		want Options
	}{
		{"LANG=de_DE.UTF-8 TERM=xterm", Options{Colour: true}},
		{"LANG=C TERM=xterm", Options{Colour: true, ASCII: true}},
		{"LANG=C LC_ALL=C.utf8 NO_COLOR=1 TERM=xterm", Options{}},
		{"LANG=C.UTF-8 TERM=linux", Options{Colour: true, ASCII: true}},
	} {
		if got := OptionsOf(env(strings.Fields(c.vars)...)); got != c.want {
			t.Errorf("%s: %+v", c.vars, got)
		}
	}
}
