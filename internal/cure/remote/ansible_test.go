package remote_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"unbloat/testkit/fake"
	"unbloat/testkit/labtest"

	"github.com/google/go-cmp/cmp"
)

// ansibleVersion is the ansible-core with which the collection is tested.
const ansibleVersion = "ansible-core==2.18.19"

// ansible returns the directory of ansible's programs, which it installs once into
// the cache.
func ansible(t *testing.T) string {
	t.Helper()
	if os.Getenv("UNBLOAT_LONG") == "" && os.Getenv("UNBLOAT_ANSIBLE") == "" {
		t.Skip("SKIPPED: it installs ansible-core; UNBLOAT_LONG=1 runs it, or UNBLOAT_ANSIBLE=DIR with its programs")
	}
	if dir := os.Getenv("UNBLOAT_ANSIBLE"); dir != "" {
		return dir
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Skipf("SKIPPED: %v", err)
	}
	dir := filepath.Join(cache, "unbloat", ansibleVersion)
	if _, err := os.Stat(filepath.Join(dir, "bin", "ansible-playbook")); err == nil {
		return filepath.Join(dir, "bin")
	}
	for _, argv := range [][]string{{"python3", "-m", "venv", dir}, {filepath.Join(dir, "bin", "pip"), "install", "--quiet", "--disable-pip-version-check", ansibleVersion}} {
		if out, err := exec.CommandContext(t.Context(), argv[0], argv[1:]...).CombinedOutput(); err != nil {
			_ = os.RemoveAll(dir)
			t.Skipf("SKIPPED: %s can't be had: %v: %s", ansibleVersion, err, out)
		}
	}
	return filepath.Join(dir, "bin")
}

// A shaped is what the module says of a router, and what facts it leaves.
type shaped struct {
	Shaped struct {
		Changed, Failed bool
		Msg             string
		Commands        []string
		Diff            struct {
			Before, After struct {
				Plan    map[string]any
				Differs []string // what the router has that is not the plan
			}
		}
	}
	Unbloat struct {
		Platform string
		Shapers  []struct {
			Ours bool
			Rate int `json:"rate_bps"`
		}
		Lines map[string]any
	}
}

// stagedAtUsualPath is staged for the program as it comes, which tells the router
// another PATH than tests do: sshd puts the stage before it. It has a /run of its own,
// where the program has its watchdogs.
func stagedAtUsualPath(t *testing.T, p fakeRouter) *server {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("SKIPPED: a router's /run is root's")
	}
	dir, err := os.MkdirTemp("", "stage")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if _, has := p.machine.Tools["ifconfig"]; !has { // status asks whether the interface is there
		p.machine.Tools["ifconfig"] = fake.Tool{Run: func([]string, []byte) (string, error) { return p.wan + ": flags=8863<UP>\n", nil }}
	}
	paths := p.byPath()
	newStage(t, dir, p.addSystem(), p.machine, p.lock)
	// Words that shells read differently come as octal numbers.
	octal := func(s string) (out string) {
		for _, c := range []byte(s) {
			out += fmt.Sprintf(`\\%03o`, c)
		}
		return out
	}
	const was = "PATH=/usr/sbin:"
	is := "PATH=" + dir + "/bin:/usr/sbin:"
	write(t, dir+"/force", "#!/bin/sh\nexec /bin/sh -c \"$(printf '%s\\n' \"$SSH_ORIGINAL_COMMAND\" | sed -e 's#"+was+"#"+is+"#g' -e 's#"+octal(was)+"#"+octal(is)+"#g')\"\n")
	if err := os.Chmod(dir+"/force", 0o755); err != nil {
		t.Fatal(err)
	}
	run := t.TempDir()
	if err := os.Chmod(run, 0o755); err != nil {
		t.Fatal(err)
	}
	return startServerBy(t, labtest.Own("/run", run, []string{"/run/sshd"}, inNamespace(t, paths, p.lacks(), dir)...), "SetEnv "+stageEnv+"="+dir+"/stage SHLVL=2", "ForceCommand "+dir+"/force")
}

// A controller is a machine with ansible-core and the collection, in directories of
// its own.
type controller struct {
	bin       string // directory of ansible's programs
	dir       string
	inventory string                         // its file
	command   func(argv ...string) *exec.Cmd // how programs are started there
}

// newController installs the collection from this tree.
func newController(t *testing.T, bin string, command func(argv ...string) *exec.Cmd) *controller {
	t.Helper()
	dir := t.TempDir()
	c := &controller{bin: bin, dir: dir, inventory: filepath.Join(dir, "inventory.yml"), command: command}
	collection := filepath.Join(dir, "ansible_collections", "unbloat", "router")
	if err := os.MkdirAll(filepath.Dir(collection), 0o755); err != nil {
		t.Fatal(err)
	}
	source, err := filepath.Abs("../../../contrib/ansible")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(source, collection); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "play.yml"), "- import_playbook: unbloat.router.routers\n"+tell("local", dir))
	return c
}

// tell is a play that writes what the module said of each router, and the facts that
// it left, into files in a directory of the controller.
func tell(connection, dir string) string {
	return `- hosts: routers
  connection: ` + connection + `
  gather_facts: false
  tasks:
    - ansible.builtin.copy:
        content: "{{ {'shaped': shaped, 'unbloat': unbloat} | to_json }}"
        dest: "` + dir + `/said-{{ inventory_hostname }}"
        mode: "0600"
      delegate_to: localhost
      check_mode: false
      diff: false
`
}

// run runs a play of the controller's directory, and returns what Ansible printed.
func (c *controller) run(play string, args ...string) (string, error) {
	x := c.command(append([]string{filepath.Join(c.bin, "ansible-playbook"), "-i", c.inventory, filepath.Join(c.dir, play), "--diff"}, args...)...)
	x.Env = append(os.Environ(), "ANSIBLE_COLLECTIONS_PATH="+c.dir, "ANSIBLE_LOCAL_TEMP="+c.dir+"/tmp", "ANSIBLE_HOME="+c.dir+"/home", "ANSIBLE_REMOTE_TEMP="+c.dir+"/remote", "XDG_STATE_HOME="+c.dir+"/state", "SSH_AUTH_SOCK=", "LC_ALL=C.UTF-8", "PYTHONDONTWRITEBYTECODE=1")
	out, err := x.CombinedOutput()
	return string(out), err
}

// play runs a play that must succeed, and returns what the module says of each of the
// routers.
func (c *controller) play(t *testing.T, play string, routers []string, args ...string) map[string]shaped {
	t.Helper()
	if out, err := c.run(play, args...); err != nil {
		t.Fatalf("%q: %v: %s", args, err, out)
	}
	said := map[string]shaped{}
	for _, name := range routers {
		file := filepath.Join(c.dir, "said-"+name)
		text, err := os.ReadFile(file)
		var s shaped
		if err == nil {
			err = json.Unmarshal(text, &s)
		}
		if err != nil {
			t.Fatalf("%s: %v %s", name, err, text)
		}
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		said[name] = s
	}
	return said
}

// TestAnsibleLong: the collection's example play shapes every platform's stand-in over
// SSH, says in check mode what it would do, does nothing the second time, changes what
// is wanted otherwise, and takes it back to the byte.
func TestAnsibleLong(t *testing.T) {
	bin := ansible(t)
	program := filepath.Join(t.TempDir(), "unbloat")
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-buildvcs=false", "-o", program, "unbloat/cmd/unbloat")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	c := newController(t, bin, func(argv ...string) *exec.Cmd { return exec.CommandContext(t.Context(), argv[0], argv[1:]...) })
	t.Run("one half", func(t *testing.T) { plays(t, c, program, "openwrt", "freebsd", "openbsd") })
	t.Run("other half", func(t *testing.T) { plays(t, c, program, "clearos", "pfsense", "openbsd-altq") })
}

// plays runs the play for some of the routers.
func plays(t *testing.T, c *controller, program string, names ...string) {
	routers := slices.DeleteFunc(platforms(), func(p fakeRouter) bool { return !slices.Contains(names, p.name) })
	before, after := map[string]string{}, map[string]string{}
	inventory := "routers:\n  vars: {unbloat_executable: " + program + ", ansible_python_interpreter: " + filepath.Join(c.bin, "python3") + "}\n  hosts:\n"
	for _, p := range routers {
		s := stagedAtUsualPath(t, p)
		before[p.name] = p.text()
		inventory += fmt.Sprintf("    %s: {ansible_host: 127.0.0.1, ansible_port: %d, router_user: %s, router_identity: %s, router_known_hosts: %s, line_wan: %s, line_lan: %s, line_up: 10mbit}\n",
			p.name, s.target.Port, s.target.User, s.options.Identities[0], s.options.KnownHosts[0], p.wan, map[string]string{"wan": "lan", "igb0": "igb1", "em0": "em1"}[p.wan])
	}
	write(t, c.inventory, inventory)
	const down = "-eline_down=50mbit"
	for _, step := range []struct {
		name    string
		args    []string
		changed bool   // what the module says
		shaped  bool   // what is there afterwards
		really  string // "": as before the step, "new": neither that nor as in the beginning, "undone": as in the beginning
	}{
		{"check", []string{down, "--check"}, true, false, ""},
		{"shape", []string{down}, true, true, "new"},
		{"again", []string{down}, false, true, ""},
		{"other rates", []string{"-eline_down=40mbit"}, true, true, "new"},
		{"check removal", []string{"-eline_state=absent", "--check"}, true, true, ""},
		{"remove", []string{"-eline_state=absent"}, true, false, "undone"},
		{"remove again", []string{"-eline_state=absent"}, false, false, "undone"},
	} {
		for _, p := range routers {
			after[p.name] = p.text()
		}
		for name, s := range c.play(t, "play.yml", names, step.args...) {
			if s.Unbloat.Platform != name {
				t.Errorf("%s: %s is said to be %q", step.name, name, s.Unbloat.Platform)
			}
			if s.Shaped.Changed != step.changed || len(s.Unbloat.Lines) > 0 != step.shaped {
				t.Errorf("%s: %s: changed %v, lines %v", step.name, name, s.Shaped.Changed, s.Unbloat.Lines)
			}
			if same := cmp.Equal(s.Shaped.Diff.Before, s.Shaped.Diff.After); same == step.changed {
				t.Errorf("%s: %s: the difference that it tells is %v", step.name, name, s.Shaped.Diff)
			}
			if step.really == "new" && len(s.Shaped.Commands) == 0 {
				t.Errorf("%s: %s: it does not say what it did", step.name, name)
			}
		}
		for _, p := range routers {
			switch now := p.text(); step.really {
			case "new":
				if now == after[p.name] || now == before[p.name] {
					t.Errorf("%s: %s is as it was", step.name, p.name)
				}
			case "undone":
				if diff := cmp.Diff(before[p.name], now); diff != "" {
					t.Errorf("%s: %s is not as in the beginning:\n%s", step.name, p.name, diff)
				}
			default:
				if diff := cmp.Diff(after[p.name], now); diff != "" {
					t.Errorf("%s: %s was changed:\n%s", step.name, p.name, diff)
				}
			}
		}
	}
}
