package reason

import (
	"fmt"
	"maps"
	"sync"
)

// English returns the words of English, which nobody may change.
func English() *Language { return english() }

// english makes the words once: every reason that is written down needs them.
var english = sync.OnceValue(newEnglish)

func newEnglish() *Language {
	const full = "; measure by cable, or next to the access point"
	l := &Language{
		Tag: "en", Self: "English", Column: 27, Decimal: ".",
		Names: englishNames(),
		Times: func(n int) string {
			if n == 1 {
				return "once"
			}
			return fmt.Sprintf("%d times", n)
		},
		Words: map[Code]string{
			NoIdlePhase:     "there is no idle phase to compare with",
			CPUBusy:         "this machine's busiest processor was {busy:pct} % busy (at most {most:pct} %), so it measured itself",
			ServerCPUBusy:   "the server's busiest processor was {busy:pct} % busy (at most {most:pct} %)",
			ProbesLate:      "probes left late (p99 {p99_ms:.2f} ms, at most {most_ms:.0f} ms): this machine was too busy",
			TooFewProbes:    "only {received:d} of {sent:d} probes were answered in time to be counted (at least {least:d} are needed)",
			ClockSet:        "this machine's clock was set {count:times} meanwhile",
			PathChanged:     "the path to the server changed {count:times} meanwhile (by the answers' hop count)",
			OthersTraffic:   "others used {others:pct} % of what the {direction:name} carried (at most {most:pct} %): the interface counted {others_bps:rate} that is not of this test",
			RadioRoamed:     "{link:s} changed its access point meanwhile" + full,
			RadioFull:       "{link:s} was itself full: the load took {airtime:pct} % of what it carries (at most {most:pct} %)" + full,
			ChannelBusy:     "{link:s} was itself full: its channel was busy for {busy:pct} % of the time (at most {most:pct} %)" + full,
			RadioLossy:      "{link:s} lost {failed:pct1} % of its frames after all retries (at most {most:pct} %)" + full,
			FlowsBroken:     "{count:d} flows broke off: {error:s}",
			IdleUnsteady:    "the round trip was unsteady (p50 {p50_ms:.1f} ms, p90 {p90_ms:.1f} ms): something else uses the line",
			LoadNotFull:     "the line was not full, which proves nothing: {causes}",
			NothingArrived:  "nothing arrived in the {direction:name} direction",
			RateRising:      "the {direction:name} rate was still rising, from {first_bps:rate} to {last_bps:rate}: measure longer{--seconds:flag}",
			SendersIdle:     "the {direction:name} senders had data in flight for only {busy:pct} % of the time",
			SendersHeldBack: "the {direction:name} senders were held back by their own buffers for {held:pct} % of the time, not by the line; more flows{--flows:flag} fill it",
			TooFewRuns:      "only {valid:d} of {runs:d} runs were valid",
			PageHidden:      "the page was not in front for {hidden_s:.1f} s, and browsers slow down what is not",
			ClockCoarse:     "this browser's clock only ticks every {tick_ms:.1f} ms",
			PageResent:      "probes over TCP waited for lost packets to be sent again, so the line adds at least {least_ms:.0f} ms and at most {most_ms:.0f} ms (p95), and these have different grades",
			PageProbesLate:  "probes left late (p95 {p95_ms:.1f} ms, at most {most_ms:.0f} ms): this device or browser was too busy",
		},
	}
	l.Advice = map[Code]string{
		CPUBusy:         "end other programs, or measure from a faster machine",
		ServerCPUBusy:   "use another server, or try again later",
		ProbesLate:      "end other programs, or measure from another machine",
		TooFewProbes:    "see whether a firewall drops UDP on the way, or choose another probe with --ping",
		ClockSet:        "measure again once the clock is right",
		PathChanged:     "measure again",
		OthersTraffic:   "stop what else uses the line, or measure at another time",
		FlowsBroken:     "measure again; if it stays, try another server",
		IdleUnsteady:    "stop what else uses the line, or measure at another time",
		RateRising:      "measure longer, as with --seconds 30",
		SendersHeldBack: "use more flows, as with --flows 16",
		SendersIdle:     "use a faster server or machine",
		NothingArrived:  "see whether a firewall drops the connections, or try another server",
		TooFewRuns:      "measure again",
		PageHidden:      "keep the page in front",
		PageResent:      "open this page over HTTPS in a browser with WebTransport, or use `unbloat test`",
		PageProbesLate:  "close other tabs and programs, or use `unbloat test`",
	}
	maps.Copy(l.Words, englishTables())
	maps.Copy(l.Words, englishFraming())
	maps.Copy(l.Words, englishMarks())
	maps.Copy(l.Words, englishFollow())
	maps.Copy(l.Words, englishIncidents())
	maps.Copy(l.Names, englishIncidentNames())
	maps.Copy(l.Words, englishPlan())
	maps.Copy(l.Names, englishPlanNames())
	maps.Copy(l.Names, englishWatch())
	return l
}
