package bsd

import "unbloat/internal/plan"

// Sorting is how a platform's rules look flows up in ipfw's table.
type Sorting struct {
	// Queue returns the number of a class's queue.
	Queue func(d plan.Direction, c plan.Class) int
	// Missing returns the commands that make the rules and the table, given what
	// `ipfw list` shows, where they are not a part of the plan's configuration; nil:
	// they are. The error says why that can't be.
	Missing func(rules string) ([][]string, error)
}
