package remote

import (
	"strings"

	"unbloat/internal/cure/apply"
	"unbloat/internal/cure/platform"
)

// keyFile is the file with key and secret in a watchdog's directory, in curl(1)'s
// format. The watchdog removes it when it removes itself.
const keyFile = "key"

// Watchdog returns a watchdog for a router that is changed through its API. It runs
// on the router, is reached through shell, and sends its requests to the router's
// own API. The API alone is not enough: OPNsense's cron runs only actions from a
// list, and none of them restores an earlier state of the shaper.
func (r *REST) Watchdog(shell platform.Runner, backend platform.Backend) *Watchdog {
	return &Watchdog{Runner: shell, Backend: backend,
		Translate: r.curl, Files: map[string]string{keyFile: `user = "` + escaped(r.key+":"+r.secret) + "\"\n"}}
}

// escaped escapes a value for the quotes of curl's configuration file.
func escaped(s string) string { return strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) }

// curl turns a request into a command on the router. It does not verify the
// certificate, since the router talks to itself.
func (r *REST) curl(dir string, s platform.Step) platform.Step {
	argv := []string{"curl", "-sSk", "--fail", "--max-time", "30", "-K", dir + "/" + keyFile, "-X", s.Argv[0]}
	if s.Stdin != "" {
		argv = append(argv, "-H", "Content-Type: application/json", "--data-binary", "@-")
	}
	return platform.Step{Argv: append(argv, r.Base+s.Argv[1]), Stdin: s.Stdin}
}

var _ apply.Watchdog = (*Watchdog)(nil)
