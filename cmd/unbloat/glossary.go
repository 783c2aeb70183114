package main

import (
	"fmt"
	"sort"
	"strings"

	"github.com/spf13/cobra"

	"unbloat/internal/show/cli"
)

// An entry is a word that unbloat's output uses without explanation.
type entry struct{ name, says string }

// glossary returns the words in alphabetical order.
func glossary() []entry {
	entries := []entry{
		{"AQM", "Active queue management: a queue that drops or marks packets early, before it is long. CoDel, FQ-CoDel and CAKE are such queues."},
		{"bufferbloat", "Latency that a line has only under load, because modems and routers queue packets for seconds instead of dropping them."},
		{"CAKE", "A queue of Linux that shapes, keeps each machine's and each flow's packets apart, and keeps every queue short."},
		{"class", "What a flow is treated as: voice goes first, then interactive, normal and bulk. Flows earn their class by what they do, or a rule gives it."},
		{"download, upload", "Towards the home, and from it. In tables: down and up."},
		{"ECN", "Explicit congestion notification: a packet is marked instead of dropped, if both ends have agreed on it."},
		{"flow", "The packets of one connection: same addresses, same ports, same protocol."},
		{"FQ-CoDel", "A queue that gives every flow a queue of its own, and keeps each of them short."},
		{"framing", "How the line wraps packets: what it adds to each (overhead), how short one can be, and whether it cuts them into cells. `unbloat test --framing` measures it."},
		{"goodput", "What arrives of the data itself, without headers and without what was sent twice."},
		{"grade", "A+ to F, by how much the 95th percentile of the round trip rises under load: A+ below 5 ms, A below 30, B below 60, C below 200, D below 400, F above."},
		{"ifb", "A device of Linux through which arriving packets are led, so that they can be queued before they go on."},
		{"interval", "A range in which the true figure lies in 95 of 100 cases. A change is called better only if its whole interval is."},
		{"jitter", "How much the latency changes from packet to packet."},
		{"latency, round trip", "How long a packet takes to the server and back."},
		{"load", "What fills the line while the latency is measured."},
		{"MOS, R", "Mean opinion score: how good a call sounds, from 1 (bad) to 4.5 (as good as a telephone can be). R says the same from 0 to 93."},
		{"overhead", "Bytes that the line adds to every packet, such as those of PPPoE or ATM."},
		{"p50, p95, p99", "The latency that half of the packets, 95 of 100, or 99 of 100 stayed below."},
		{"probe", "A small packet that is sent to measure how long it takes."},
		{"quality of outcome", "How well the loaded line does for one use, of 100: 100 is as good as can be noticed, 0 unacceptable, by delay, loss and rate (draft-ietf-ippm-qoo)."},
		{"RPM", "Round trips a minute under load: 60,000 divided by the latency in ms."},
		{"shaper", "What holds a direction to a rate a little below the line's, so that packets wait where a good queue manages them."},
		{"tuning", "Finding the highest rates at which the latency under load stays at the goal."},
		{"WAN, LAN", "The router's side towards the internet, and its side towards the home."},
		{"watchdog", "What undoes a change of the router unless you confirm it, even if this program, or the way to the router, is gone."},
	}
	sort.Slice(entries, func(i, j int) bool {
		return strings.ToLower(entries[i].name) < strings.ToLower(entries[j].name)
	})
	return entries
}

func newGlossaryCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "glossary [WORD]",
		Short:   "Explain the words that unbloat uses",
		GroupID: "main",
		Example: "  unbloat glossary\n  unbloat glossary p95",
		Args: func(c *cobra.Command, args []string) error {
			if len(args) > 1 {
				return cli.UsageError("%s: takes one WORD, not %d (see `%s --help`)", cli.NameOf(c), len(args), c.CommandPath())
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			w := cli.Fit(c.OutOrStdout())
			found := false
			for _, t := range glossary() {
				if len(args) == 1 && !strings.Contains(strings.ToLower(t.name), strings.ToLower(args[0])) {
					continue
				}
				found = true
				fmt.Fprintf(w, "%s: %s\n", t.name, t.says)
			}
			if !found {
				return cli.UsageError("glossary: %q is not in it; `unbloat glossary` prints all of it", args[0])
			}
			return w.Flush()
		},
	}
}
