package reason

// What became of marks on the way (DSCP and ECN).
const (
	MarkKept          Code = "mark_kept"           // as far as hops tell
	MarkChanged       Code = "mark_changed"        // between two hops
	MarkUntold        Code = "mark_untold"         // no hop quotes it
	MarkServerKept    Code = "mark_server_kept"    // in a direction
	MarkServerChanged Code = "mark_server_changed" // in a direction
	MarkServerSilent  Code = "mark_server_silent"  // an older server
	MarkL4S           Code = "mark_l4s"            // a queue that marks ECT(1), and sooner than ECT(0)
	MarkClassic       Code = "mark_classic"        // a queue that marks both alike
)

// What follows from that.
const (
	MarksTellNothing Code = "marks_tell_nothing"
	MarksReadHere    Code = "marks_read_here"
	MarksNoL4S       Code = "marks_no_l4s"
	MarksNoECNUp     Code = "marks_no_ecn_up"
	MarksNoECNDown   Code = "marks_no_ecn_down"
	MarksL4SBeyond   Code = "marks_l4s_beyond"
)

// englishMarks are the words of these in English, germanMarks in German.
func englishMarks() map[Code]string {
	return map[Code]string{
		MarkKept:          "{mark:s} is unchanged as far as hops tell (hop {hop:d})",
		MarkChanged:       "{mark:s} is changed between hop {after:d} and hop {hop:d} ({address:s}): there it arrives as {as:s}",
		MarkUntold:        "{mark:s}: no hop quotes enough of a packet to tell",
		MarkServerKept:    "{mark:s}, {direction:name}: arrives unchanged",
		MarkServerChanged: "{mark:s}, {direction:name}: arrives as {as:s}",
		MarkServerSilent:  "{mark:s}, {direction:name}: nothing arrived, or this server does not report it",
		MarkL4S:           "{direction:name} under load: a queue marks CE at {one:pct1} % of the packets with ECT(1), and at {zero:pct1} % of those with ECT(0), as L4S does (round trips {ms:.1f} and {other_ms:.1f} ms)",
		MarkClassic:       "{direction:name} under load: a queue marks CE at {one:pct1} % of the packets with ECT(1) and {zero:pct1} % of those with ECT(0): it knows ECN, but not L4S",
		MarksTellNothing:  "marks from the internet mean nothing here, so rules by DSCP match nothing in the download; use ports, addresses or names, or leave it to how flows behave",
		MarksReadHere:     "marks that the home sets are lost beyond this router; its own shaper reads them before that, so rules by DSCP work for what goes up",
		MarksNoL4S:        "ECT(1) is changed on the way, so L4S does not work over this line; its senders fall back to losses",
		MarksNoECNUp:      "CE is erased on the way up, so that senders of the home do not hear what the upload's shaper marks: give fq_codel no ECN, or switch ECN off on the home's machines (sysctl net.ipv4.tcp_ecn=0)",
		MarksNoECNDown:    "CE of queues in the internet is erased before it comes here; what the download's shaper marks itself still arrives in the home",
		MarksL4SBeyond:    "a queue of the provider knows L4S: senders with L4S wait little there without a shaper; all others still need one, and CAKE and fq_codel treat ECT(1) as any ECN",
	}
}

func germanMarks() map[Code]string {
	return map[Code]string{
		MarkKept:          "{mark:s} bleibt unverändert, soweit Hops es sagen (Hop {hop:d})",
		MarkChanged:       "{mark:s} wird zwischen Hop {after:d} und Hop {hop:d} ({address:s}) verändert: dort kommt es als {as:s} an",
		MarkUntold:        "{mark:s}: kein Hop zitiert genug von einem Paket",
		MarkServerKept:    "{mark:s}, {direction:name}: kommt unverändert an",
		MarkServerChanged: "{mark:s}, {direction:name}: kommt als {as:s} an",
		MarkServerSilent:  "{mark:s}, {direction:name}: nichts kam an, oder dieser Server meldet es nicht",
		MarkL4S:           "{direction:name} unter Last: eine Warteschlange markiert {one:pct1} % der Pakete mit ECT(1) mit CE und {zero:pct1} % derer mit ECT(0), wie es L4S tut (Umlaufzeiten {ms:.1f} und {other_ms:.1f} ms)",
		MarkClassic:       "{direction:name} unter Last: eine Warteschlange markiert {one:pct1} % der Pakete mit ECT(1) und {zero:pct1} % derer mit ECT(0) mit CE: sie kennt ECN, aber nicht L4S",
		MarksTellNothing:  "Marken aus dem Internet sagen hier nichts: Regeln für Klassen nach DSCP treffen nichts, was herunterkommt; nehmen Sie Ports, Adressen oder Namen, oder überlassen Sie es dem Verhalten der Flüsse",
		MarksReadHere:     "Marken des Hauses gehen hinter diesem Router verloren; sein eigener Shaper liest sie vorher, Regeln nach DSCP wirken also auf das, was hinaufgeht",
		MarksNoL4S:        "ECT(1) wird unterwegs verändert, L4S geht über diese Leitung also nicht; solche Sender richten sich nach Verlusten",
		MarksNoECNUp:      "CE wird auf dem Weg hinauf gelöscht, so dass Sender des Hauses nicht erfahren, was der Shaper des Uploads markiert: geben Sie fq_codel kein ECN, oder schalten Sie ECN auf den Rechnern des Hauses ab (sysctl net.ipv4.tcp_ecn=0)",
		MarksNoECNDown:    "CE von Warteschlangen im Internet wird gelöscht, bevor es hier ankommt; was der Shaper des Downloads selbst markiert, kommt im Haus an",
		MarksL4SBeyond:    "eine Warteschlange des Anbieters kennt L4S: Sender mit L4S warten dort auch ohne Shaper wenig; alle anderen brauchen weiter einen, und CAKE und fq_codel behandeln ECT(1) wie jedes ECN",
	}
}
