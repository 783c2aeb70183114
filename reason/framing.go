package reason

// Why it is not sure what a line adds to each packet.
const (
	FramingFew      Code = "framing_few"      // trains of datagrams arrived
	FramingPoliced  Code = "framing_policed"  // no queue held what was too much
	FramingNotFull  Code = "framing_not_full" // a sender was too slow
	FramingOthers   Code = "framing_others"   // packets of others came between
	FramingNoisy    Code = "framing_noisy"    // arrival times
	FramingNoFit    Code = "framing_no_fit"   // of any framing, as over a wireless line
	FramingReceiver Code = "framing_receiver" // was too slow
	FramingRate     Code = "framing_rate"     // outside what can be measured
)

// What was found.
const (
	FramingNotSure Code = "framing_not_sure"
	FramingCells   Code = "framing_cells"
	FramingLeast   Code = "framing_least"
	FramingBytes   Code = "framing_bytes"
)

// englishFraming are the words of these in English, germanFraming in German.
func englishFraming() map[Code]string {
	return map[Code]string{
		FramingNotSure:  "What the line adds to each packet, {direction:name}: not sure; {why:s}.",
		FramingCells:    "The line adds {bytes:d} bytes to each packet, {direction:name}, and cuts it into cells (ATM: 48 of 53 bytes); it carries {rate_bps:rate}, counted in its own bytes.",
		FramingLeast:    "The line adds {bytes:d} bytes to each packet, {direction:name}, which then has {least:d} at least; it carries {rate_bps:rate}, counted in its own bytes.",
		FramingBytes:    "The line adds {bytes:d} bytes to each packet, {direction:name}; it carries {rate_bps:rate}, counted in its own bytes.",
		FramingFew:      "only {trains:d} trains of datagrams arrived (at least {least:d} are needed)",
		FramingPoliced:  "packets were dropped without waiting: a policer, not a queue, holds this line to its rate",
		FramingNotFull:  "packets of {bytes:d} bytes came as fast as they were sent: a sender was too slow to fill the line with them",
		FramingOthers:   "the time per packet changed by {share:pct1} % with the rate sent: other traffic used the line, or something else limits it",
		FramingNoisy:    "arrival times are too uneven: {low:.1f} to {high:.1f} bytes are possible",
		FramingNoFit:    "no framing fits the times: packets get lost at random, or a wireless or aggregating link sends several at once",
		FramingReceiver: "{count:d} datagrams came and were dropped by the receiver, which was too slow for them",
		FramingRate:     "a line of {rate_bps:rate} cannot be measured this way ({least_bps:rate} to {most_bps:rate} can)",
	}
}

func germanFraming() map[Code]string {
	return map[Code]string{
		FramingNotSure:  "Was die Leitung jedem Paket hinzufügt, {direction:name}: nicht sicher; {why:s}.",
		FramingCells:    "Die Leitung fügt jedem Paket {bytes:d} Bytes hinzu, {direction:name}, und zerlegt es in Zellen (ATM: 48 von 53 Bytes); sie trägt {rate_bps:rate}, in ihren eigenen Bytes gezählt.",
		FramingLeast:    "Die Leitung fügt jedem Paket {bytes:d} Bytes hinzu, {direction:name}, das dann mindestens {least:d} hat; sie trägt {rate_bps:rate}, in ihren eigenen Bytes gezählt.",
		FramingBytes:    "Die Leitung fügt jedem Paket {bytes:d} Bytes hinzu, {direction:name}; sie trägt {rate_bps:rate}, in ihren eigenen Bytes gezählt.",
		FramingFew:      "nur {trains:d} Folgen von Datagrammen kamen an (mindestens {least:d} sind nötig)",
		FramingPoliced:  "Pakete gingen verloren, ohne zu warten: die Rate begrenzt ein Policer, keine Warteschlange",
		FramingNotFull:  "Pakete von {bytes:d} Bytes kamen so schnell, wie sie gesendet wurden: ein Sender war zu langsam, um die Leitung damit zu füllen",
		FramingOthers:   "die Zeit je Paket änderte sich um {share:pct1} % mit der gesendeten Rate: anderer Verkehr war auf der Leitung, oder etwas anderes begrenzt sie",
		FramingNoisy:    "die Ankunftszeiten sind zu ungleichmäßig: {low:.1f} bis {high:.1f} Bytes sind möglich",
		FramingNoFit:    "zu den Zeiten passt kein Rahmen: Pakete gehen zufällig verloren, oder eine Funk- oder bündelnde Strecke sendet mehrere auf einmal",
		FramingReceiver: "{count:d} Datagramme kamen an und wurden vom Empfänger verworfen, der dafür zu langsam war",
		FramingRate:     "eine Leitung von {rate_bps:rate} lässt sich so nicht messen (von {least_bps:rate} bis {most_bps:rate} geht es)",
	}
}
