package bpf

import (
	"github.com/cilium/ebpf"

	"unbloat/internal/cure/classify"
)

// Objects are the loaded programs and maps.
type Objects = classifierObjects

// Prepared returns the program for a test run: time comes from the map
// clock_of_test, and the reason goes to cb[0].
func Prepared(p classify.Policy, s classify.Setting) (*ebpf.CollectionSpec, error) {
	return prepared(p, s, true)
}
