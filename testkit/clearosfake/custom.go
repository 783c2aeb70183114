package clearosfake

import (
	"fmt"
	"regexp"
	"strings"
)

// OwnEngine is the path of ClearOS's own engine, as in qos.conf.
const OwnEngine = "/usr/clearos/apps/qos/deploy/libqos.lua"

// Settings reads qos.conf as a shell sources it. It returns an error for a line
// that is not a plain assignment.
func Settings(text string) (map[string]string, error) { return shellSettings(text) }

var luaStatement = regexp.MustCompile(`^    (execute|os\.execute|echo)\("([^"\\]*)"\)$`)

// Other runs an engine other than ClearOS's own: it returns the commands of its
// RunBandwidthExternal in the run for IPv4, in order. It supports only that function,
// with calls of execute, os.execute and echo with literal text. It returns an error for
// anything else.
func Other(engine string) (Result, error) {
	var out Result
	inside, ended := false, false
	for i, line := range strings.Split(strings.TrimSuffix(engine, "\n"), "\n") {
		m := luaStatement.FindStringSubmatch(line)
		switch {
		case line == "" || strings.HasPrefix(strings.TrimSpace(line), "--"):
		case line == "function RunBandwidthExternal()" && !inside && !ended:
			inside = true
		case line == "end" && inside:
			inside, ended = false, true
		case inside && m != nil && m[1] == "echo":
			out.Says = append(out.Says, m[2])
		case inside && m != nil:
			out.Commands = append(out.Commands, m[2])
		default:
			return Result{}, fmt.Errorf("the stand-in for ClearOS's firewall does not know what line %d of the engine does: %q", i+1, line)
		}
	}
	if !ended {
		return Result{}, fmt.Errorf("the engine has no function RunBandwidthExternal")
	}
	return out, nil
}
