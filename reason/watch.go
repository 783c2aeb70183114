package reason

// englishWatch are the words of the live view of what the daemon keeps.
func englishWatch() map[string]string {
	return map[string]string{
		"state starting":  "is being checked",
		"state in place":  "in place",
		"state waiting":   "waits",
		"state failing":   "could not be put in place",
		"state busy":      "another process changes it",
		"state held":      "a command works on it",
		"state suspended": "off",
		"state foreign":   "another shaper was there first",
		"state contested": "another shaper fights for it",
		"watch followed":  "followed",
		"watch held":      "rates held",
		"watch blind":     "the line cannot be measured now",
		"watch shaper":    "shaper",
		"watch capacity":  "line carries",
		"watch carried":   "now",
		"watch delay":     "delay",
		"watch floor":     "line's own",
		"watch none":      "not shaped",
		"watch decisions": "Last decisions",
		"watch nothing":   "none yet",
		"watch rates":     "shaper and line, Mbit/s",
		"watch gone":      "the daemon does not answer; trying again",
		"watch ends":      "q or Ctrl-C ends it",
		"watch now":       "now",
		"past rates":      "Mbit/s: shaper (line), what the line carries (dots), used (area)",
		"past no delay":   "Delay: not measured, as the rates were fixed.",
		"past delay":      "ms that queues on the line added at most, ↓ and ↑",
	}
}

// germanWatch are the German words.
func germanWatch() map[string]string {
	return map[string]string{
		"state starting":  "wird geprüft",
		"state in place":  "eingerichtet",
		"state waiting":   "wartet",
		"state failing":   "ließ sich nicht einrichten",
		"state busy":      "ein anderer Prozess ändert sie",
		"state held":      "ein Befehl arbeitet daran",
		"state suspended": "aus",
		"state foreign":   "ein anderer Shaper war zuerst da",
		"state contested": "ein anderer Shaper streitet darum",
		"watch followed":  "folgt der Leitung",
		"watch held":      "feste Raten",
		"watch blind":     "die Leitung lässt sich gerade nicht messen",
		"watch shaper":    "Shaper",
		"watch capacity":  "Leitung",
		"watch carried":   "jetzt",
		"watch delay":     "Stau",
		"watch floor":     "davon eigen",
		"watch none":      "kein Shaper",
		"watch decisions": "Letzte Entscheidungen",
		"watch nothing":   "noch keine",
		"watch rates":     "Shaper und Leitung, Mbit/s",
		"watch gone":      "der Daemon antwortet nicht; neuer Versuch",
		"watch ends":      "q oder Strg-C beendet es",
		"watch now":       "jetzt",
		"past rates":      "Mbit/s: Shaper (Linie), Leitung (Punkte), genutzt (Fläche)",
		"past no delay":   "Verzögerung bei festen Raten unbekannt.",
		"past delay":      "ms, die Staus auf der Leitung höchstens hinzufügten, ↓ und ↑",
	}
}
