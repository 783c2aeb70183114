package openbsd

import (
	"slices"
	"testing"
)

// TestAssigned: the queues of a rule are found in each form that pfctl prints.
func TestAssigned(t *testing.T) {
	for rule, want := range map[string][]string{
		"match out on em0 all set (queue std)":                                           {"std"},
		"match out on em0 all set (prio 6, queue pri)":                                   {"pri"},
		"match out on em0 proto tcp all set (prio(3, 5), queue(std, pri)) tagged x":      {"std", "pri"},
		"pass out on em0 all flags S/SA keep state queue bb":                             {"bb"},
		`pass out on em0 all flags S/SA keep state label "my queue std" queue(std, pri)`: {"std", "pri"},
		`match out on em0 all set (queue std) label "queue pri"`:                         {"std"},
		"match out on em0 all set (prio 6)":                                              nil,
		"block drop in on em0 all label \"queue\"":                                       nil,
		"queue": nil,
	} {
		if got := assigned(rule); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", rule, got, want)
		}
	}
}
