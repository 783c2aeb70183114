// Package conf is shared by routers whose configuration is in files. Files are
// read, replaced atomically, and restored byte by byte. A state also holds what
// the running system shows.
package conf

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform"
)

// Suffix is appended to a file's name for its temporary copy.
const Suffix = ".unbloat-new"

// A File is one file of the router. Content is bytes: a comment in Latin-1 must
// survive an undo.
type File struct {
	Path    string `json:"path"`
	Exists  bool   `json:"exists"`
	Content []byte `json:"content,omitempty"`
	Mode    string `json:"mode,omitempty"` // chmod(1) mode of a new file; "": the system's default
}

// A Set is the files that a backend may change, and their temporary ones.
type Set []File

// A Kind is the kind of a Fact.
type Kind string

// Kinds.
const (
	Leaves Kind = "leaves" // an egress shaper on the device Of
	Enters Kind = "enters" // an ingress shaper on the device Of
	Astray Kind = "astray" // ingress of the device Of is redirected to a missing device
	Option Kind = "option" // a setting in the section Of of a configuration
	Table  Kind = "table"  // the table of nftables for the WAN Of
)

// A Fact is one item of the state of a router's kernel or daemon: its kind and
// subject, by which backends identify it, and a canonical line, by which states
// are compared.
type Fact struct {
	Kind Kind   `json:"kind"`
	Of   string `json:"of"`
	Text string `json:"text"`
}

// A State is the state of a file-based router: its files, and what its kernel
// or daemon shows, as facts or as lines in the daemon's language.
type State struct {
	Files Set      `json:"files"`
	Live  []string `json:"live"`
	Facts []Fact   `json:"facts,omitempty"`
	// Others are foreign running items, Scope the observed devices; neither is
	// compared.
	Others []string `json:"others,omitempty"`
	Scope  []string `json:"scope,omitempty"`
	// Known are running items that an earlier plan of ours made, as far as a record
	// says so; they are not compared either. By them we know our own where somebody
	// has taken away the files that name them.
	Known []string `json:"known,omitempty"`
}

// LiveDifferences lists where the running state differs from the wanted one,
// for people.
func (s State) LiveDifferences(wanted State) []string {
	return LiveDifferences(s.lines(), wanted.lines())
}

// lines returns the running state as lines.
func (s State) lines() []string {
	out := slices.Clone(s.Live)
	for _, f := range s.Facts {
		out = append(out, f.Text)
	}
	return out
}

// Without returns live with each line of gone removed once.
func Without(live, gone []string) []string {
	out := slices.Clone(live)
	for _, g := range gone {
		if i := slices.Index(out, g); i >= 0 {
			out = slices.Delete(out, i, i+1)
		}
	}
	return out
}

// Observed reads the current state of a file-based router's WAN, for status.
func Observed(ctx context.Context, b interface {
	Observe(ctx context.Context, p plan.Plan, earlier platform.State) (platform.State, error)
}, wan string) (State, error) {
	now, err := b.Observe(ctx, plan.Plan{WAN: wan}, nil)
	if err != nil {
		return State{}, err
	}
	return Decode(now)
}

// Decode reads a State that Encode wrote.
func Decode(b platform.State) (s State, err error) {
	if err = json.Unmarshal(b, &s); err != nil {
		err = fmt.Errorf("read the state of a router: %w", err)
	}
	return s, err
}

// Encode writes a State.
func Encode(s State) (platform.State, error) {
	if s.Live == nil {
		s.Live = []string{}
	}
	return json.Marshal(s)
}

// Replace returns the state with the lines of to in place of those of from in what
// runs, each with the one of the same place.
func Replace(b platform.State, from, to []string) (platform.State, error) {
	s, err := Decode(b)
	if err != nil {
		return nil, err
	}
	for i, line := range from {
		if at := slices.Index(s.Live, line); at >= 0 && i < len(to) {
			s.Live[at] = to[i]
		}
	}
	return Encode(s)
}

// Read reads the files, and temporary copies that an interrupted change may
// have left.
func Read(ctx context.Context, r platform.Runner, paths ...string) (Set, error) {
	var s Set
	for _, p := range paths {
		for _, path := range []string{p, p + Suffix} {
			f, err := read(ctx, r, path)
			if err != nil {
				return nil, err
			}
			s = append(s, f)
		}
	}
	return s, nil
}

func read(ctx context.Context, r platform.Runner, path string) (File, error) {
	b, err := platform.Output(ctx, r, "cat", path)
	var c *platform.CommandError
	switch {
	case err == nil:
		return File{Path: path, Exists: true, Content: b}, nil
	case errors.As(err, &c) && strings.Contains(c.Stderr, "No such file"):
		return File{Path: path}, nil
	case errors.As(err, &c) && strings.Contains(c.Stderr, "ermission denied"):
		return File{}, &platform.PreconditionError{Doing: "read " + path, What: "this user may not", Remedy: "run it as root", Err: err}
	}
	return File{}, fmt.Errorf("read %s: %w", path, err)
}

// Get returns the file; Exists is false if the set has no such file.
func (s Set) Get(path string) File {
	for _, f := range s {
		if f.Path == path {
			return f
		}
	}
	return File{Path: path}
}

// Text returns a file's content; "" if there is none.
func (s Set) Text(path string) string { return string(s.Get(path).Content) }

// With returns the set with this file replaced and temporary files removed.
func (s Set) With(f File) Set {
	out := s.clean()
	if i := slices.IndexFunc(out, func(x File) bool { return x.Path == f.Path }); i >= 0 {
		out[i] = f
		return out
	}
	return append(out, f)
}

// clean returns a copy without temporary files' content.
func (s Set) clean() Set {
	out := slices.Clone(s)
	for i, f := range out {
		if strings.HasSuffix(f.Path, Suffix) {
			out[i] = File{Path: f.Path}
		}
	}
	return out
}

// Put returns the set with this content in the file.
func (s Set) Put(path, content, mode string) Set {
	return s.With(File{Path: path, Exists: true, Content: []byte(content), Mode: mode})
}

// Without returns the set without the file.
func (s Set) Without(path string) Set { return s.With(File{Path: path}) }

func (f File) equal(g File) bool { return f.Exists == g.Exists && bytes.Equal(f.Content, g.Content) }

// A Check returns the command that tests a temporary file before it replaces
// path; nil if there is none.
type Check func(path, temporary string) *platform.Step

// Steps returns the commands from actual to wanted: files are written in
// wanted's order, and removed last.
func Steps(actual, wanted Set, check Check) []platform.Step {
	var writes, removals []platform.Step
	for _, w := range wanted {
		a := actual.Get(w.Path)
		switch {
		case a.equal(w):
		case !w.Exists:
			removals = append(removals, platform.Step{Argv: []string{"rm", "-f", w.Path}})
		default:
			writes = append(writes, write(a, w, check)...)
		}
	}
	return append(writes, removals...)
}

// write replaces a file in one step, with the owner and mode that it has.
func write(a, w File, check Check) []platform.Step {
	temp := w.Path + Suffix
	var out []platform.Step
	if a.Exists {
		out = append(out, platform.Step{Argv: []string{"cp", "-p", w.Path, temp}})
	}
	out = append(out, platform.Step{Argv: []string{"tee", temp}, Stdin: string(w.Content)})
	if !a.Exists && w.Mode != "" {
		out = append(out, platform.Step{Argv: []string{"chmod", w.Mode, temp}})
	}
	if check != nil {
		if s := check(w.Path, temp); s != nil {
			out = append(out, *s)
		}
	}
	return append(out, platform.Step{Argv: []string{"mv", "-f", temp, w.Path}})
}

// Restore returns the commands that lead to the set from any state, without
// looking; some may fail.
func (s Set) Restore() []platform.Step {
	var out, removals []platform.Step
	for _, f := range s {
		if !f.Exists {
			removals = append(removals, platform.Step{Argv: []string{"rm", "-f", f.Path}})
			continue
		}
		out = append(out, write(File{Exists: true}, f, nil)...)
	}
	return append(out, removals...)
}

// Differences says in words how the files differ.
func Differences(actual, wanted Set) []string {
	var out []string
	for _, w := range wanted {
		a := actual.Get(w.Path)
		switch {
		case a.equal(w):
		case a.Exists && !w.Exists:
			out = append(out, w.Path+" is there, and should not be")
		case !a.Exists:
			out = append(out, w.Path+" is missing")
		default:
			out = append(out, w.Path+" differs: "+firstDifference(string(a.Content), string(w.Content)))
		}
	}
	return out
}

func firstDifference(a, w string) string {
	as, ws := strings.Split(a, "\n"), strings.Split(w, "\n")
	for i := 0; ; i++ {
		switch {
		case i >= len(as):
			return fmt.Sprintf("line %d is missing: %q", i+1, ws[i])
		case i >= len(ws):
			return fmt.Sprintf("line %d should not be there: %q", i+1, as[i])
		case as[i] != ws[i]:
			return fmt.Sprintf("line %d is %q instead of %q", i+1, as[i], ws[i])
		}
	}
}

// LiveDifferences says in words how what runs differs.
func LiveDifferences(actual, wanted []string) []string {
	var out []string
	for _, w := range wanted {
		if !slices.Contains(actual, w) {
			out = append(out, "it does not run `"+w+"`")
		}
	}
	for _, a := range actual {
		if !slices.Contains(wanted, a) {
			out = append(out, "it runs `"+a+"`, which is not wanted")
		}
	}
	return out
}

// Compare returns the steps from actual to wanted: the files, and if anything
// differs, reload.
func Compare(actual, wanted platform.State, check Check, reload []platform.Step) ([]platform.Step, []string, error) {
	a, err := Decode(actual)
	if err != nil {
		return nil, nil, err
	}
	w, err := Decode(wanted)
	if err != nil {
		return nil, nil, err
	}
	steps, diffs := Steps(a.Files, w.Files, check), append(Differences(a.Files, w.Files), a.LiveDifferences(w)...)
	if len(diffs) > 0 {
		steps = append(steps, reload...)
	}
	return steps, diffs, nil
}
