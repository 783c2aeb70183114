//go:build !omit_measure && omit_http

package main

import (
	"github.com/spf13/cobra"

	"unbloat/internal/protocol"
	"unbloat/internal/reason"
)

// Public servers need HTTP, which this build lacks.

func publicNames() string { return "none in this build (omit_http)" }

func isPublic(string) bool { return false }

const defaultServer = ""

// A chosenServer is the server to measure with.
type chosenServer struct{ server string }

func (s chosenServer) options(o protocol.Options) protocol.Options { return o }

func (s chosenServer) remarks() []reason.Reason { return nil }

// A use is what a command does with a server.
type use struct {
	c            *cobra.Command
	command      string
	often, quiet bool
}

// each calls measure with the named server.
func (f *serverFlags) each(_ use, measure func(chosenServer) error) error {
	return measure(chosenServer{server: f.server})
}
