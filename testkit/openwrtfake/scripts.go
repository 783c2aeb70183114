// Package openwrtfake stands in for OpenWrt's sqm-scripts in tests: a section of
// /etc/config/sqm goes in, and the commands that the scripts would run come
// out, with the answers of tc's parser and the kernel. It follows the behaviour
// of sqm-scripts 95337de67a35 and is tested against recordings of it
// (testkit/fake). It shares no code with the renderer of the
// sections, and returns an error for anything it does not know.
package openwrtfake

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// A Kernel runs commands that the tool's parser has accepted.
type Kernel interface {
	// MTU returns a device's MTU in bytes, and whether the device exists.
	MTU(device string) (bytes int, exists bool)
	// Knows reports whether the kernel has this kind of qdisc.
	Knows(qdisc string) bool
	// Redirect returns the ifb to which the device's ingress is redirected; "":
	// none.
	Redirect(device string) string
	// Run runs a command and returns its output and exit code.
	Run(argv []string, stdin string) (says string, rc int)
}

// A Command is one that was run.
type Command struct {
	Text string
	RC   int
	Says string // first line of output, if it failed
}

// A Result is what one call of sqm-scripts did.
type Result struct {
	Exit     int
	Commands []Command
	Says     []string // lines of the log
}

// Scripts are the sqm-scripts of a router, and what they keep between calls.
type Scripts struct {
	Kernel Kernel
	// File returns a further script of /usr/lib/sqm; nil: there is none.
	File func(name string) (text string, exists bool)

	running map[string]*instance // by interface
}

// An instance is what a state file and the log of iptables hold.
type instance struct {
	env    map[string]string
	tables [][]string // logged commands that undo the rules
}

// Running reports whether there is a state file of an interface.
func (s *Scripts) Running(iface string) bool { return s.running[iface] != nil }

// Start does what run.sh start does with the text of /etc/config/sqm. An error
// means that this stand-in does not know the answer.
func (s *Scripts) Start(config string) (Result, error) {
	read, err := ParseConfig(config)
	if err != nil {
		return Result{}, err
	}
	if s.running == nil {
		s.running = map[string]*instance{}
	}
	r := &run{s: s, sticky: map[string]string{}}
	for _, options := range read.queues() {
		r.Exit = r.section(options)
		if r.refused != nil {
			return r.Result, r.refused
		}
	}
	return r.Result, nil
}

// Stop does what run.sh stop does: it stops an interface, or, with "", all.
func (s *Scripts) Stop(iface string) (Result, error) {
	r := &run{s: s}
	list := []string{iface}
	if iface == "" {
		list = slices.Sorted(maps.Keys(s.running))
	}
	r.Exit = 1 // from a test for a missing state file
	for _, name := range list {
		if s.running[name] != nil {
			r.Exit = r.stop(name)
		}
	}
	return r.Result, r.refused
}

// A run is one call of run.sh.
type run struct {
	Result
	s       *Scripts
	env     map[string]string // the shell's variables, for one section
	sticky  map[string]string // those that stay set for the next section
	inst    *instance
	refused error
}

func (r *run) refuse(format string, args ...any) {
	if r.refused == nil {
		r.refused = fmt.Errorf("the stand-in for sqm-scripts does not know what becomes of "+format, args...)
	}
}

// Levels of the log.
const (
	levelError   = 1
	levelWarning = 2
	levelInfo    = 5
)

func (r *run) log(level int, format string, args ...any) {
	most := levelInfo
	if v := r.env["SQM_VERBOSITY_MAX"]; v != "" {
		n, err := strconv.Atoi(v)
		if err != nil || n > 7 || n < 0 {
			r.refuse("verbosity %q", v)
		}
		most = n
	}
	if level > most {
		return
	}
	prefix := map[int]string{levelError: "ERROR: ", levelWarning: "WARNING: "}[level]
	for line := range strings.SplitSeq(prefix+fmt.Sprintf(format, args...), "\n") {
		if strings.TrimSpace(line) != "" {
			r.Says = append(r.Says, line)
		}
	}
}

// whole reads a number as the shell's test does: any other word is an error,
// which is logged, and makes the condition false.
func (r *run) whole(word string) (n int64, ok bool) {
	digits := strings.TrimPrefix(word, "-")
	if strings.TrimSpace(word) != word || len(digits) > 15 || len(digits) > 1 && digits[0] == '0' || strings.HasPrefix(word, "+") || word == "-0" {
		r.refuse("the number %q", word)
		return 0, false
	}
	n, err := strconv.ParseInt(word, 10, 64)
	if err != nil {
		r.Says = append(r.Says, strings.Join(strings.Fields("ash: "+strings.TrimSuffix(word+": ", ": ")+": bad number"), " "))
		if word == "" {
			r.Says[len(r.Says)-1] = "ash: bad number"
		}
		return 0, false
	}
	return n, true
}

// options of a section, and the variables that they set.
func options() map[string]string {
	return map[string]string{
		"UPLINK": "upload", "DOWNLINK": "download", "LLAM": "linklayer_adaptation_mechanism", "LINKLAYER": "linklayer", "OVERHEAD": "overhead",
		"STAB_MTU": "tcMTU", "STAB_TSIZE": "tcTSIZE", "STAB_MPU": "tcMPU", "ILIMIT": "ilimit", "ELIMIT": "elimit", "ITARGET": "itarget", "ETARGET": "etarget",
		"IECN": "ingress_ecn", "EECN": "egress_ecn", "IQDISC_OPTS": "iqdisc_opts", "EQDISC_OPTS": "eqdisc_opts", "QDISC": "qdisc", "SCRIPT": "script",
		"ZERO_DSCP_INGRESS": "squash_dscp", "IGNORE_DSCP_INGRESS": "squash_ingress",
	}
}

// section starts what one section says, and returns the exit code.
func (r *run) section(options_ map[string]string) int {
	iface := options_["interface"]
	r.env = map[string]string{"IFACE": iface}
	on, ok := r.whole(options_["enabled"])
	if !ok || on != 1 {
		return 0
	}
	if r.s.running[iface] != nil {
		return 0
	}
	for variable, key := range options() {
		value := options_[key]
		if strings.ContainsAny(value, "*?[]$`\\\"'") || strings.HasPrefix(value, "-n") || strings.HasPrefix(value, "-e") || strings.HasPrefix(value, "-E") {
			r.refuse("%s %q, which a shell may change", key, value)
		}
		r.env[variable] = value
	}
	for variable, key := range map[string]string{"SQM_DEBUG": "debug_logging", "SQM_VERBOSITY_MAX": "verbosity"} {
		if r.sticky[variable] == "" { // once set, it stays for later sections
			r.sticky[variable] = options_[key]
		}
		r.env[variable] = r.sticky[variable]
	}
	if d := r.env["SQM_DEBUG"]; d != "" && d != "0" && d != "1" {
		r.refuse("debug_logging %q", d)
	}
	if iface == "" {
		return 1
	}
	r.defaults()
	return r.start()
}

// defaults sets unset variables to their defaults.
func (r *run) defaults() {
	for variable, value := range map[string]string{
		"UPLINK": "2302", "DOWNLINK": "14698", "QDISC": "fq_codel", "LLAM": "default", "LINKLAYER": "none", "OVERHEAD": "0",
		"STAB_MTU": "2047", "STAB_MPU": "0", "STAB_TSIZE": "512", "IECN": "ECN", "EECN": "ECN", "ZERO_DSCP_INGRESS": "1", "IGNORE_DSCP_INGRESS": "1",
		"SQM_VERBOSITY_MAX": "5",
	} {
		if r.env[variable] == "" {
			r.env[variable] = value
		}
	}
	for _, one := range []string{"UPLINK", "DOWNLINK", "QDISC", "LLAM", "LINKLAYER", "OVERHEAD", "STAB_MTU", "STAB_MPU", "STAB_TSIZE", "IFACE", "SCRIPT"} {
		if strings.ContainsAny(r.env[one], " \t") {
			r.refuse("%s of several words: %q", one, r.env[one])
		}
	}
}

func (r *run) start() int {
	iface, script := r.env["IFACE"], r.env["SCRIPT"]
	if script == "" {
		r.log(levelError, "SCRIPT value is not defined in /etc/sqm/%s.iface.conf", iface)
		r.log(levelError, "Please check your configuration and try again.")
		return 1
	}
	if _, exists := r.s.Kernel.MTU(iface); !exists {
		r.log(levelError, "%s does currently not exist, not even trying to start SQM on nothing.", iface)
		return 1
	}
	custom, ok := r.find(script)
	if !ok {
		r.log(levelError, "SQM script %s not found!", script)
		return 1
	}
	if script == "piece_of_cake.qos" || script == "layer_cake.qos" {
		r.env["QDISC"] = "cake"
	}
	r.log(levelInfo, "Starting SQM script: %s on %s, in: %s Kbps, out: %s Kbps", script, iface, r.env["DOWNLINK"], r.env["UPLINK"])
	r.inst = &instance{env: r.env}
	started := false
	if custom != "" {
		started = r.custom(custom, "sqm_start")
	} else {
		started = r.startDefault()
	}
	if started && r.refused == nil {
		r.s.running[iface] = r.inst
		r.log(levelInfo, "%s was started on %s successfully", script, iface)
	}
	return 0
}

// find reports whether a script exists, and returns its text if it is not part
// of sqm-scripts.
func (r *run) find(script string) (text string, ok bool) {
	if script != "simple.qos" && script != "simplest.qos" && script != "simplest_tbf.qos" && script != "piece_of_cake.qos" && script != "layer_cake.qos" {
		if r.s.File != nil {
			text, ok = r.s.File(script)
		}
		if !ok && (strings.Contains(script, "/") || slices.Contains([]string{"functions.sh", "defaults.sh", "start-sqm", "stop-sqm", "update-available-qdiscs", "run.sh", "run-openwrt.sh"}, script) || strings.HasSuffix(script, ".help")) {
			r.refuse("%q as a script", script)
		}
		if ok && text == "" {
			r.refuse("an empty script")
		}
		return text, ok
	}
	return "", true
}

// tool runs tc or ip through the wrapper that logs failures, and reports
// success.
func (r *run) tool(silent bool, format string, args ...any) bool {
	argv := strings.Fields(fmt.Sprintf(format, args...))
	says, rc := r.do(argv, "")
	if rc != 0 && !silent {
		r.log(levelError, "cmd_wrapper: %s: FAILURE (%d): %s", argv[0], rc, strings.Join(argv, " "))
		r.log(levelError, "cmd_wrapper: %s: LAST ERROR: %s", argv[0], strings.Join(says, "\n"))
	}
	return rc == 0
}

// do runs a command and records it.
func (r *run) do(argv []string, stdin string) (says []string, rc int) {
	if r.refused != nil {
		return nil, 1
	}
	j := passes()
	if argv[0] == "tc" {
		j = judge(argv)
	}
	if j.unsure != "" {
		r.refuse("tc given %s", j.unsure)
		return nil, 1
	}
	if rc, says = j.rc, j.says; rc == 0 {
		var text string
		if text, rc = r.s.Kernel.Run(argv, stdin); text != "" {
			says = strings.Split(strings.TrimRight(text, "\n"), "\n")
		}
	}
	c := Command{Text: strings.Join(argv, " "), RC: rc}
	if rc != 0 {
		c.Says = judgement{says: says}.firstLine()
	}
	r.Commands = append(r.Commands, c)
	return says, rc
}

// verify tests a qdisc on a temporary ifb.
func (r *run) verify(qdisc string) bool {
	j := judgeKind(qdisc, nil)
	if qdisc == "tbf" || qdisc == "ingress" {
		j = passes()
	}
	if j.unsure != "" {
		r.refuse("a queue of the kind %s", qdisc)
		return false
	}
	if j.isHandedOn() && r.s.Kernel.Knows(qdisc) {
		return true
	}
	says := append(j.says, "Error: Specified qdisc kind is unknown.")
	r.log(levelError, "cmd_wrapper: tc: FAILURE (%d): tc qdisc replace dev SQM_IFB_* root %s", max(j.rc, 2), qdisc)
	r.log(levelError, "cmd_wrapper: tc: LAST ERROR: %s", says[0])
	r.log(levelError, "QDISC %s is NOT useable.", qdisc)
	return false
}

// startDefault does what sqm-scripts' own scripts do.
func (r *run) startDefault() bool {
	e := r.env
	switch e["SCRIPT"] {
	case "simplest_tbf.qos":
		if r.verify("tbf") && strings.HasPrefix(e["QDISC"], "cake") {
			r.log(levelWarning, "Cake is not supported with this script; falling back to FQ-CoDel")
			e["QDISC"] = "fq_codel"
		}
	case "simple.qos":
		if r.verify("htb") {
			r.mark()
		}
	case "simplest.qos":
		r.verify("htb")
	default:
		r.verify("cake")
	}
	if !r.verify(e["QDISC"]) {
		return false
	}
	if e["DEV"] = r.s.Kernel.Redirect(e["IFACE"]); e["DEV"] == "" {
		e["DEV"] = ifbName(e["IFACE"])
		r.tool(false, "ip link add name %s type ifb", e["DEV"])
	}
	if up, ok := r.whole(e["UPLINK"]); ok && up != 0 {
		if !r.egress(up) {
			r.log(levelWarning, "sqm_start_default: %s lacks an egress() function", e["SCRIPT"])
		}
	} else {
		r.tool(true, "tc qdisc del dev %s root", e["IFACE"])
	}
	if down, ok := r.whole(e["DOWNLINK"]); ok && down != 0 {
		if !r.verify("ingress") {
			return false
		}
		if !r.ingress(down) {
			r.log(levelWarning, "sqm_start_default: %s lacks an ingress() function", e["SCRIPT"])
		}
	} else {
		r.tool(true, "tc qdisc del dev %s root", e["DEV"])
		r.tool(true, "tc qdisc del dev %s ingress", e["IFACE"])
	}
	return true
}

// ifbName truncates the ifb's name to the kernel's limit.
func ifbName(iface string) string {
	name := "ifb4" + iface
	return name[:min(len(name), 15)]
}

// stop ends an instance. Its state file's variables are not used, so the
// ingress qdisc is always deleted.
func (r *run) stop(iface string) int {
	in := r.s.running[iface]
	r.inst, r.env = in, map[string]string{"SQM_VERBOSITY_MAX": in.env["SQM_VERBOSITY_MAX"]}
	ifb := r.s.Kernel.Redirect(iface)
	if ifb == "" {
		ifb = ifbName(iface)
	}
	script := in.env["SCRIPT"]
	custom, ok := r.find(script)
	if !ok {
		r.log(levelError, "SQM script %s not found!", script)
		return 1
	}
	r.log(levelInfo, "Stopping SQM on %s", iface)
	if custom != "" {
		r.env["UPLINK"], r.env["DOWNLINK"] = "2302", "14698"
		r.custom(custom, "sqm_stop")
	} else {
		r.tool(false, "tc qdisc del dev %s ingress", iface)
		r.tool(false, "tc qdisc del dev %s root", iface)
		for _, undo := range slices.Backward(in.tables) {
			r.tables(undo)
		}
		r.tool(false, "ip link delete dev %s type ifb", ifb)
	}
	if r.refused == nil {
		delete(r.s.running, iface)
	}
	return 0
}

// tables runs iptables and ip6tables. Adding a rule first deletes an equal one
// and logs the undo command.
func (r *run) tables(argv []string) {
	undo := slices.Clone(argv)
	adds := false
	for i, w := range argv {
		switch w {
		case "-A", "-I":
			undo[i], adds = "-D", true
		case "-N":
			undo[i], adds = "-X", true
		}
	}
	if adds {
		r.tables(undo)
		r.inst.tables = append(r.inst.tables, undo)
	}
	for _, tool := range []string{"iptables", "ip6tables"} {
		r.do(append([]string{tool, "-w", "1"}, argv...), "")
	}
}

// mark writes the rules of simple.qos.
func (r *run) mark() {
	iface := r.env["IFACE"]
	chain := "QOS_MARK_" + iface
	rule := func(format string, args ...any) {
		r.tables(append([]string{"-t", "mangle"}, strings.Fields(fmt.Sprintf(format, args...))...))
	}
	rule("-N %s", chain)
	if !strings.HasPrefix(r.env["QDISC"], "cake") {
		rule("-A %s -j MARK --set-mark 0x2/0xff", chain)
		for _, x := range []struct{ class, mark string }{{"CS1", "0x3"}, {"CS6", "0x1"}, {"EF", "0x1"}, {"AF42", "0x1"}} {
			rule("-A %s -m dscp --dscp-class %s -j MARK --set-mark %s/0xff", chain, x.class, x.mark)
		}
		rule("-A %s -m tos --tos Minimize-Delay -j MARK --set-mark 0x1/0xff", chain)
	}
	if r.env["ZERO_DSCP_INGRESS"] == "1" {
		rule("-I PREROUTING -i %s -m dscp ! --dscp 0 -j DSCP --set-dscp-class be", iface)
	} else {
		rule("-A PREROUTING -i %s -m mark --mark 0x00/0xff -g %s", iface, chain)
	}
	rule("-A POSTROUTING -o %s -m mark --mark 0x00/0xff -g %s", iface, chain)
	rule("-I PREROUTING -i vtun+ -p tcp -j MARK --set-mark 0x2/0xff")
	rule("-A OUTPUT -p udp -m multiport --ports 123,53 -j DSCP --set-dscp-class AF42")
}
