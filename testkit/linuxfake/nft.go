package linuxfake

import (
	"errors"
	"slices"
	"strings"
)

// nft stores one table, as the text that was loaded last.
func (k *Kernel) nft(args []string, stdin string) (string, error) {
	switch {
	case k.lacks("nft"):
		return "", errors.New("netlink: Error: cache initialization failed: Protocol not supported")
	case slices.Contains(args, "ruleset"):
		return k.Others + k.Table, nil
	case slices.Contains(args, "list"):
		if k.Table == "" {
			return "", errors.New("Error: No such file or directory") //nolint:staticcheck // as nft(8) says it
		}
		if k.Lists != nil {
			return k.Lists(k.Table), nil
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

// loadAndList is the one script that sh(1) gets: load a table and list it.
func (k *Kernel) loadAndList(script, stdin string) (stdout, stderr []byte, err error) {
	load, list, ok := strings.Cut(script, " && exec ")
	if !ok || load != "nft -f -" || !strings.HasPrefix(list, "nft ") {
		return nil, []byte("sh: " + script + ": not found"), errExit
	}
	var out string
	for _, line := range []string{load, list} {
		if out, err = k.nft(strings.Fields(line)[1:], stdin); err != nil {
			return nil, []byte(err.Error()), errExit
		}
	}
	return []byte(out), nil, nil
}
