// This file shows a view on the terminal while something runs, and then
// restores the terminal.

package terminal

import (
	"context"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/colorprofile"
	"github.com/charmbracelet/x/term"
)

// redrawEvery is the interval at which the screen is drawn.
const redrawEvery = 100 * time.Millisecond

// SuitableScreen reports whether a view can be shown: in and out are terminals, and
// the terminal type (TERM) can position text.
func SuitableScreen(in, out *os.File, getenv func(string) string) bool {
	kind := getenv("TERM")
	return kind != "" && kind != "dumb" && term.IsTerminal(in.Fd()) && term.IsTerminal(out.Fd()) && foreground(in)
}

// OptionsOf returns what the terminal can show, except its size: no colour with
// NO_COLOR, only ASCII on the console and if the locale is not UTF-8.
func OptionsOf(getenv func(string) string) Options {
	locale := getenv("LC_ALL")
	for _, name := range []string{"LC_CTYPE", "LANG"} {
		if locale == "" {
			locale = getenv(name)
		}
	}
	locale = strings.ToLower(locale)
	utf8 := strings.Contains(locale, "utf-8") || strings.Contains(locale, "utf8")
	return Options{Colour: getenv("NO_COLOR") == "", ASCII: !utf8 || getenv("TERM") == "linux"}
}

// A Screen is a view that is shown.
type Screen struct {
	program *tea.Program
	done    chan struct{}
	stop    context.CancelFunc
}

// ScreenConfig says what to show where.
type ScreenConfig struct {
	In, Out   *os.File
	Options   Options                                   // its size is the terminal's
	Draw      func(now time.Duration, o Options) string // now is since Open; called by one goroutine
	Interrupt func()                                    // called when the user wants to end it
}

// OpenScreen shows a view until Close.
func OpenScreen(c ScreenConfig) *Screen {
	m := &model{ScreenConfig: c, began: time.Now()}
	s := &Screen{done: make(chan struct{})}
	// The size is asked for once more by bubbletea; the profile is ours, since
	// the drawing chooses its codes itself.
	profile := colorprofile.ANSI
	if !c.Options.Colour {
		profile = colorprofile.ASCII
	}
	s.program = tea.NewProgram(m, tea.WithInput(c.In), tea.WithOutput(c.Out), tea.WithoutSignalHandler(),
		tea.WithColorProfile(profile), tea.WithFPS(30))
	ctx, stop := context.WithCancel(context.Background())
	s.stop = stop
	go func() {
		defer close(s.done)
		_, _ = s.program.Run() // without a view the command still runs and prints its result
	}()
	go hangUp(ctx, c.Interrupt)
	return s
}

// hangUp interrupts the command when its terminal is closed, unless that is
// ignored (nohup).
func hangUp(ctx context.Context, interrupt func()) {
	if signal.Ignored(syscall.SIGHUP) {
		return
	}
	heard := make(chan os.Signal, 1)
	signal.Notify(heard, syscall.SIGHUP)
	defer signal.Stop(heard)
	select {
	case <-heard:
		interrupt()
	case <-ctx.Done():
	}
}

// Close removes the view and restores the terminal. It may be called again.
func (s *Screen) Close() {
	s.stop()
	s.program.Quit()
	<-s.done
}

// model is the view as a bubbletea model.
type model struct {
	ScreenConfig
	began time.Time
}

type redraw struct{}

func again() tea.Cmd { return tea.Tick(redrawEvery, func(time.Time) tea.Msg { return redraw{} }) }

// Init implements tea.Model.
func (m *model) Init() tea.Cmd { return again() }

// Update implements tea.Model.
func (m *model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case redraw:
		return m, again()
	case tea.WindowSizeMsg:
		m.Options.Width, m.Options.Height = msg.Width, msg.Height
	case tea.KeyPressMsg:
		switch msg.String() {
		case "q", "ctrl+c", "esc":
			m.Interrupt()
		case "ctrl+z":
			return m, tea.Suspend
		}
	}
	return m, nil
}

// View implements tea.Model.
func (m *model) View() tea.View {
	v := tea.View{AltScreen: true}
	if m.Options.Width > 0 {
		v.Content = m.Draw(time.Since(m.began), m.Options)
	}
	return v
}
