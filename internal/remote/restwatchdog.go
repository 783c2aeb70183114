package remote

import (
	"strings"

	"unbloat/internal/apply"
	"unbloat/internal/platform"
)

// keyFile is the name of the file with key and secret beside a watchdog's script,
// as curl(1) reads it. The watchdog removes it with itself.
const keyFile = "key"

// Watchdog returns a watchdog for a router that is changed through its API: a
// watchdog on the router itself, reached through shell, whose requests go from the
// router to its own API. An API alone can't hold one: OPNsense's cron runs only
// actions from a list, and none of them loads an earlier state of the shaper.
func (r *REST) Watchdog(shell platform.Runner, backend Restorer) *Watchdog {
	return &Watchdog{Runner: shell, Backend: backend,
		Translate: r.curl, Files: map[string]string{keyFile: `user = "` + escaped(r.key+":"+r.secret) + "\"\n"}}
}

// escaped is a value within the quotes of curl's file of options.
func escaped(s string) string { return strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) }

// curl turns a request into a command of the router's. Its certificate is not
// checked there: the way is from the router to itself.
func (r *REST) curl(dir string, s platform.Step) platform.Step {
	argv := []string{"curl", "-sSk", "--fail", "--max-time", "30", "-K", dir + "/" + keyFile, "-X", s.Argv[0]}
	if s.Stdin != "" {
		argv = append(argv, "-H", "Content-Type: application/json", "--data-binary", "@-")
	}
	return platform.Step{Argv: append(argv, r.Base+s.Argv[1]), Stdin: s.Stdin}
}

var _ apply.Watchdog = (*Watchdog)(nil)
