package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"unbloat/internal/show/cli"
)

// written writes a configuration file, which commands read until the end of the
// test, and returns its path.
func written(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config.toml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv(configEnv, file)
	return file
}

// A key that no command uses, and a wrong value, is refused with its line
// number.
func TestConfigRefuses(t *testing.T) {
	for text, says := range map[string]string{
		"server = \"a\"\nsever = \"b\"\n":                  "config.toml:2: there is no key \"sever\", only server, key_file, router, wan, language",
		"\n\nserver = \"gopher://x\"\n":                    "config.toml:3: server: ",
		"server = 3\n":                                     "config.toml:1: server: must be text in quotes",
		"server = \"a\"\nlanguage = \"xx\"\n":              "config.toml:2: language: \"xx\": must be en or de",
		"# who\nrouter = \"192.0.2.1\"\n":                  "config.toml:2: router: ",
		"wan = \"eth0\"\nkey_file = \"k\"\n":               "config.toml:2: key_file: is the key of server, and there is none",
		"server = \"a\nb\"\n":                              "config.toml:1: ",
		"server = \"a\"\n[router]\naddress = \"ssh://\"\n": "config.toml:",
	} {
		file := written(t, text)
		_, err := readConfig(t.Context(), file)
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want %q", text, err, says)
		}
		root := newRootCommand()
		root.SetArgs([]string{"status"})
		if err := root.Execute(); cli.ExitCode(err) != cli.Usage || !strings.Contains(err.Error(), configEnv+"= reads no configuration") {
			t.Errorf("%q: the command ends with %v", text, err)
		}
	}
	if c, err := readConfig(t.Context(), filepath.Join(t.TempDir(), "none")); err != nil || c != (config{}) {
		t.Errorf("a file that is not there: %+v, %v", c, err)
	}
}

// presetOf returns the values of a command's flags after the configuration was
// read.
func presetOf(t *testing.T, args ...string) map[string]string {
	t.Helper()
	root := newRootCommand()
	c, rest, err := root.Find(args)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	c.RunE = func(c *cobra.Command, _ []string) error {
		err := configure(c)
		for _, name := range []string{"server", "key-file", "router", "wan", "lang"} {
			if f := c.Flags().Lookup(name); f != nil && f.Value.String() != "" {
				out[name] = f.Value.String()
			}
		}
		return err
	}
	root.SetArgs(args)
	if err := root.Execute(); err != nil {
		t.Fatalf("%v (%v): %v", args, rest, err)
	}
	return out
}

// Each command takes the keys that it has flags for, and flags override them.
// The key is not sent to another server, and the WAN is not used for another
// router.
func TestConfigPresets(t *testing.T) {
	file := written(t, "server = \"test.example.net\"\nkey_file = \"key\"\nrouter = \"ssh://root@192.0.2.1\"\nwan = \"eth0\"\nlanguage = \"de\"\n")
	key := filepath.Join(filepath.Dir(file), "key")
	for _, c := range []struct {
		args string
		want map[string]string
	}{
		{"test", map[string]string{"server": "test.example.net", "key-file": key, "lang": "de"}},
		{"test --lang en", map[string]string{"server": "test.example.net", "key-file": key, "lang": "en"}},
		{"test --server 192.0.2.9", map[string]string{"server": "192.0.2.9", "lang": "de"}},
		{"test --server test.example.net", map[string]string{"server": "test.example.net", "key-file": key, "lang": "de"}},
		{"test --key k", map[string]string{"server": "test.example.net", "lang": "de"}},
		{"tune", map[string]string{"server": "test.example.net", "key-file": key, "router": "ssh://root@192.0.2.1", "wan": "eth0", "lang": "de"}},
		{"tune --router ssh://root@192.0.2.2", map[string]string{"server": "test.example.net", "key-file": key, "router": "ssh://root@192.0.2.2", "lang": "de"}},
		{"apply --for linux", map[string]string{"router": "ssh://root@192.0.2.1", "wan": "eth0"}},
		{"apply --wan ppp0", map[string]string{"router": "ssh://root@192.0.2.1", "wan": "ppp0"}},
		{"revert", map[string]string{"router": "ssh://root@192.0.2.1"}},
		{"history", map[string]string{"lang": "de"}},
		{"watchdog journal", map[string]string{}},
	} {
		if d := cmp.Diff(c.want, presetOf(t, strings.Fields(c.args)...)); d != "" {
			t.Errorf("%s: -want +got\n%s", c.args, d)
		}
	}
}

// The file is at the usual place, or at that of an environment variable; if
// that is empty no file is read.
func TestConfigFile(t *testing.T) {
	for _, c := range []struct {
		env  map[string]string
		want string
	}{
		{map[string]string{"HOME": "/home/a"}, "/home/a/.config/unbloat/config.toml"},
		{map[string]string{"HOME": "/home/a", "XDG_CONFIG_HOME": "/x"}, "/x/unbloat/config.toml"},
		{map[string]string{"HOME": "/home/a", "XDG_CONFIG_HOME": "x"}, "/home/a/.config/unbloat/config.toml"},
		{map[string]string{"HOME": "home/a"}, ""},
		{map[string]string{"HOME": "/home/a", configEnv: "/f"}, "/f"},
		{map[string]string{"HOME": "/home/a", configEnv: ""}, ""},
		{map[string]string{}, ""},
	} {
		if got := configFile(func(k string) (string, bool) { v, ok := c.env[k]; return v, ok }); got != c.want {
			t.Errorf("%v: %q, want %q", c.env, got, c.want)
		}
	}
}

// A key file without a key, and one in addition to a key, is refused.
func TestKeyFile(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"good": "secret\n", "empty": "\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if key, err := readKey(filepath.Join(dir, "good")); err != nil || key != "secret" {
		t.Errorf("%q, %v", key, err)
	}
	for args, says := range map[string]string{
		"--key-file " + filepath.Join(dir, "empty"):             "first line is empty",
		"--key-file " + filepath.Join(dir, "none"):              "no such file",
		"--key-file " + filepath.Join(dir, "good") + " --key k": "not both",
	} {
		root := newRootCommand()
		root.SetArgs(append([]string{"test", "--server", "127.0.0.1:1"}, strings.Fields(args)...))
		if err := root.Execute(); err == nil || !strings.Contains(err.Error(), says) || cli.ExitCode(err) != cli.Usage {
			t.Errorf("%s: %v", args, err)
		}
	}
}
