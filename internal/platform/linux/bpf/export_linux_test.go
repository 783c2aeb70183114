//go:build !omit_bpf

package bpf

import (
	"github.com/cilium/ebpf"

	"unbloat/internal/classify"
)

// Objects are the loaded programs and maps.
type Objects = classifierObjects

// Prepared returns the program for a test run: time comes from the map
// clock_of_test, and the reason goes to cb[0].
func Prepared(t *classify.Table, s Setting) (*ebpf.CollectionSpec, error) {
	return prepared(t, s, true)
}
