package reason

// What went wrong on a line, and why a part is to blame.
const (
	IncidentOutage  Code = "incident_outage"
	IncidentLoss    Code = "incident_loss"
	IncidentSlow    Code = "incident_slow"
	IncidentPath    Code = "incident_path"
	IncidentRoute   Code = "incident_route"
	IncidentBloat   Code = "incident_bloat"
	IncidentFar     Code = "incident_far"      // one far end alone
	IncidentLANOut  Code = "incident_lan_out"  // the port towards the home
	IncidentLANLoss Code = "incident_lan_loss" // the same

	NotifyOver Code = "notify_over"
	NotifyText Code = "notify_text"

	IncidentsNone      Code = "incidents_none"
	IncidentsUnwatched Code = "incidents_unwatched"

	BlameLANPort   Code = "blame_lan_port"   // has no link
	BlameLANErrors Code = "blame_lan_errors" // loses packets
	BlameWANPort   Code = "blame_wan_port"   // has no link
	BlameCPU       Code = "blame_cpu"        // of this router
	BlameShaper    Code = "blame_shaper"     // lets more through than the line carries
	BlameUnshaped  Code = "blame_unshaped"   // there is no shaper
	BlameRoute     Code = "blame_route"      // of this router
	BlameFirstHop  Code = "blame_first_hop"  // was affected too
	BlameBeyond    Code = "blame_beyond"     // the first hop was not affected
	BlameOneFar    Code = "blame_one_far"    // the others were not
	BlameHop       Code = "blame_hop"        // a router on the way was not affected
	BlameFarHop    Code = "blame_far_hop"    // one in the far end's own network was not
	BlameUnknown   Code = "blame_unknown"    //
)

// englishIncidents are the words for them.
func englishIncidents() map[Code]string {
	return map[Code]string{
		IncidentOutage:  "nothing came through: {answered:d} of {asked:d} probes were answered",
		IncidentLoss:    "{loss:pct} % of {asked:d} probes were lost",
		IncidentSlow:    "{direction:name}: the line carried {carried_bps:rate} under load, of {promised_bps:rate} promised",
		IncidentPath:    "packets went another way; round trips were longer by {rise_ms:ms}",
		IncidentRoute:   "the default route or the address changed",
		IncidentBloat:   "packets waited for {rise_ms:ms} more than usual, {most_ms:ms} at worst",
		IncidentFar:     "{name:s} alone answered {answered:d} of {asked:d} probes",
		IncidentLANOut:  "the router's port towards the home had no link",
		IncidentLANLoss: "{packets:d} packets were lost at the router's port towards the home",

		NotifyOver: "{title:s}: over after {lasted:s}",
		NotifyText: "Since {begin:s}. To blame: {part:s}. {what:s}; {why:s}.",

		IncidentsNone:      "Nothing went wrong in this time.",
		IncidentsUnwatched: "No line is watched, since no line's delay is measured. Set incidents = true in a line's [[wan]] in the configuration, and reload the daemon.",

		BlameLANPort:   "the link towards the home was down; the line was not asked about",
		BlameLANErrors: "the interface towards the home counted {packets:d} errors and drops",
		BlameWANPort:   "the router's port towards the line had no link: the cable, or the modem and its power",
		BlameCPU:       "the router's processors were {cpu:pct} % busy",
		BlameShaper:    "the line was full at {carried_bps:rate} and queued: the shaper, at {shaper_bps:rate}, lets more through than the line carries",
		BlameUnshaped:  "the home's own traffic filled the line to {share:pct} %, and nothing shaped it",
		BlameRoute:     "it happened in this router's own table of routes and addresses",
		BlameFirstHop:  "the provider's first router was affected as well: {answered:d} of {asked:d} answers, {first_rise_ms:ms} more delay (far ends: {far_rise_ms:ms})",
		BlameBeyond:    "the provider's first router was well meanwhile: {answered:d} of {asked:d} answers, {first_rise_ms:ms} more delay; the trouble is beyond it",
		BlameHop:       "a router on the way answered as usual meanwhile, {address:s} (hop {hop:d}): {answered:d} of {asked:d} answers; the trouble is beyond it",
		BlameFarHop:    "a router in the far end's own network answered as usual meanwhile, {address:s} (hop {hop:d}): {answered:d} of {asked:d} answers; the trouble is beyond it",
		BlameOneFar:    "other far ends answered as usual",
		BlameUnknown:   "what was measured does not show which part it was",
	}
}

// germanIncidents are the German words.
func germanIncidents() map[Code]string {
	return map[Code]string{
		IncidentOutage:  "nichts kam durch: {answered:d} von {asked:d} Proben wurden beantwortet",
		IncidentLoss:    "{loss:pct} % von {asked:d} Proben gingen verloren",
		IncidentSlow:    "{direction:name}: die Leitung trug unter Last {carried_bps:rate}, zugesagt sind {promised_bps:rate}",
		IncidentPath:    "Pakete nahmen einen anderen Weg; Umläufe dauerten {rise_ms:ms} länger",
		IncidentRoute:   "die Standardroute oder die Adresse änderte sich",
		IncidentBloat:   "Pakete warteten {rise_ms:ms} länger als üblich, im schlimmsten Fall {most_ms:ms}",
		IncidentFar:     "nur {name:s} beantwortete {answered:d} von {asked:d} Proben",
		IncidentLANOut:  "der Anschluss des Routers zum Heimnetz hatte keine Verbindung",
		IncidentLANLoss: "{packets:d} Pakete gingen am Anschluss des Routers zum Heimnetz verloren",

		NotifyOver: "{title:s}: vorbei nach {lasted:s}",
		NotifyText: "Seit {begin:s}. Liegt an: {part:s}. {what:s}; {why:s}.",

		IncidentsNone:      "In dieser Zeit gab es keine Störung.",
		IncidentsUnwatched: "Zurzeit wird keine Leitung beobachtet, denn bei keiner wird die Verzögerung gemessen. Setzen Sie incidents = true im [[wan]] einer Leitung in der Konfiguration, und laden Sie den Daemon neu.",

		BlameLANPort:   "die Verbindung zum Heimnetz war unterbrochen; um die Leitung ging es nicht",
		BlameLANErrors: "die Schnittstelle zum Heimnetz zählte {packets:d} Fehler und Verluste",
		BlameWANPort:   "der Anschluss des Routers zur Leitung hatte keine Verbindung: das Kabel, oder das Modem und sein Strom",
		BlameCPU:       "die Prozessoren des Routers waren zu {cpu:pct} % ausgelastet",
		BlameShaper:    "die Leitung war mit {carried_bps:rate} voll und staute: der Shaper lässt mit {shaper_bps:rate} mehr durch, als sie trägt",
		BlameUnshaped:  "der eigene Verkehr füllte die Leitung zu {share:pct} %, und nichts begrenzte ihn",
		BlameRoute:     "es geschah in der Tabelle der Routen und Adressen dieses Routers selbst",
		BlameFirstHop:  "auch der erste Router des Anbieters war betroffen: {answered:d} von {asked:d} Antworten, {first_rise_ms:ms} mehr Verzögerung (ferne Ziele: {far_rise_ms:ms})",
		BlameBeyond:    "der erste Router des Anbieters war dabei in Ordnung: {answered:d} von {asked:d} Antworten, {first_rise_ms:ms} mehr Verzögerung; die Störung liegt dahinter",
		BlameHop:       "ein Router auf dem Weg antwortete dabei wie sonst, {address:s} (Hop {hop:d}): {answered:d} von {asked:d} Antworten; die Störung liegt dahinter",
		BlameFarHop:    "ein Router im Netz des fernen Ziels selbst antwortete dabei wie sonst, {address:s} (Hop {hop:d}): {answered:d} von {asked:d} Antworten; die Störung liegt dahinter",
		BlameOneFar:    "andere ferne Ziele antworteten wie sonst",
		BlameUnknown:   "was gemessen wurde, zeigt nicht, welcher Teil es war",
	}
}

// englishIncidentNames are the names of kinds, parts and severities.
func englishIncidentNames() map[string]string {
	return map[string]string{
		"kind outage": "outage", "kind loss": "loss", "kind slow": "slow line", "kind path": "other path", "kind bloat": "delay",
		"part home": "the home", "part router": "this router", "part line": "the line", "part provider": "the provider", "part far": "the far end", "part unsure": "not sure",
		"severity minor": "minor", "severity major": "major", "severity severe": "severe",
	}
}

// germanIncidentNames are the German names.
func germanIncidentNames() map[string]string {
	return map[string]string{
		"kind outage": "Ausfall", "kind loss": "Verlust", "kind slow": "langsam", "kind path": "anderer Weg", "kind bloat": "Stau",
		"part home": "das Heimnetz", "part router": "dieser Router", "part line": "die Leitung", "part provider": "der Anbieter", "part far": "das ferne Ziel", "part unsure": "nicht sicher",
		"severity minor": "gering", "severity major": "deutlich", "severity severe": "schwer",
	}
}
