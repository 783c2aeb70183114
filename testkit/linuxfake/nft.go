package linuxfake

import (
	"errors"
	"maps"
	"slices"
	"strings"
)

// nft stores tables, as the text that was loaded last.
func (k *Kernel) nft(args []string, stdin string) (string, error) {
	tables := map[string]string{}
	for text := range strings.SplitAfterSeq(k.Table, "\n}\n") {
		if text != "" {
			tables[strings.Fields(text)[2]] = text
		}
	}
	defer func() {
		k.Table = ""
		for _, name := range slices.Sorted(maps.Keys(tables)) {
			k.Table += tables[name]
		}
	}()
	asked := "" // the table
	if i := slices.Index(args, "inet"); i > 0 {
		asked = tables[args[i+1]]
	}
	switch {
	case k.lacks("nft"):
		return "", errors.New("netlink: Error: cache initialization failed: Protocol not supported")
	case slices.Contains(args, "ruleset"):
		return k.Others + k.Table, nil
	case args[0] == "delete" || slices.Contains(args, "list"):
		switch {
		case asked == "":
			return "", errors.New("Error: No such file or directory") //nolint:staticcheck // as nft(8) says it
		case args[0] == "delete":
			delete(tables, args[len(args)-1])
		case k.Lists != nil:
			return k.Lists(asked), nil
		default:
			return asked, nil
		}
	case args[0] == "-f":
		drops, table, ok := strings.Cut(stdin, " {\n")
		if !ok || !strings.HasPrefix(table, "\tchain plan_") {
			return "", errors.New("Error: syntax error") //nolint:staticcheck // as nft(8) says it
		}
		words := strings.Fields(drops)
		for i := 0; i+3 < len(words); i++ {
			if words[i] == "delete" {
				delete(tables, words[i+3])
			}
		}
		name := words[len(words)-1]
		tables[name] = "table inet " + name + " {\n" + table
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
