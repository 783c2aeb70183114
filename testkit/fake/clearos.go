package fake

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"unbloat/testkit/clearosfake"
	"unbloat/testkit/linuxfake"
)

// A ClearOS is a router whose firewall runs a QoS engine each time it starts.
type ClearOS struct {
	*Linux
	Log []string // messages of the engine, whose exit code is always 0
}

// NewClearOS returns a router with QoS installed but off. The device of the
// module imq exists and is up, as after the first run of ClearOS's own engine.
func NewClearOS() *ClearOS {
	c := &ClearOS{Linux: newLinux(map[string]string{
		"/etc/clearos/network.conf":   "# Network mode\nMODE=\"gateway\"\nEXTIF=\"wan\"\nWAN_MAX_UPSTREAM=777\nLANIF=\"lan\"",
		"/etc/clearos/qos.conf":       "# QoS\nQOS_ENABLE=\"off\"\nQOS_UPSTREAM_BWRES=\"*:20:20:20:10:10:10:10\"\nQOS_PRIOMARK4=\"\\\n    DNS|*|1|0|0|udp|-|-|-|53 \\\n\"\nQOS_ENGINE=\"" + clearosfake.OwnEngine + "\"\n",
		"/etc/clearos/bandwidth.conf": "BANDWIDTH_QOS=\"off\"\n",
	})}
	c.Kernel.Devices = append(c.Kernel.Devices, &linuxfake.Device{Name: "imq0", Kind: "imq", Up: true, MTU: 1500})
	c.Tools["service"] = Tool{Run: func(args []string, _ []byte) (string, error) {
		if strings.Join(args, " ") != "firewall restart" {
			return "", fmt.Errorf("%s: unrecognized service", args[0])
		}
		return "Restarting firewall: done\n", c.restart()
	}, Changes: func([]string) bool { return true }}
	return c
}

// restart runs the engine that qos.conf names. As on the real router, what an
// engine has made stays after the engine's file was removed, and failing
// commands are skipped. An error means that this stand-in does not know the
// answer.
func (c *ClearOS) restart() error {
	set, err := clearosfake.Settings(c.Files["/etc/clearos/qos.conf"])
	if err != nil {
		c.Log = append(c.Log, "sh: "+err.Error())
		return nil
	}
	if set["QOS_ENABLE"] != "on" {
		return nil
	}
	// The firewall runs once for each address family. Only the rules of the
	// second run matter.
	var got clearosfake.Result
	switch engine := set["QOS_ENGINE"]; engine {
	case "", clearosfake.OwnEngine:
		var network *string
		if text, ok := c.Files["/etc/clearos/network.conf"]; ok {
			network = &text
		}
		if got, err = clearosfake.Engine(c.Files["/etc/clearos/qos.conf"], network, "ipv4"); err != nil {
			return err
		}
	default:
		text, ok := c.Files[engine]
		if !ok {
			c.Log = append(c.Log, "lua: cannot open "+engine)
			return nil
		}
		if got, err = clearosfake.Other(text); err != nil {
			return err
		}
	}
	c.Log = append(c.Log, got.Says...)
	for _, line := range got.Commands {
		c.execute(line)
	}
	if got.Error != "" {
		c.Log = append(c.Log, "lua: "+got.Error)
	}
	return nil
}

// noRate matches a class without a rate, which tc refuses.
var noRate = regexp.MustCompile(`^tc class add .* htb rate 0kbit`)

// ratio matches the placeholder for the quantum that the firewall computes.
var ratio = regexp.MustCompile(`<r2q of [^>]*>`)

// execute runs one line of the engine as a shell does, and logs errors that the
// line does not silence.
func (c *ClearOS) execute(line string) {
	silent := false
	for _, end := range []string{" >/dev/null 2>&1", " 2>/dev/null"} {
		if cut, is := strings.CutSuffix(line, end); is {
			line, silent = cut, true
		}
	}
	line = strings.TrimPrefix(ratio.ReplaceAllString(line, "10"), "/sbin/")
	argv := strings.Fields(line)
	var err error
	switch {
	case noRate.MatchString(line):
		err = errors.New(`"rate" is required`)
	case argv[0] == "modprobe" || argv[0] == "iptables" || slices.Contains(argv, "qlen"):
		return
	case line == "ip link set "+argv[len(argv)-2]+" up": // the engine leaves out the word dev
		_, err = c.kernel([]string{"ip", "link", "set", "dev", argv[3], "up"}, "")
	default:
		_, err = c.kernel(argv, "")
	}
	if err != nil && !silent {
		c.Log = append(c.Log, fmt.Sprintf("%s: %v", line, err))
	}
}
