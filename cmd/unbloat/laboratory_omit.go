//go:build omit_lab

package main

import (
	"errors"

	"github.com/spf13/cobra"

	"unbloat/internal/plan"
)

const withLaboratory = "the whole program has it"

func newLaboratoryCommands() []*cobra.Command {
	return leftOut("omit_lab", withLaboratory, "demo", "lab", "sim")
}

// predict returns an error: this build has no simulator.
func predict(*cobra.Command, *planFlags, plan.Plan) error {
	return &exitError{exitPrecondition, errors.New("plan --predict: this build has no simulator (build tag omit_lab); " + withLaboratory)}
}
