package openbsd

import (
	"strings"

	"unbloat/internal/cure/platform"
	"unbloat/internal/cure/platform/bsd"
)

// checks returns the doctor's checks; isolated is the remedy for a queue
// without flow isolation.
func checks(isolated string) func(e *platform.Examination) []platform.Check {
	return bsd.Checks(bsd.Own{Modules: pfIsOn, Offloads: offloads, Counts: bsd.CountsEthernet, Isolated: isolated})
}

// shorterQueue is ALTQ's remedy for a queue without flow isolation.
const shorterQueue = "a shorter queue (--latency); ALTQ has none that tells flows apart, OpenBSD from 6.2 has"

func pfIsOn(e *platform.Examination) {
	out, err := platform.Output(e.Ctx, e.Runner, "pfctl", "-si")
	switch {
	case err != nil:
		e.Skip("pf", err.Error())
	case strings.Contains(string(out), "Status: Disabled"):
		e.Find(platform.Finding{ID: "pf-off", Blocking: true, What: "pf is off", Why: "its queues are, too", Remedy: "pfctl -e, and remove pf=NO from /etc/rc.conf.local"})
	}
}

func offloads(e *platform.Examination) {
	e.Skip("segmentation offloads", "they are not looked at on OpenBSD; `ifconfig "+e.WAN+" -tcplro` switches merging off")
}
