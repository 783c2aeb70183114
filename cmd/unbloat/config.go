package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"unbloat/internal/show/cli"
)

// A config has defaults for flags of many commands. Flags override it.
type config struct {
	Server   string `toml:"server"`   // as --server
	KeyFile  string `toml:"key_file"` // as --key-file; for that server alone
	Router   string `toml:"router"`   // as --router
	WAN      string `toml:"wan"`      // as --wan; of that router alone
	Language string `toml:"language"` // as --lang
}

// configEnv is the environment variable with the path of the file; if it is
// empty no file is read.
const configEnv = "UNBLOAT_CONFIG"

// configFile returns the path of the file, which need not exist, or "" for
// none.
func configFile(lookup func(string) (string, bool)) string {
	if file, ok := lookup(configEnv); ok {
		return file
	}
	dir, _ := lookup("XDG_CONFIG_HOME")
	if !filepath.IsAbs(dir) { // a relative path is ignored (XDG Base Directory Specification)
		home, _ := lookup("HOME")
		if !filepath.IsAbs(home) {
			return ""
		}
		dir = filepath.Join(home, ".config")
	}
	return filepath.Join(dir, "unbloat", "config.toml")
}

// readConfig reads the file. A missing file is an empty configuration. Errors
// name the file and the line.
func readConfig(ctx context.Context, file string) (config, error) {
	var c config
	if file == "" {
		return c, nil
	}
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return c, nil
	}
	if err != nil {
		return c, fmt.Errorf("read the configuration: %w", err)
	}
	d := toml.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	var strict *toml.StrictMissingError
	var bad *toml.DecodeError
	switch err := d.Decode(&c); {
	case errors.As(err, &strict):
		line, _ := strict.Errors[0].Position()
		return c, fmt.Errorf("read the configuration: %s:%d: there is no key %q, only %s", file, line, strings.Join(strict.Errors[0].Key(), "."), strings.Join(configKeys(), ", "))
	case errors.As(err, &bad):
		line, _ := bad.Position()
		if key := strings.Join(bad.Key(), "."); key != "" {
			return c, fmt.Errorf("read the configuration: %s:%d: %s: must be text in quotes", file, line, key)
		}
		return c, fmt.Errorf("read the configuration: %s:%d: %s", file, line, strings.TrimPrefix(bad.Error(), "toml: "))
	case err != nil:
		return c, fmt.Errorf("read the configuration: %s: %w", file, err)
	}
	return c, c.check(ctx, file, text)
}

// configKeys are the valid keys.
func configKeys() []string { return []string{"server", "key_file", "router", "wan", "language"} }

// check refuses values that the commands would refuse, and makes the path of
// the key's file relative to the configuration file.
func (c *config) check(ctx context.Context, file string, text []byte) error {
	bad := func(key string, err error) error {
		return fmt.Errorf("read the configuration: %s:%d: %s: %w", file, lineOf(text, key), key, err)
	}
	if c.Server != "" {
		if err := checkServer(ctx, c.Server); err != nil {
			return bad("server", err)
		}
	}
	if c.Language != "" {
		if err := checkLanguage(c.Language); err != nil {
			return bad("language", err)
		}
	}
	if c.Router != "" && !strings.Contains(c.Router, "://") {
		return bad("router", fmt.Errorf("%q: must be ssh://user@host[:port] or opnsense+https://host[:port]", c.Router))
	}
	if c.KeyFile == "" {
		return nil
	}
	if c.Server == "" {
		return bad("key_file", errors.New("is the key of server, and there is none"))
	}
	if rest, ok := strings.CutPrefix(c.KeyFile, "~/"); ok {
		home, err := os.UserHomeDir()
		if err != nil {
			return bad("key_file", err)
		}
		c.KeyFile = filepath.Join(home, rest)
	}
	if !filepath.IsAbs(c.KeyFile) {
		c.KeyFile = filepath.Join(filepath.Dir(file), c.KeyFile)
	}
	return nil
}

// lineOf returns the line number of a key's value, or 0 if it is not found.
func lineOf(text []byte, key string) int {
	var p unstable.Parser
	p.Reset(text)
	for p.NextExpression() {
		e := p.Expression()
		if e.Kind != unstable.KeyValue {
			continue
		}
		it := e.Key()
		if it.Next() && string(it.Node().Data) == key {
			return p.Shape(it.Node().Raw).Start.Line
		}
	}
	return 0
}

// withConfig makes every command below root read the configuration before it
// runs, except the watchdog, which gets everything from whoever starts it.
func withConfig(root *cobra.Command) {
	for _, c := range root.Commands() {
		if c.Name() == "watchdog" {
			continue
		}
		withConfig(c)
		if run := c.RunE; run != nil {
			c.RunE = func(c *cobra.Command, args []string) error {
				if err := configure(c); err != nil {
					return err
				}
				return run(c, args)
			}
		}
	}
}

// configured reports which keys of the configuration a command uses.
func configured(c *cobra.Command) (server, router, wan bool) {
	switch c.Name() {
	case "test":
		return true, false, false
	case "tune", "prove":
		return true, true, true
	case "plan", "apply", "doctor", "status", "why":
		return false, true, true
	case "confirm", "revert":
		return false, true, false
	}
	return false, false, false
}

// configure sets a command's flags from the configuration, unless they were
// given.
func configure(c *cobra.Command) error {
	fs := c.Flags()
	server, router, wan := configured(c)
	if !server && !router && !wan && fs.Lookup("lang") == nil {
		return nil
	}
	o, err := readConfig(c.Context(), configFile(os.LookupEnv))
	if err != nil {
		return cli.UsageError("%s: %w; %s= reads no configuration", c.CommandPath(), err, configEnv)
	}
	given := func(name string) bool { f := fs.Lookup(name); return f != nil && f.Changed }
	if server && (!given("server") || fs.Lookup("server").Value.String() == o.Server) {
		if err := preset(fs, "server", o.Server); err != nil {
			return err
		}
		if !given("key") { // only for the configured server
			if err := preset(fs, "key-file", o.KeyFile); err != nil {
				return err
			}
		}
	}
	// The WAN is the configured router's, so it does not apply to a plan for
	// another platform.
	if wan && !given("router") && !(given("for") && c.Name() == "plan") {
		if err := preset(fs, "wan", o.WAN); err != nil {
			return err
		}
	}
	if router {
		if err := preset(fs, "router", o.Router); err != nil {
			return err
		}
	}
	return preset(fs, "lang", o.Language)
}

// preset sets a flag, if the command has it and it was not given.
func preset(fs *pflag.FlagSet, name, value string) error {
	f := fs.Lookup(name)
	if f == nil || f.Changed || value == "" {
		return nil
	}
	return f.Value.Set(value)
}
