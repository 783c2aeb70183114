// Package fake has stand-ins for programs of systems that we cannot run in
// tests. Each is as strict as the real program, with its error messages.
// Package verdicts has recorded answers of the real ones.
package fake

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"unbloat/internal/cure/platform"
)

// errExit is a tool's exit code that is not 0.
var errExit = errors.New("exit status 1")

// A Tool is one program of a Machine. It prints the text of an error that it
// returns to standard error, and fails.
type Tool struct {
	Run     func(args []string, stdin []byte) (string, error)
	Changes func(args []string) bool // whether this call changes something; nil: never
}

// A Machine is a router in memory: files and programs. It implements
// platform.Runner.
type Machine struct {
	Files map[string]string
	Tools map[string]Tool
	// Fail, if set, is called before each command that changes something. If
	// fail is true the command fails, without effect or (after) with it.
	Fail func(argv []string) (fail, after bool)
	// Ran lists the commands that changed something.
	Ran []string
	// Whose has what ls(1) says of a path: mode, links, user and group. A file that is not
	// here is root's.
	Whose map[string]string
	// Shows returns the running state, for Text.
	Shows func() string
}

// NewMachine returns a machine with the programs that every Unix has.
func NewMachine(files map[string]string) *Machine {
	m := &Machine{Files: files, Whose: map[string]string{}, Shows: func() string { return "" }}
	always := func([]string) bool { return true }
	m.Tools = map[string]Tool{
		"cat":   {Run: m.cat},
		"tee":   {Run: func(args []string, in []byte) (string, error) { m.Files[args[0]] = string(in); return string(in), nil }, Changes: always},
		"cp":    {Run: m.copy, Changes: always},
		"mv":    {Run: m.move, Changes: always},
		"rm":    {Run: func(args []string, _ []byte) (string, error) { delete(m.Files, args[len(args)-1]); return "", nil }, Changes: always},
		"ls":    {Run: m.list},
		"chmod": {Run: func(args []string, _ []byte) (string, error) { return m.read("chmod", args[1]) }, Changes: always},
	}
	return m
}

func (m *Machine) read(tool, file string) (string, error) {
	text, ok := m.Files[file]
	if !ok {
		return "", fmt.Errorf("%s: %s: No such file or directory", tool, file)
	}
	return text, nil
}

func (m *Machine) cat(args []string, _ []byte) (string, error) {
	var all strings.Builder
	for _, path := range args {
		text, err := m.read("cat", path)
		if err != nil {
			return "", err
		}
		all.WriteString(text)
	}
	return all.String(), nil
}

// list is ls(1) with -d: names, or with -l what it says of each, and all that are there
// before the error about those that are not.
func (m *Machine) list(args []string, _ []byte) (string, error) {
	at := slices.IndexFunc(args, func(a string) bool { return !strings.HasPrefix(a, "-") })
	if at < 0 {
		at = len(args)
	}
	options := strings.Join(args[:at], "")
	if !strings.Contains(options, "d") {
		return "", errors.New("ls: the stand-in lists no directory's files")
	}
	var out strings.Builder
	var missing []string
	for _, p := range args[at:] {
		clean := path.Clean(p)
		words := m.Whose[clean]
		_, file := m.Files[clean]
		name := strings.TrimSuffix(clean, "/") + "/"
		directory := slices.Contains([]string{"/", "/etc/", "/tmp/", "/var/", "/var/run/"}, name) ||
			slices.ContainsFunc(slices.Collect(maps.Keys(m.Files)), func(f string) bool { return strings.HasPrefix(f, name) })
		switch {
		case words != "":
		case file:
			words = "-rw-r--r-- 1 0 0"
		case name == "/tmp/":
			words = "drwxrwxrwt 9 0 0"
		case directory:
			words = "drwxr-xr-x 9 0 0"
		default:
			missing = append(missing, fmt.Sprintf("ls: %s: No such file or directory", p))
			continue
		}
		if strings.Contains(options, "l") {
			fmt.Fprintf(&out, "%s 512 Jan 1 12:00 ", words)
		}
		fmt.Fprintln(&out, p)
	}
	if len(missing) > 0 {
		return out.String(), errors.New(strings.Join(missing, "\n"))
	}
	return out.String(), nil
}

func (m *Machine) copy(args []string, _ []byte) (string, error) {
	from, to := args[len(args)-2], args[len(args)-1]
	text, err := m.read("cp", from)
	if err == nil {
		m.Files[to] = text
	}
	return "", err
}

func (m *Machine) move(args []string, stdin []byte) (string, error) {
	if _, err := m.copy(args, stdin); err != nil {
		return "", errors.New(strings.Replace(err.Error(), "cp", "mv", 1))
	}
	delete(m.Files, args[len(args)-2])
	return "", nil
}

// Run implements platform.Runner.
func (m *Machine) Run(ctx context.Context, argv []string, stdin []byte) (stdout, stderr []byte, err error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	tool, ok := m.Tools[argv[0]]
	if !ok {
		return nil, nil, &platform.MissingToolError{Tool: argv[0]}
	}
	changing := tool.Changes != nil && tool.Changes(argv[1:])
	fail, after := false, false
	if changing && m.Fail != nil {
		fail, after = m.Fail(argv)
	}
	if fail && !after {
		return nil, []byte(argv[0] + ": Cannot allocate memory"), errExit
	}
	out, err := tool.Run(argv[1:], stdin)
	if err != nil {
		return []byte(out), []byte(err.Error() + "\n"), errExit
	}
	if changing {
		m.Ran = append(m.Ran, strings.Join(argv, " "))
	}
	if fail {
		return nil, []byte(argv[0] + ": Interrupted system call"), errExit
	}
	return []byte(out), nil, nil
}

// SetFail sets which commands fail.
func (m *Machine) SetFail(f func(argv []string) (fail, after bool)) { m.Fail = f }

// Commands returns the commands that changed something since the last call.
func (m *Machine) Commands() []string {
	ran := m.Ran
	m.Ran = nil
	return ran
}

// Text returns everything that a change can touch: equal texts are equal
// machines.
func (m *Machine) Text() string {
	var b strings.Builder
	for _, file := range slices.Sorted(maps.Keys(m.Files)) {
		fmt.Fprintf(&b, "== %s\n%s\n", file, m.Files[file])
	}
	return b.String() + "== runs\n" + m.Shows()
}
