package remote_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"unbloat/lab"
	"unbloat/testkit/labtest"

	"github.com/google/go-cmp/cmp"
)

// A labRouter is a router of the play on the lab's kernel.
type labRouter struct {
	name, node, wan, lan, address string
	provider                      string // address of its provider; "": it is the lab's own router
}

// offices are the routers: that of the home, and two that are elsewhere on the internet,
// which the controller reaches through the line of the home.
var offices = []labRouter{
	{name: "home", node: lab.NodeRouter, wan: "wan", lan: "lan", address: "10.1.0.1"},
	{name: "office-berlin", node: "berlin", wan: "berlin-wan", lan: "berlin-lan", address: "203.0.113.2", provider: "203.0.113.1"},
	{name: "office-lyon", node: "lyon", wan: "lyon-wan", lan: "lyon-lan", address: "203.0.113.6", provider: "203.0.113.5"},
}

// bandwidths returns the rates in bit/s that the kernel's CAKEs hold, by their
// interface.
func (r labRouter) bandwidths(t *testing.T) map[string]int {
	t.Helper()
	var list []struct {
		Kind, Dev string
		Options   struct{ Bandwidth int } // bytes/s
	}
	out, err := labtest.In(t.Context(), r.node, "tc", "-j", "qdisc", "show").Output()
	if err == nil {
		err = json.Unmarshal(out, &list)
	}
	if err != nil {
		t.Fatalf("%s: tc -j qdisc show: %v: %s", r.name, err, out)
	}
	rates := map[string]int{}
	for _, q := range list {
		if q.Kind == "cake" {
			rates[q.Dev] = q.Options.Bandwidth * 8
		}
	}
	return rates
}

// build makes the router's node, with a network behind it and a line to the provider.
func (r labRouter) build(t *testing.T) {
	t.Helper()
	for _, line := range []string{
		"netns add " + r.node,
		"link add " + r.wan + " netns " + r.node + " type veth peer name " + r.node + " netns " + lab.NodeISP,
		"link add " + r.lan + " netns " + r.node + " type veth peer name " + r.lan + "-far netns " + r.node,
		"-n " + lab.NodeISP + " addr add " + r.provider + "/30 dev " + r.node,
		"-n " + lab.NodeISP + " link set " + r.node + " up",
		"-n " + r.node + " link set lo up",
		"-n " + r.node + " link set " + r.lan + "-far up",
		"-n " + r.node + " link set " + r.lan + " up",
		"-n " + r.node + " link set " + r.wan + " up",
		"-n " + r.node + " addr add " + r.address + "/30 dev " + r.wan,
		"-n " + r.node + " route add default via " + r.provider,
	} {
		if out, err := exec.CommandContext(t.Context(), "ip", strings.Fields(line)...).CombinedOutput(); err != nil {
			t.Fatalf("ip %s: %v: %s", line, err, out)
		}
	}
	waitFor(t, r.name, func() bool {
		return labtest.In(t.Context(), "home1", "ping", "-c", "1", "-W", "1", r.address).Run() == nil
	})
}

// TestAnsibleInLabLong: ansible-core runs the collection's example play on a machine
// of a home, for three routers of a real kernel, of which two are elsewhere. It does
// what it does on stand-ins (TestAnsibleLong), tc holds the rates that the facts tell,
// and what somebody took away by hand comes back. A play that cannot be done fails with
// a message that says why, changes nothing, and goes to no further router.
func TestAnsibleInLabLong(t *testing.T) {
	l := newAnsibleLab(t, offices)
	if l == nil {
		return
	}
	const at50 = "-eline_down=50mbit"
	l.wrong("no such interface", "there is no such interface; name one of ", at50, "-eline_wan=wan9")
	l.wrong("no rate", `rate "fast"`, "-eline_down=fast")
	byHand(t, "add", "dev", "wan", "root", "tbf", "rate", "4mbit", "burst", "5000", "latency", "50ms")
	l.wrong("somebody's shaper", "was not made by unbloat; remove it, or take over with --replace", at50)
	byHand(t, "del", "dev", "wan", "root")
	const at40, away = "-eline_down=40mbit", "-eline_state=absent"
	l.steps("play.yml",
		labStep{"check", []string{at50, "--check"}, true, unchanged, 0},
		labStep{"shape", []string{at50}, true, shapedAnew, 45e6},
		labStep{"again", []string{at50}, false, unchanged, 45e6},
		labStep{"other rates", []string{at40}, true, shapedAnew, 36e6})
	empty := filepath.Join(t.TempDir(), "empty")
	write(t, empty, "")
	l.wrong("unknown host key", "its host key is not known", at50, "-erouter_known_hosts="+empty)
	for _, r := range offices {
		if out, err := labtest.In(t.Context(), r.node, "tc", "qdisc", "del", "dev", r.wan, "root").CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", r.name, err, out)
		}
	}
	l.steps("play.yml",
		labStep{"taken away by hand", []string{at40}, true, shapedAnew, 36e6},
		labStep{"check removal", []string{away, "--check"}, true, unchanged, 36e6},
		labStep{"remove", []string{away}, true, asAtStart, 0},
		labStep{"remove again", []string{away}, false, asAtStart, 0})
	for _, r := range offices {
		if left := l.keys.watchdogs(r.node); len(left) > 0 {
			t.Errorf("%s: watchdogs are left: %v", r.name, left)
		}
	}
}

// TestAnsibleOnRouterInLabLong: on a router with Python, which Ansible reaches by its
// own SSH, the module does the same without an address.
func TestAnsibleOnRouterInLabLong(t *testing.T) {
	l := newAnsibleLab(t, offices[:1])
	if l == nil {
		return
	}
	write(t, filepath.Join(l.controller.dir, "there.yml"), `- hosts: routers
  gather_facts: false
  vars:
    ansible_user: root
    ansible_ssh_private_key_file: `+l.keys.identity+`
    ansible_ssh_common_args: -o UserKnownHostsFile=`+l.keys.known+` -o ControlMaster=no
  tasks:
    - unbloat.router.unbloat_line:
        wan: "{{ line_wan }}"
        lan: "{{ line_lan }}"
        down: 50mbit
        up: "{{ line_up }}"
        state: "{{ line_state | default('present') }}"
        executable: "{{ unbloat_executable }}"
      register: shaped
`+tell("ssh", l.controller.dir))
	l.steps("there.yml",
		labStep{"check", []string{"--check"}, true, unchanged, 0},
		labStep{"shape", nil, true, shapedAnew, 45e6},
		labStep{"again", nil, false, unchanged, 45e6},
		labStep{"remove", []string{"-eline_state=absent"}, true, asAtStart, 0})
}

// An ansibleLab is the controller and the routers of a test, inside the guest.
type ansibleLab struct {
	t          *testing.T
	controller *controller
	keys       *labKeys
	routers    []labRouter
	start      map[string]string // the routers' queues in the beginning
}

// newAnsibleLab makes the routers and the controller; outside of the guest it returns
// nil, and the test has run.
func newAnsibleLab(t *testing.T, routers []labRouter) *ansibleLab {
	t.Helper()
	bin := ansible(t)
	labtest.NeedSeccomp(t)
	if !labtest.Inside(t, labtest.Options{Node: lab.NodeRouter, Env: []string{"UNBLOAT_ANSIBLE=" + bin}}) {
		return nil
	}
	l := &ansibleLab{t: t, keys: newLabKeys(t, t.TempDir()), routers: routers}
	inventory := fmt.Sprintf("routers:\n  vars: {unbloat_executable: %s, ansible_python_interpreter: %s, ansible_port: 2222, router_identity: %s, router_known_hosts: %s, line_up: 10mbit}\n  hosts:\n",
		labtest.Unbloat(), filepath.Join(bin, "python3"), l.keys.identity, l.keys.known)
	for _, r := range routers {
		if r.provider != "" {
			r.build(t)
		}
		l.keys.serve(t, r.node, r.address+":2222")
		inventory += fmt.Sprintf("    %s: {ansible_host: %s, line_wan: %s, line_lan: %s}\n", r.name, r.address, r.wan, r.lan)
	}
	l.start = l.now()
	l.controller = newController(t, bin, func(argv ...string) *exec.Cmd { return labtest.In(t.Context(), "home1", argv...) })
	write(t, l.controller.inventory, inventory)
	return l
}

// now returns the queues of all routers.
func (l *ansibleLab) now() map[string]string {
	l.t.Helper()
	q := map[string]string{}
	for _, r := range l.routers {
		q[r.name] = queuesOf(l.t, r.node, r.wan, r.lan)
	}
	return q
}

// wrong runs the play, which must fail on the first router for this reason, and leave
// all as it was.
func (l *ansibleLab) wrong(name, says string, args ...string) {
	l.t.Helper()
	before := l.now()
	out, err := l.controller.run("play.yml", args...)
	var exit *exec.ExitError
	var failed struct{ Msg string }
	_, text, _ := strings.Cut(out, "fatal: [home]: FAILED! => ")
	if !errors.As(err, &exit) || json.NewDecoder(strings.NewReader(text)).Decode(&failed) != nil || !strings.Contains(failed.Msg, says) {
		l.t.Errorf("%s: %v; want a message with %q; it says %s", name, err, says, out)
	}
	if _, recap, _ := strings.Cut(out, "PLAY RECAP"); !strings.Contains(recap, "failed=1") || strings.Contains(recap, "office") {
		l.t.Errorf("%s: want one router that failed, and no other: %s", name, recap)
	}
	if diff := cmp.Diff(before, l.now()); diff != "" {
		l.t.Errorf("%s: it changed something:\n%s", name, diff)
	}
}

// What the kernel has after a step.
const (
	unchanged  = iota
	shapedAnew // shaped, and not as before the step
	asAtStart
)

// A labStep is a play, and what must be so afterwards.
type labStep struct {
	name    string
	args    []string
	changed bool // what the module says
	kernel  int  // unchanged, shapedAnew or asAtStart
	down    int  // bit/s that the facts tell; 0: they tell of no shaper
}

// steps runs a play of the controller step by step.
func (l *ansibleLab) steps(play string, steps ...labStep) {
	l.t.Helper()
	var names []string
	for _, r := range l.routers {
		names = append(names, r.name)
	}
	for _, step := range steps {
		before := l.now()
		said := l.controller.play(l.t, play, names, step.args...)
		now := l.now()
		for _, r := range l.routers {
			step.look(l.t, r, said[r.name], l.start[r.name], before[r.name], now[r.name])
		}
	}
}

// look checks what the module said of a router against the step and the kernel.
func (s labStep) look(t *testing.T, r labRouter, said shaped, start, before, now string) {
	t.Helper()
	diff := said.Shaped.Diff
	if said.Unbloat.Platform != "linux" || said.Shaped.Changed != s.changed {
		t.Errorf("%s: %s: platform %q, changed %v", s.name, r.name, said.Unbloat.Platform, said.Shaped.Changed)
	}
	if same := cmp.Equal(diff.Before, diff.After); same == s.changed {
		t.Errorf("%s: %s: the difference that it tells is %v", s.name, r.name, diff)
	}
	switch s.kernel {
	case unchanged:
		if diff := cmp.Diff(before, now); diff != "" {
			t.Errorf("%s: %s was changed:\n%s", s.name, r.name, diff)
		}
	case asAtStart:
		if diff := cmp.Diff(start, now); diff != "" {
			t.Errorf("%s: %s is not as in the beginning:\n%s", s.name, r.name, diff)
		}
	case shapedAnew:
		if now == before || now == start || len(said.Shaped.Commands) == 0 {
			t.Errorf("%s: %s is as it was, or nothing is said of what was done", s.name, r.name)
		}
		want := map[string]int{r.wan: 9.5e6, "ifb4" + r.wan: s.down}
		if diff := cmp.Diff(want, r.bandwidths(t)); diff != "" {
			t.Errorf("%s: %s: tc's rates (+) are not those wanted (-):\n%s", s.name, r.name, diff)
		}
	}
	var told, want []int
	for _, q := range said.Unbloat.Shapers {
		if q.Ours {
			told = append(told, q.Rate)
		}
	}
	slices.Sort(told)
	if s.down > 0 {
		want = []int{9.5e6, s.down}
	}
	if _, line := said.Unbloat.Lines[r.wan]; !slices.Equal(told, want) || line != (s.down > 0) || len(said.Unbloat.Lines) > 1 {
		t.Errorf("%s: %s: the facts tell of rates %v, want %v; of lines %v", s.name, r.name, told, want, said.Unbloat.Lines)
	}
}
