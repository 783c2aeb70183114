package fakekernel

import (
	"errors"
	"slices"
	"strings"
)

// nft holds one table, as the text that replaced it.
func (k *Kernel) nft(args []string, stdin string) (string, error) {
	switch {
	case k.lacks("nft"):
		return "", errors.New("netlink: Error: cache initialization failed: Protocol not supported")
	case slices.Contains(args, "list"):
		if k.Table == "" {
			return "", errors.New("Error: No such file or directory") //nolint:staticcheck // as nft(8) says it
		}
		return k.Table, nil
	case args[0] == "delete":
		if k.Table == "" {
			return "", errors.New("Error: No such file or directory") //nolint:staticcheck // as nft(8) says it
		}
		k.Table = ""
	case args[0] == "-f":
		i := strings.Index(stdin, "table inet unbloat {")
		if i < 0 {
			return "", errors.New("Error: syntax error") //nolint:staticcheck // as nft(8) says it
		}
		k.Table = stdin[i:]
	}
	return "", nil
}
