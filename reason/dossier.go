package reason

import "maps"

// Sentences of a dossier: a report of incidents.
const (
	DossierNone      Code = "dossier_none"
	DossierSummary   Code = "dossier_summary"
	DossierPromised  Code = "dossier_promised"
	DossierUnknown   Code = "dossier_unknown"
	DossierChecksum  Code = "dossier_checksum"
	DossierOneSum    Code = "dossier_one_sum"
	DossierPicture   Code = "dossier_picture"
	DossierMethod    Code = "dossier_method"
	DossierJudged    Code = "dossier_judged"
	DossierBlamed    Code = "dossier_blamed"
	DossierLimits    Code = "dossier_limits"
	DossierNoSamples Code = "dossier_no_samples"
)

func englishDossier() map[Code]string {
	return map[Code]string{
		DossierNone:      "Nothing went wrong in this time.",
		DossierSummary:   "Incidents: {count:d}, {total:s} together. Of them outages: {outages:d}, {out:s} together. The line worked for {share:.2f} % of the time.",
		DossierPromised:  "Promised: {down_bps:rate} down, {up_bps:rate} up, as it is in the router's configuration. Compare it with the contract.",
		DossierUnknown:   "What was promised is not in the router's configuration.",
		DossierChecksum:  "SHA-256 of the raw samples of all incidents, as the same command writes them with -o FILE.csv: {sum:s}. Whoever has that file can check it with `sha256sum`.",
		DossierOneSum:    "SHA-256 of its {count:d} samples: {sum:s}",
		DossierPicture:   "Above: round trips to the provider's first router (dashed) and to far ends (lines), in ms; a tick on the upper edge is a probe that was lost, at the very top to far ends, below it to the first router. Below: what the line carried, in Mbit/s. The incident is shaded.",
		DossierMethod:    "The router itself sends small probes (ICMP echo, 60 bytes) to these far ends in turn: {far:s}; and to the provider's first router (an echo whose hop limit ends there). On a line that is watched closely there is one each second to a far end and one each 5 seconds to that router, on others one each 6 seconds to one of them all; on each both are asked every second while something is wrong. An answer that does not come within 3 seconds is lost. Beside it the router reads the counters and links of its ports, its routes and its processors each second. Times are those of the router's clock, which should be set by NTP.",
		DossierJudged:    "An incident begins when what speaks for it outweighs what speaks against it (a CUSUM), and its beginning is dated back to the first sign. Outage: 5 seconds without any answer. Loss: more than about 15 % against 1 % usually. Delay: more than {limit_ms:ms} above the usual round trip for 10 seconds. Slow: less than 70 % of what was promised for 2 minutes while the line is full. Other path: all far ends at least 15 ms further away for a minute, while the first router is not. What follows from a stronger incident is not listed beside it.",
		DossierBlamed:    "The provider is named only if its first router, or one behind that, was seen to work while what is beyond did not. The line is named if the first router was affected too. The home is named if the router's own ports had no link or lost packets; this router if its processors, its shaper or its routes explain it. If that does not decide, it says: not sure.",
		DossierLimits:    "Limits: it sees the line from the router, not each device's Wi-Fi. Routers may answer probes late or not at all while they forward traffic well. Loss below about 10 % is found late or not at all. A line that nobody uses does not show that it is slow. Between line and provider the first router that answers is the border, wherever it stands. A cut of the router's own power is not seen.",
		DossierNoSamples: "Its samples are not kept any more.",
	}
}

func germanDossier() map[Code]string {
	return map[Code]string{
		DossierNone:      "In dieser Zeit gab es keine Störung.",
		DossierSummary:   "Störungen: {count:d}, zusammen {total:s}. Davon Ausfälle: {outages:d}, zusammen {out:s}. Die Leitung ging {share:.2f} % der Zeit.",
		DossierPromised:  "Zugesagt: {down_bps:rate} im Download, {up_bps:rate} im Upload, wie es in der Konfiguration des Routers steht. Bitte mit dem Vertrag vergleichen.",
		DossierUnknown:   "Was zugesagt ist, steht nicht in der Konfiguration des Routers.",
		DossierChecksum:  "SHA-256 der Rohdaten aller Störungen, wie derselbe Befehl sie mit -o DATEI.csv schreibt: {sum:s}. Wer diese Datei hat, prüft das mit `sha256sum`.",
		DossierOneSum:    "SHA-256 der {count:d} Messwerte: {sum:s}",
		DossierPicture:   "Oben: Umlaufzeiten zum ersten Router des Anbieters (gestrichelt) und zu fernen Zielen (Linien), in ms; ein Strich am oberen Rand ist eine verlorene Probe, ganz oben zu fernen Zielen, darunter zum ersten Router. Unten: was die Leitung trug, in Mbit/s. Die Störung ist hinterlegt.",
		DossierMethod:    "Der Router selbst schickt kleine Proben (ICMP-Echo, 60 Bytes) reihum an diese fernen Ziele: {far:s}; und zum ersten Router des Anbieters (ein Echo, dessen Hop-Limit dort endet). Auf einer genau beobachteten Leitung ist es jede Sekunde eine an ein fernes Ziel und alle 5 Sekunden eine an diesen Router, auf anderen alle 6 Sekunden eine an eines von allen; auf jeder werden bei einer Störung beide jede Sekunde gefragt. Eine Antwort, die nicht in 3 Sekunden kommt, ist verloren. Daneben liest der Router jede Sekunde die Zähler und Verbindungen seiner Anschlüsse, seine Routen und seine Prozessoren. Die Zeiten sind die der Uhr des Routers, die nach NTP gehen sollte.",
		DossierJudged:    "Eine Störung beginnt, wenn mehr für sie spricht als dagegen (CUSUM), und ihr Beginn wird auf das erste Anzeichen zurückdatiert. Ausfall: 5 Sekunden ohne jede Antwort. Verlust: mehr als etwa 15 % statt üblicherweise 1 %. Stau: mehr als {limit_ms:ms} über der üblichen Umlaufzeit, 10 Sekunden lang. Langsam: unter 70 % des Zugesagten, 2 Minuten lang bei voller Leitung. Anderer Weg: alle fernen Ziele sind eine Minute lang mindestens 15 ms weiter weg, der erste Router nicht. Was aus einer stärkeren Störung folgt, steht nicht daneben.",
		DossierBlamed:    "Der Anbieter wird nur genannt, wenn sein erster Router oder einer dahinter nachweislich ging, während weiter hinten etwas nicht ging. Die Leitung wird genannt, wenn auch der erste Router betroffen war. Das Heimnetz wird genannt, wenn Anschlüsse des Routers keine Verbindung hatten oder Pakete verloren; dieser Router, wenn seine Prozessoren, sein Shaper oder seine Routen es erklären. Entscheidet das nicht, steht da: nicht sicher.",
		DossierLimits:    "Grenzen: gesehen wird die Leitung vom Router aus, nicht das WLAN einzelner Geräte. Router antworten auf Proben mitunter spät oder nicht, während sie Verkehr gut weiterleiten. Verlust unter etwa 10 % wird spät oder nicht gefunden. Eine Leitung, die niemand benutzt, zeigt nicht, dass sie langsam ist. Die Grenze zwischen Leitung und Anbieter ist der erste Router, der antwortet, wo immer er steht. Ein Stromausfall des Routers selbst wird nicht gesehen.",
		DossierNoSamples: "Die Messwerte dazu sind nicht mehr aufgehoben.",
	}
}

// englishDossierNames are headings, and the names of its columns.
func englishDossierNames() map[string]string {
	return map[string]string{
		"dossier title": "Incidents of a line", "dossier made": "made", "dossier measured": "What was measured", "dossier each": "Each incident", "dossier list": "All incidents",
		"dossier method": "How it was measured", "dossier raw": "Raw data", "dossier promised": "What was promised", "dossier parts": "By part",
		"dossier begin": "begin", "dossier lasted": "lasted", "dossier kind": "what", "dossier severity": "severity", "dossier part": "to blame", "dossier goes on": "goes on", "dossier count": "incidents", "dossier total": "together",
		"dossier what": "What", "dossier why": "Why", "dossier lost": "Lost probes", "dossier delay": "Added delay, median", "dossier carried": "Carried, mean", "dossier first": "first router", "dossier far": "far ends", "dossier from": "from",
	}
}

func germanDossierNames() map[string]string {
	return map[string]string{
		"dossier title": "Störungen einer Leitung", "dossier made": "erstellt", "dossier measured": "Was gemessen wurde", "dossier each": "Jede Störung", "dossier list": "Alle Störungen",
		"dossier method": "Wie gemessen wurde", "dossier raw": "Rohdaten", "dossier promised": "Was zugesagt ist", "dossier parts": "Nach Teil",
		"dossier begin": "Beginn", "dossier lasted": "Dauer", "dossier kind": "was", "dossier severity": "Schwere", "dossier part": "liegt an", "dossier goes on": "dauert an", "dossier count": "Störungen", "dossier total": "zusammen",
		"dossier what": "Was", "dossier why": "Warum", "dossier lost": "Verlorene Proben", "dossier delay": "Mehr Verzögerung, Median", "dossier carried": "Getragen, Mittel", "dossier first": "erster Router", "dossier far": "ferne Ziele", "dossier from": "von",
	}
}

// WithDossier returns a language with the words of a dossier, for which routers have no room.
func WithDossier(l *Language) *Language {
	out := *l
	out.Words, out.Names = maps.Clone(l.Words), maps.Clone(l.Names)
	words, names := englishDossier(), englishDossierNames()
	if l.Tag == German().Tag {
		words, names = germanDossier(), germanDossierNames()
	}
	maps.Copy(out.Words, words)
	maps.Copy(out.Names, names)
	return &out
}
