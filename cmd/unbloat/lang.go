package main

import (
	"os"
	"strings"

	"github.com/spf13/pflag"

	"unbloat/internal/show/cli"
	"unbloat/reason"
)

// langFlag adds the flag that chooses the language of a table.
func langFlag(f *pflag.FlagSet, tag *string) {
	f.StringVar(tag, "lang", "", "`LANGUAGE` of the final table: "+strings.Join(languageTags(), " or ")+" (default: LC_ALL, LC_MESSAGES or LANG, else en)")
}

func languageTags() []string {
	var tags []string
	for _, l := range reason.Languages() {
		tags = append(tags, l.Tag)
	}
	return tags
}

// language returns the language of the flag, or else of the environment.
func language(command, tag string) (*reason.Language, error) {
	if tag == "" {
		return reason.FromEnvironment(os.Getenv), nil
	}
	l, ok := reason.Find(tag)
	if !ok {
		return nil, cli.UsageError("%s: --lang %q: must be %s", command, tag, strings.Join(languageTags(), " or "))
	}
	return l, nil
}
