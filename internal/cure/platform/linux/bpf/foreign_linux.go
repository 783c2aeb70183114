//go:build !router && (amd64 || arm64)

package bpf

import _ "embed" // the object

//go:embed classifier_bpfeb.o
var objectOfBig []byte

func init() { foreign = objectOfBig }
