//go:build tools

// Package peers names the programs of others that the tests build.
package peers

import (
	_ "github.com/m-lab/ndt-server"
	_ "github.com/m-lab/ndt7-client-go/cmd/ndt7-client"
)
