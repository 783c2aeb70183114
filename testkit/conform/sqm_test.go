package conform

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"unbloat/internal/cure/lang/sqm"
	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform/linux"
	hostopenwrt "unbloat/internal/cure/platform/openwrt"
	"unbloat/testkit/openwrtfake"
)

// TestSQMMatrix gives the section and the script of every plan to the stand-in
// of sqm-scripts. The commands must be what the plan means, and stopping must
// remove everything.
func TestSQMMatrix(t *testing.T) {
	ran := map[string]int{}
	for _, c := range matrix(t, hostopenwrt.Name) {
		section, script := sqmFiles(t, c)
		bench := openwrtfake.NewBench(1500, c.Plan.WAN, lanOf(c.Plan))
		s := &openwrtfake.Scripts{Kernel: bench, File: func(name string) (string, bool) { return script, script != "" && name == section.Get("script") }}
		got, err := s.Start(section.String())
		if err != nil {
			t.Fatalf("%s: %v", c.Name, err)
		}
		sqmFaults(t, c, section, s.Running(c.Plan.WAN), got)
		if got, err = s.Stop(""); err != nil || s.Running(c.Plan.WAN) || got.Exit != 0 {
			t.Errorf("%s: stopped: %v, exit %d", c.Name, err, got.Exit)
		}
		ran[kindOf(section)]++
	}
	t.Logf("sqm-scripts' stand-in ran %v", ran)
}

// lanOf returns the interface towards the home that a plan's classes look at; "": none.
func lanOf(p plan.Plan) string {
	if p.Classes == nil {
		return ""
	}
	return p.Classes.LAN
}

// kindOf returns a section's script. All scripts of ours with the same qdisc are
// one kind.
func kindOf(s sqm.Section) string {
	if strings.HasPrefix(s.Get("script"), sqm.SectionName) {
		return "our script, " + s.Get("qdisc")
	}
	return s.Get("script")
}

// TestSQM does the same with the real sqm-scripts.
func TestSQM(t *testing.T) {
	r := realSQM(t)
	ran, seen := map[string]int{}, map[string]bool{}
	for _, c := range matrix(t, hostopenwrt.Name) {
		section, script := sqmFiles(t, c)
		if same := section.String() + script; seen[same] {
			continue
		} else {
			seen[same] = true
		}
		start, running, stop := r.run(t, section.String(), map[string]string{section.Get("script"): script}, c.Plan.WAN, 1500)
		sqmFaults(t, c, section, running, start)
		if stop.Exit != 0 {
			t.Errorf("%s: stopped: exit %d: %q", c.Name, stop.Exit, stop.Says)
		}
		ran[kindOf(section)]++
	}
	t.Logf("sqm-scripts ran %v; tc and ip: %s", ran, r.tools())
}

// TestSQMStandIn gives random sections to the real sqm-scripts and to their
// stand-in. Both must run the same commands, log the same, and leave the same
// instances running.
func TestSQMStandIn(t *testing.T) {
	r := realSQM(t)
	if !r.namespace {
		t.Skip("SKIPPED: what tc says takes a network namespace, and that root")
	}
	refused, asked := 0, 0
	rapid.Check(t, func(p *rapid.T) {
		text, name, mtu := anySection(p)
		asked++
		s := &openwrtfake.Scripts{Kernel: openwrtfake.NewBench(mtu, name)}
		got, err := s.Start(text)
		if err != nil {
			refused++
			return
		}
		start, running, stop := r.run(t, text, nil, name, mtu)
		if d := cmp.Diff(start, got); d != "" {
			p.Fatalf("%s, MTU %d\n%s\nstart: -real +stand-in\n%s", name, mtu, text, d)
		}
		if is := s.Running(name); is != running {
			p.Fatalf("%s\nrunning: %v, really %v", text, is, running)
		}
		if got, err = s.Stop(""); err != nil {
			p.Fatal(err)
		}
		if d := cmp.Diff(stop, got); d != "" {
			p.Fatalf("%s\nstop: -real +stand-in\n%s", text, d)
		}
	})
	t.Logf("%d sections at random, of which the stand-in refused %d", asked, refused)
}

// sqmFiles returns the section that a plan asks for, and the script if it has
// classes.
func sqmFiles(t *testing.T, c MatrixCase) (section sqm.Section, script string) {
	t.Helper()
	section, _, err := sqm.Render(c.Plan)
	if err != nil {
		t.Fatalf("%s: %v", c.Name, err)
	}
	if kindOf(section) != section.Get("script") {
		script = sqm.Script(c.Plan, linux.Programs(c.Plan), commandsOf(t, c))
	}
	return section, script
}

// sqmFaults reports where sqm-scripts do not do what the plan means.
func sqmFaults(t *testing.T, c MatrixCase, section sqm.Section, running bool, got openwrtfake.Result) {
	t.Helper()
	bad := func(format string, args ...any) {
		t.Helper()
		t.Errorf("%s: %s", c.Name, fmt.Sprintf(format, args...))
	}
	if got.Exit != 0 || !running {
		bad("exit %d, running: %v: %q", got.Exit, running, got.Says)
	}
	var made []string
	for _, x := range got.Commands {
		gone := strings.Contains(x.Text, " del ") || strings.Contains(x.Text, " delete ")
		if x.RC != 0 && !gone {
			bad("%s fails: %s", x.Text, x.Says)
		}
		if !gone && !strings.HasPrefix(x.Text, "tc filter show ") {
			made = append(made, x.Text)
		}
	}
	for _, line := range got.Says {
		if !strings.HasPrefix(line, "Starting SQM script") && !strings.HasSuffix(line, " successfully") && !strings.HasPrefix(line, "get_burst (by duration)") {
			bad("it says %q", line)
		}
	}
	if kindOf(section) != section.Get("script") { // a script of ours: with classes
		x := linux.Programs(c.Plan)
		want := []string{"rm -rf " + x.Pins} // of an earlier plan
		if x.Key != "" {
			want = append(want, "unbloat classifier load "+x.Key)
		}
		for _, argv := range commandsOf(t, c) {
			want = append(want, strings.Join(argv, " "))
		}
		if len(c.Plan.Classes.Rules) > 0 { // a table names traffic
			want = append(want, "nft -f -")
		}
		if d := cmp.Diff(want, made); d != "" {
			bad("-plan +run\n%s", d)
		}
		return
	}
	p := c.Plan
	for _, d := range []struct {
		dev string
		s   *plan.Shaper
	}{{p.WAN, p.Up}, {"ifb4" + p.WAN, p.Down}} {
		dev := d.dev[:min(len(d.dev), 15)]
		var of []string
		for _, line := range made {
			if strings.Contains(line, " dev "+dev+" ") && strings.HasPrefix(line, "tc qdisc add ") && !strings.HasSuffix(line, " handle ffff: ingress") ||
				strings.HasPrefix(line, "tc class add dev "+dev+" ") {
				of = append(of, line)
			}
		}
		if d.s == nil {
			if len(of) > 0 {
				bad("%s is not to be shaped: %q", dev, of)
			}
			continue
		}
		for _, fault := range queueFaults(of, *d.s) {
			bad("%s: %s", dev, fault)
		}
	}
}

// queueFaults compares the commands that shape one direction with the plan. If
// words contradict each other, tc uses the last one.
func queueFaults(lines []string, s plan.Shaper) (out []string) {
	bad := func(what string, got, want any) {
		if fmt.Sprint(got) != fmt.Sprint(want) {
			out = append(out, fmt.Sprintf("%s is %v, the plan says %v", what, got, want))
		}
	}
	words := strings.Fields(strings.Join(lines, " "))
	last := func(key string) string {
		for i := len(words) - 2; i >= 0; i-- {
			if words[i] == key {
				return words[i+1]
			}
		}
		return ""
	}
	oneOf := func(usual string, list ...string) string {
		for _, w := range slices.Backward(words) {
			if slices.Contains(list, w) {
				return w
			}
		}
		return usual
	}
	micros := func(v string) int64 {
		for unit, of := range map[string]int64{"us": 1, "ms": 1000} {
			if n, is := strings.CutSuffix(v, unit); is {
				if x, err := strconv.ParseInt(n, 10, 64); err == nil {
					return x * of
				}
			}
		}
		return 0
	}
	kbit := fmt.Sprintf("%dkbit", int64(s.Rate)/1000)
	if s.AQM == plan.CAKE {
		bad("the rate", last("bandwidth"), kbit)
		bad("the tins", oneOf("diffserv3", "besteffort", "diffserv3", "diffserv4", "diffserv8", "precedence"), orElse(s.Tins, "besteffort"))
		bad("nat", oneOf("nonat", "nat", "nonat") == "nat", s.NAT)
		bad("the isolation", oneOf("triple-isolate", "triple-isolate", "dual-srchost", "dual-dsthost", "flows", "hosts", "srchost", "dsthost", "flowblind"), orElse(s.Isolation, "triple-isolate"))
		bad("ingress", oneOf("egress", "ingress", "egress") == "ingress", s.Ingress)
		bad("the filter of acknowledgements", oneOf("no-ack-filter", "ack-filter", "no-ack-filter") == "ack-filter", s.AckFilter)
		bad("wash", oneOf("nowash", "wash", "nowash") == "wash", s.Wash)
		if s.Interval != 0 {
			bad("rtt", micros(last("rtt")), s.Interval.Microseconds())
		} else {
			bad("rtt", last("rtt"), "")
		}
		bad("the link layer", oneOf("noatm", "atm", "ptm", "noatm"), map[plan.LinkLayer]string{plan.ATM: "atm", plan.PTM: "ptm"}[s.LinkLayer]+strings.Repeat("noatm", btoi(s.LinkLayer != plan.ATM && s.LinkLayer != plan.PTM)))
		if o := last("overhead"); o != "" || s.StabOverhead() != 0 {
			bad("the overhead", o, s.Overhead)
		}
		bad("the least size", orElse(last("mpu"), "0"), s.MPU)
		return out
	}
	bad("HTB's queue", oneOf("", "htb"), "htb")
	bad("the rate", last("rate"), kbit)
	bad("the ceiling", last("ceil"), kbit)
	bad("the queue", oneOf("", "fq_codel"), "fq_codel")
	left := func(what, got string, want int64) { // 0: the platform's default
		if want != 0 {
			bad(what, got, want)
		}
	}
	left("the target", fmt.Sprint(micros(last("target"))), s.Target.Microseconds())
	left("the interval", fmt.Sprint(micros(last("interval"))), s.Interval.Microseconds())
	bad("ECN", oneOf("ecn", "ecn", "noecn") == "ecn", s.ECN)
	left("the limit", last("limit"), int64(s.Limit))
	left("the flows", last("flows"), int64(s.Flows))
	left("fq_codel's quantum", last("quantum"), int64(s.Quantum))
	bad("the overhead", orElse(last("overhead"), "0"), s.StabOverhead())
	bad("the least size", orElse(last("mpu"), "0"), s.MPU)
	return out
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

func orElse(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

// A realScripts is a person's copy of sqm-scripts, with our shims for the
// programs that it calls.
type realScripts struct {
	dir       string // of the copy
	namespace bool
}

func realSQM(t *testing.T) realScripts {
	t.Helper()
	r := realScripts{dir: given(t, "UNBLOAT_SQM", "a checkout of sqm-scripts")}
	if _, err := exec.LookPath("busybox"); err != nil {
		t.Skip("SKIPPED: there is no busybox here, whose shell OpenWrt has")
	}
	r.namespace = exec.Command("unshare", "-n", "sh", "-c", "ip link add unbloat0 type ifb && tc qdisc add dev unbloat0 root handle 1: htb").Run() == nil
	return r
}

func (r realScripts) tools() string {
	if r.namespace {
		return "the real ones, in a network namespace"
	}
	return "stubs that write down what they are given"
}

// run starts and stops sqm-scripts on a new device.
func (r realScripts) run(t *testing.T, config string, scripts map[string]string, dev string, mtu int) (start openwrtfake.Result, running bool, stop openwrtfake.Result) {
	t.Helper()
	dir, err := os.MkdirTemp("", "unbloat-sqm-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	write := func(name, text string, mode os.FileMode) {
		file := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), mode)); err != nil {
			t.Fatal(err)
		}
	}
	read := func(name string) string {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	files, err := filepath.Glob(filepath.Join(r.dir, "src/*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("there are no scripts in %s/src: %v", r.dir, err)
	}
	here := strings.NewReplacer("/lib/functions.sh", dir+"/functions.sh", "/etc/sqm/sqm.conf", dir+"/sqm.conf", "/sys/class/net", dir+"/net", "#!/bin/sh", "#!"+lookPath(t, "busybox")+" ash")
	for _, f := range files {
		text := read(f)
		if base := filepath.Base(f); base == "run-openwrt.sh" || base == "start-sqm" || base == "stop-sqm" || base == "functions.sh" {
			text = strings.ReplaceAll(here.Replace(text), "${SQM_LIB_DIR}"+dir+"/functions.sh", "${SQM_LIB_DIR}/functions.sh")
		} else {
			text = strings.NewReplacer("/sys/class/net", dir+"/net").Replace(text)
		}
		write("lib/"+filepath.Base(f), text, 0o755)
	}
	for name, text := range scripts {
		if text != "" {
			write("lib/"+name, text, 0o755)
		}
	}
	for _, name := range []string{"functions.sh", "sqm.conf"} {
		write(name, read("testdata/sqm/"+name), 0o644)
	}
	tool := "#!/bin/sh\n" + read("testdata/sqm/tool.sh")
	for _, name := range []string{"tc", "ip", "iptables", "ip6tables", "nft"} {
		write("bin/"+name, tool, 0o755)
	}
	write("bin/modprobe", "#!/bin/sh\n", 0o755)
	write("config", shellConfig(t, config), 0o644)
	for _, d := range []string{"state", "qdiscs"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	setUp := "mkdir -p net"
	if dev != "" {
		write("net/"+dev+"/mtu", strconv.Itoa(mtu)+"\n", 0o644)
		if r.namespace {
			setUp = fmt.Sprintf("$SHIM_ip link add %s type ifb && $SHIM_ip link set %s mtu %d up", dev, dev, mtu)
		}
	}
	phase := func(name string) string {
		return fmt.Sprintf("SHIM_LOG=%s.log busybox ash lib/run-openwrt.sh %s 2>%s.err; echo $? >%s.rc; ls state/*.state >%s.state 2>/dev/null", name, name, name, name, name)
	}
	argv := []string{"busybox", "ash", "-c", "cd " + dir + "\n" + setUp + "\n" + phase("start") + "\n" + phase("stop")}
	env := []string{"SHIM_DIR=" + dir, "SHIM_CONFIG=" + dir + "/config", "PATH=" + dir + "/bin:" + os.Getenv("PATH")}
	if r.namespace {
		argv, env = append([]string{"unshare", "-n"}, argv...), append(env, "SHIM_REAL=1", "SHIM_tc="+lookPath(t, "tc"), "SHIM_ip="+lookPath(t, "ip"))
	}
	c := exec.Command(lookPath(t, argv[0]), argv[1:]...)
	c.Env = env
	var said bytes.Buffer
	c.Stderr = &said
	if err := c.Run(); err != nil && said.Len() > 0 {
		t.Fatalf("run sqm-scripts: %v: %s", err, &said)
	}
	result := func(name string) openwrtfake.Result {
		var out openwrtfake.Result
		out.Exit, _ = strconv.Atoi(strings.TrimSpace(read(filepath.Join(dir, name+".rc"))))
		text, _ := os.ReadFile(filepath.Join(dir, name+".log")) // no log: no command was run
		for line := range strings.SplitSeq(strings.TrimSuffix(string(text), "\n"), "\n") {
			if f := strings.SplitN(line, "\t", 3); len(f) == 3 {
				rc, _ := strconv.Atoi(f[0])
				x := openwrtfake.Command{Text: f[1], RC: rc}
				if rc != 0 {
					x.Says = strings.TrimSuffix(f[2], `\n`)
				}
				out.Commands = append(out.Commands, x)
			}
		}
		for line := range strings.SplitSeq(read(filepath.Join(dir, name+".err")), "\n") {
			if strings.TrimSpace(line) != "" {
				out.Says = append(out.Says, line)
			}
		}
		return out
	}
	start, stop = result("start"), result("stop")
	return start, strings.Contains(read(filepath.Join(dir, "start.state")), ".state"), stop
}

func lookPath(t *testing.T, name string) string {
	t.Helper()
	at, err := exec.LookPath(name)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// shellConfig writes the file that our shim of UCI reads.
func shellConfig(t *testing.T, config string) string {
	t.Helper()
	sections, err := sqm.Parse(config)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	names := ""
	for i, s := range sections {
		names += fmt.Sprintf(" s%d", i)
		for _, o := range s.Options {
			fmt.Fprintf(&b, "s%d_%s='%s'\n", i, o.Key, o.Value)
		}
	}
	return b.String() + "SECTIONS='" + names + "'\n"
}

// anySection draws a section. Most of them are realistic.
func anySection(r *rapid.T) (text, dev string, mtu int) {
	pick := func(name string, list ...string) string { return rapid.SampledFrom(list).Draw(r, name) }
	dev = pick("device", "eth0", "eth0", "wan", "eth0.2", "pppoe-wan", "abcdefghijklmno")
	mtu = rapid.SampledFrom([]int{1500, 1500, 1492, 1280, 9000}).Draw(r, "mtu")
	iface := dev
	if pick("which", "this", "this", "this", "this", "this", "this", "this", "another") == "another" {
		iface = pick("interface", "eth9", "")
	}
	text = "config queue 'a'\n\toption interface '" + iface + "'\n"
	set := func(key string, often int, list ...string) {
		if rapid.IntRange(0, 9).Draw(r, key+" is set") < often {
			text += fmt.Sprintf("\toption %s '%s'\n", key, pick(key, list...))
		}
	}
	rates := []string{"64", "5", "1", "128", "1000", "9000", "85000", "1000000", "0", "-1", "9000.5", "9Mbit", "13", "99999"}
	set("enabled", 9, "1", "1", "1", "1", "1", "1", "1", "1", "0", "true", "2")
	set("download", 9, rates...)
	set("upload", 9, rates...)
	set("script", 9, "simple.qos", "simplest.qos", "simplest_tbf.qos", "piece_of_cake.qos", "layer_cake.qos", "simple.qos", "simplest.qos", "nosuch.qos")
	set("qdisc", 8, "fq_codel", "fq_codel", "cake", "codel", "pie", "sfq", "pfifo", "bfifo", "pfifo_fast", "nosuch")
	set("linklayer", 7, "none", "ethernet", "atm", "adsl", "nosuch")
	set("linklayer_adaptation_mechanism", 3, "default", "cake", "tc_stab", "htb_private", "nosuch")
	set("overhead", 6, "0", "44", "-4", "300", "x", "18", "4.5")
	set("tcMTU", 3, "2047", "1600", "x")
	set("tcTSIZE", 3, "512", "128", "x")
	set("tcMPU", 4, "0", "84", "300", "x", "-1")
	limits := []string{"100", "10240", "abc", "1k", "0x20", "-3"}
	set("ilimit", 3, limits...)
	set("elimit", 3, limits...)
	targets := []string{"5ms", "15.5ms", "auto", "default", "5", "0ms", "ms", "15000us", "nosuch", "a5", "2s", "5 ms", "5mss"}
	set("itarget", 4, targets...)
	set("etarget", 4, targets...)
	set("ingress_ecn", 4, "ECN", "NOECN", "ecn", "1", "ECN x")
	set("egress_ecn", 4, "ECN", "NOECN", "noecn", "x")
	opts := []string{"nat dual-dsthost ingress", "quantum 300", "flows 64 interval 50ms", "memory_limit 4Mb", "ack-filter", "rtt 30ms", "overhead 22 mpu 64", "nosuchopt", "limit", "diffserv4 nowash", "ecn", "noecn", "memlimit x", "fwmark 0xff", "target 5xs", "tupdate 5ms", "bandwidth 5x", "help", "perturb 5", "rtt"}
	set("iqdisc_opts", 4, opts...)
	set("eqdisc_opts", 4, opts...)
	set("squash_dscp", 4, "0", "1")
	set("squash_ingress", 4, "0", "1", "x")
	set("verbosity", 2, "0", "1", "2", "5")
	return text, dev, mtu
}
