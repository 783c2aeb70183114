//go:build !router && (amd64 || arm64)

package bpf

import _ "embed" // the object

// foreign is the object for processors of the other byte order, which a router may have that
// is reached by SSH.
//
//go:embed classifier_bpfeb.o
var foreign []byte
