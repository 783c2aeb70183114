package fake

import (
	"fmt"
	"regexp"
	"strings"

	"unbloat/internal/mechanism/clearos"
)

// A ClearOS is a router whose firewall runs an engine of QoS at every start.
type ClearOS struct {
	*Linux
	Log []string // what the engine said, for its exit code says nothing
}

// NewClearOS returns a router with QoS installed and off.
func NewClearOS() *ClearOS {
	c := &ClearOS{Linux: newLinux(map[string]string{
		clearos.NetworkConf:   "# Network mode\nMODE=\"gateway\"\nEXTIF=\"wan\"\nWAN_MAX_UPSTREAM=777\nLANIF=\"lan\"",
		clearos.QoSConf:       "# QoS\nQOS_ENABLE=\"off\"\nQOS_UPSTREAM_BWRES=\"*:20:20:20:10:10:10:10\"\nQOS_PRIOMARK4=\"\\\n    DNS|*|1|0|0|udp|-|-|-|53 \\\n\"\n",
		clearos.BandwidthConf: "BANDWIDTH_QOS=\"off\"\n",
	})}
	c.Tools["service"] = Tool{Run: func(args []string, _ []byte) (string, error) {
		if strings.Join(args, " ") != "firewall restart" {
			return "", fmt.Errorf("%s: unrecognized service", args[0])
		}
		c.restart()
		return "Restarting firewall: done\n", nil
	}, Changes: func([]string) bool { return true }}
	return c
}

var luaCall = regexp.MustCompile(`^\s*(os\.)?execute\("([^"]*)"\)$`)

// restart runs the engine that qos.conf names. It leaves standing what an engine
// has made that is no longer there, and passes over commands that fail.
func (c *ClearOS) restart() {
	set, err := clearos.Parse(c.Files[clearos.QoSConf])
	if err != nil || clearos.Get(set, "QOS_ENABLE") != "on" {
		return
	}
	engine := clearos.Get(set, "QOS_ENGINE")
	if engine == "" {
		c.own(set)
		return
	}
	text, ok := c.Files[engine]
	if !ok || !strings.Contains(text, "function RunBandwidthExternal()") {
		c.Log = append(c.Log, "lua: cannot open "+engine)
		return
	}
	for line := range strings.Lines(text) {
		if m := luaCall.FindStringSubmatch(strings.TrimRight(line, "\n")); m != nil {
			c.run("%s", strings.TrimSuffix(m[2], " 2>/dev/null"))
		}
	}
}

// own is ClearOS's engine, of which only its traps matter here: a name with
// other than letters and digits, an interface in one direction only, and shares
// without an entry for all interfaces (*), end it.
func (c *ClearOS) own(set []clearos.Setting) {
	up, down := clearos.Get(set, "QOS_UPSTREAM"), clearos.Get(set, "QOS_DOWNSTREAM")
	name := regexp.MustCompile(`^[a-zA-Z0-9]+:`)
	switch {
	case !name.MatchString(up) || !name.MatchString(down):
		c.Log = append(c.Log, "lua: interface pattern does not match")
	case up != down:
		c.Log = append(c.Log, "lua: attempt to index a nil value")
	default:
		for _, key := range []string{"QOS_UPSTREAM_BWRES", "QOS_UPSTREAM_BWLIMIT", "QOS_DOWNSTREAM_BWRES", "QOS_DOWNSTREAM_BWLIMIT"} {
			if !strings.Contains(" "+clearos.Get(set, key), " *:") {
				c.Log = append(c.Log, "lua: attempt to index a nil value")
			}
		}
	}
}
