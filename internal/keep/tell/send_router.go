//go:build router

package tell

import (
	"context"
	"errors"

	"unbloat/internal/keep/config"
	"unbloat/internal/keep/incident"
)

// Can says why this build can't tell such a receiver.
func Can(string) error {
	return errors.New("this build tells nobody (build tag router); use the whole program, or remove the table")
}

func bodyOf(incident.Incident) string { return "" }

func send(context.Context, config.Notify, string, Message) error { return Can("") }
