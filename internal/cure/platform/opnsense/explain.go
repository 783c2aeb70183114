package opnsense

import (
	"errors"
	"fmt"
	"strings"

	"unbloat/internal/cure/platform"
)

// Explain turns a change that the API refused into an error with the action,
// the item and a remedy.
func (b *Backend) Explain(err error) error {
	var refused *platform.RefusedError
	var command *platform.CommandError
	if !errors.As(err, &refused) || !errors.As(err, &command) {
		return err
	}
	doing := doing(command.Argv)
	remedy := "see System: Log Files: Backend there, and `unbloat status`"
	switch {
	case len(refused.Fields) > 0:
		remedy = "plan with other values for it; that a plan asks for what this version does not take is a defect of unbloat, please report it"
	case refused.Result == "failed":
		remedy = "OPNsense answers so where it does not take the item's uuid (from 23.1 on it makes items under uuids of version 4 alone) or could not read the request; " +
			"use the newest unbloat, and see System: Log Files: Backend there"
	case refused.Result == "not found":
		remedy = "somebody else deleted it meanwhile; see `unbloat status`, and try again"
	}
	return fmt.Errorf("%s: %w; %s", doing, err, remedy)
}

// doing describes a request, for people.
func doing(argv []string) string {
	path := argv[len(argv)-1]
	if path == reconfigure {
		return "load the traffic shaper"
	}
	action, uuid, _ := strings.Cut(strings.TrimPrefix(path, settings), "/")
	for _, verb := range []struct{ call, word string }{{"set", "save"}, {"del", "delete"}} {
		kind, is := strings.CutPrefix(action, verb.call)
		if kind = strings.ToLower(kind); !is {
			continue
		}
		if name, _ := own(kind, uuid); name != "" {
			return fmt.Sprintf("%s the %s %q of the traffic shaper", verb.word, kind, "unbloat "+name)
		}
	}
	return "ask " + path
}
