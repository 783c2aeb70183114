package pfsense

import (
	"embed"
	"encoding/json"
	"slices"
	"strings"

	"unbloat/internal/cure/platform"
	"unbloat/internal/cure/platform/conf"
)

// Compare returns the steps from actual to wanted: either restore config.xml
// byte by byte, or set our elements with pfSense's own functions; then
// regenerate its rules and delete our surplus pipes in the kernel, which
// pfSense does not delete.
func (b *Backend) Compare(actual, wanted platform.State) ([]platform.Step, []string, error) {
	a, err := conf.Decode(actual)
	if err != nil {
		return nil, nil, err
	}
	w, err := conf.Decode(wanted)
	if err != nil {
		return nil, nil, err
	}
	diffs := append(conf.Differences(a.Files, w.Files), a.LiveDifferences(w)...)
	if len(diffs) == 0 {
		return nil, nil, nil
	}
	steps := conf.Steps(a.Files, w.Files, nil)
	if w.Files.Get(Config).Exists {
		steps = append(steps, reload())
	} else {
		steps = append(steps, set(w.Facts))
	}
	return append(steps, deletions(a.Facts, w.Facts)...), diffs, nil
}

// deletions delete our pipes that only a has; a pipe takes its scheduler with it.
func deletions(a, w []conf.Fact) (out []platform.Step) {
	for _, n := range limiterNumbers() {
		has := func(facts []conf.Fact) bool {
			return slices.ContainsFunc(facts, func(f conf.Fact) bool { return f.Kind == pipe && f.Of == n })
		}
		if has(a) && !has(w) {
			out = append(out, platform.Step{Argv: []string{"dnctl", "pipe", "delete", n}})
		}
	}
	return out
}

// Scripts for pfSense's PHP shell. Their arguments are in $unbloat.
//
//go:embed php
var scripts embed.FS

// arguments are the scripts' arguments in $unbloat.
type arguments struct {
	Limiter string            `json:"limiter"` // how our limiters' names begin
	Descr   string            `json:"descr"`   // how our rules' descriptions begin
	Pipes   []string          `json:"pipes"`   // our limiters' numbers
	Queue   []json.RawMessage `json:"queue"`   // our limiters
	Rule    []json.RawMessage `json:"rule"`    // our rules
}

// shell is a step of pfSense's PHP shell, which runs what it has read at `exec`.
// It reads lines as from a terminal: indentation and comments stay here.
func shell(args arguments, names ...string) platform.Step {
	given, err := json.Marshal(args)
	if err != nil {
		panic("marshal the arguments of a script: " + err.Error()) // texts, and elements that are JSON already
	}
	lines := []string{`$unbloat = json_decode('` + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(string(given)) + `', true);`}
	for _, name := range names {
		text, err := scripts.ReadFile("php/" + name)
		if err != nil {
			panic("read our own script: " + err.Error())
		}
		for line := range strings.Lines(string(text)) {
			if line = strings.TrimSpace(line); line != "<?php" && !strings.HasPrefix(line, "//") {
				lines = append(lines, line)
			}
		}
	}
	return platform.Step{Argv: []string{Shell}, Stdin: strings.Join(lines, "\n") + "\nexec\nexit\n"}
}

// given are the arguments of every script.
func given() arguments {
	return arguments{Limiter: ourLimiter, Descr: ourRule, Pipes: limiterNumbers(),
		Queue: []json.RawMessage{}, Rule: []json.RawMessage{}}
}

// reload makes pfSense read config.xml again and load its rules.
func reload() platform.Step { return shell(given(), "read.php", "load.php") }

// set puts our elements in place of those that are there, saves config.xml, and
// loads the rules.
func set(facts []conf.Fact) platform.Step {
	args := given()
	for _, f := range facts {
		switch f.Kind {
		case queueElement:
			args.Queue = append(args.Queue, json.RawMessage(f.Of))
		case ruleElement:
			args.Rule = append(args.Rule, json.RawMessage(f.Of))
		}
	}
	return shell(args, "read.php", "set.php", "load.php")
}

// Restore returns the commands that restore a snapshot from any state.
func (b *Backend) Restore(before, _ platform.State) ([]platform.Step, error) {
	s, err := conf.Decode(before)
	if err != nil {
		return nil, err
	}
	steps := append(s.Files.Restore(), reload())
	var all []conf.Fact
	for _, n := range given().Pipes {
		all = append(all, conf.Fact{Kind: pipe, Of: n})
	}
	return append(steps, deletions(all, s.Facts)...), nil
}
