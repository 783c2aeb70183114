package lab

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"unbloat/lab/scenario"
)

// Shell boots a scenario's home and gives a prompt in one of its nodes, in real
// time, until the shell there ends.
func Shell(ctx context.Context, s *scenario.Scenario, e Engine, node string) error {
	if all := nodes(s.Hosts(), nil); !slices.Contains(all, node) {
		return fmt.Errorf("lab shell %s: no node is named %q; there are %s", s.Name, node, strings.Join(all, ", "))
	}
	k, err := FindKernel(e)
	if err != nil {
		return err
	}
	programs, err := Programs{}.find()
	if err != nil {
		return err
	}
	g := Guest{Engine: k.Engine, Scenario: s, Case: s.Cases[0].Name, Node: node, Shell: true, Server: true, Programs: programs,
		Env: []string{"TERM=" + os.Getenv("TERM")}}
	_, _, err = Boot(ctx, k, g, nil)
	return err
}
