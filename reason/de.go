package reason

import (
	"fmt"
	"maps"
)

// German returns the words of German.
func German() *Language {
	const full = "; messen Sie per Kabel oder direkt neben dem Access Point"
	l := &Language{
		Tag: "de", Self: "Deutsch", Column: 22, Decimal: ",",
		Names: germanNames(),
		Times: func(n int) string {
			if n == 1 {
				return "einmal"
			}
			return fmt.Sprintf("%d-mal", n)
		},
		Words: map[Code]string{
			NoIdlePhase:     "die Messung ohne Last fehlt, mit der zu vergleichen wäre",
			CPUBusy:         "ein Prozessor dieses Rechners war zu {busy:pct} % ausgelastet (höchstens {most:pct} %); er hat also sich selbst gemessen",
			ServerCPUBusy:   "ein Prozessor des Servers war zu {busy:pct} % ausgelastet (höchstens {most:pct} %)",
			ProbesLate:      "Messpakete gingen zu spät ab (p99 {p99_ms:.2f} ms, höchstens {most_ms:.0f} ms): dieser Rechner war zu beschäftigt",
			TooFewProbes:    "nur {received:d} von {sent:d} Messpaketen wurden rechtzeitig beantwortet (mindestens {least:d} sind nötig)",
			ClockSet:        "die Uhr dieses Rechners wurde währenddessen {count:times} gestellt",
			PathChanged:     "der Weg zum Server änderte sich währenddessen {count:times} (nach der Zahl der Stationen)",
			OthersTraffic:   "andere belegten {others:pct} % dessen, was im {direction:name} floss (höchstens {most:pct} %): die Schnittstelle zählte {others_bps:rate}, die nicht zu dieser Messung gehören",
			RadioRoamed:     "{link:s} wechselte währenddessen den Access Point" + full,
			RadioFull:       "{link:s} war selbst voll: die Last brauchte {airtime:pct} % dessen, was sie trägt (höchstens {most:pct} %)" + full,
			ChannelBusy:     "{link:s} war selbst voll: ihr Kanal war {busy:pct} % der Zeit belegt (höchstens {most:pct} %)" + full,
			RadioLossy:      "{link:s} verlor {failed:pct1} % der Rahmen trotz aller Wiederholungen (höchstens {most:pct} %)" + full,
			FlowsBroken:     "{count:d} Verbindungen brachen ab: {error:s}",
			IdleUnsteady:    "die Umlaufzeit schwankte (p50 {p50_ms:.1f} ms, p90 {p90_ms:.1f} ms): etwas anderes nutzt die Leitung",
			LoadNotFull:     "die Leitung war nicht voll, das beweist nichts: {causes}",
			NothingArrived:  "im {direction:name} kam nichts an",
			RateRising:      "die Rate im {direction:name} stieg noch, von {first_bps:rate} auf {last_bps:rate}: länger messen{--seconds:flag}",
			SendersIdle:     "die Sender im {direction:name} hatten nur {busy:pct} % der Zeit Daten unterwegs",
			SendersHeldBack: "die Sender im {direction:name} wurden {held:pct} % der Zeit von ihren eigenen Puffern gebremst, nicht von der Leitung; mehr Verbindungen{--flows:flag} füllen sie",
			TooFewRuns:      "nur {valid:d} von {runs:d} Durchgängen waren gültig",
			PageHidden:      "die Seite war {hidden_s:.1f} s lang nicht im Vordergrund, und dann bremsen Browser",
			ClockCoarse:     "die Uhr dieses Browsers geht nur alle {tick_ms:.1f} ms weiter",
			PageResent:      "Messpakete über TCP warteten, bis verlorene Pakete erneut gesendet waren, die Leitung verzögert also um mindestens {least_ms:.0f} und höchstens {most_ms:.0f} ms (p95), was verschiedene Noten sind",
			PageProbesLate:  "Messpakete gingen zu spät ab (p95 {p95_ms:.1f} ms, höchstens {most_ms:.0f} ms): dieses Gerät oder der Browser war zu beschäftigt",
		},
	}
	l.Advice = map[Code]string{
		CPUBusy:         "andere Programme beenden oder von einem schnelleren Rechner messen",
		ServerCPUBusy:   "einen anderen Server nehmen oder es später noch einmal versuchen",
		ProbesLate:      "andere Programme beenden oder von einem anderen Rechner messen",
		TooFewProbes:    "prüfen, ob eine Firewall UDP verwirft, oder mit --ping anders messen",
		ClockSet:        "noch einmal messen, wenn die Uhr stimmt",
		PathChanged:     "noch einmal messen",
		OthersTraffic:   "beenden, was die Leitung sonst benutzt, oder zu einer anderen Zeit messen",
		FlowsBroken:     "noch einmal messen; wenn es bleibt, einen anderen Server nehmen",
		IdleUnsteady:    "beenden, was die Leitung sonst benutzt, oder zu einer anderen Zeit messen",
		RateRising:      "länger messen, etwa mit --seconds 30",
		SendersHeldBack: "mehr Verbindungen nehmen, etwa mit --flows 16",
		SendersIdle:     "einen schnelleren Server oder Rechner nehmen",
		NothingArrived:  "prüfen, ob eine Firewall die Verbindungen verwirft, oder einen anderen Server nehmen",
		TooFewRuns:      "noch einmal messen",
		PageHidden:      "die Seite im Vordergrund lassen",
		PageResent:      "diese Seite über HTTPS in einem Browser mit WebTransport öffnen oder `unbloat test` nehmen",
		PageProbesLate:  "andere Tabs und Programme schließen oder `unbloat test` nehmen",
	}
	maps.Copy(l.Words, germanTables())
	maps.Copy(l.Words, germanFraming())
	maps.Copy(l.Words, germanMarks())
	maps.Copy(l.Words, germanFollow())
	maps.Copy(l.Words, germanIncidents())
	maps.Copy(l.Names, germanIncidentNames())
	maps.Copy(l.Words, englishPlan()) // plans are not translated into German yet, but for what the daemon tells of them
	maps.Copy(l.Words, map[Code]string{
		ClassesNone: "Klassen fallen weg: {causes}",
		OthersMarks: "andere Regeln schreiben, kopieren oder vergleichen Bits von Marken, die Klassen brauchen (0xff000000), so dass Verbindungen fehlgehen könnten: {causes}; geben Sie diesen Regeln eine Maske eigener Bits, etwa 0x1/0x00ffffff",
	})
	maps.Copy(l.Names, englishPlanNames())
	maps.Copy(l.Names, germanWatch())
	return l
}
