package reason

// Why the daemon set a rate. Each has direction, from_bps, to_bps, capacity_bps (0:
// not known) and delay_ms.
const (
	FollowStarted    Code = "follow_started"
	FollowHolding    Code = "follow_holding"
	FollowQueue      Code = "follow_queue"
	FollowDraining   Code = "follow_draining"
	FollowDrained    Code = "follow_drained"
	FollowRoom       Code = "follow_room"
	FollowNearFailed Code = "follow_near_failed"
	FollowNoHelp     Code = "follow_no_help"
	FollowOtherWay   Code = "follow_other_way"
	FollowOutage     Code = "follow_outage"
	FollowReturned   Code = "follow_returned"
	FollowIdle       Code = "follow_idle"
	FollowBlind      Code = "follow_blind"
	FollowGliding    Code = "follow_gliding"
	FollowSet        Code = "follow_set"
	FollowTrying     Code = "follow_trying"
	FollowLoss       Code = "follow_loss"
	FollowOwnLoss    Code = "follow_own_loss"
)

// englishFollow are the words for them.
func englishFollow() map[Code]string {
	return map[Code]string{
		FollowStarted:    "{direction:name}: starts at the usual {to_bps:rate}",
		FollowHolding:    "{direction:name}: holds {to_bps:rate}",
		FollowQueue:      "{direction:name}: the line queues for {delay_ms:ms} and carries {capacity_bps:rate}: cut from {from_bps:rate} to {to_bps:rate}",
		FollowDraining:   "{direction:name}: {to_bps:rate}, below the {capacity_bps:rate} that the line carries, until its queue of {delay_ms:ms} is gone",
		FollowDrained:    "{direction:name}: the line's queue is gone: {to_bps:rate}, just below the {capacity_bps:rate} that it carries",
		FollowRoom:       "{direction:name}: full without a queue on the line: raised from {from_bps:rate} to {to_bps:rate}",
		FollowNearFailed: "{direction:name}: raised slowly from {from_bps:rate} to {to_bps:rate}, because a little more was too much lately",
		FollowNoHelp:     "{direction:name}: the cut to {from_bps:rate} did not shorten the delay of {delay_ms:ms}, which is the line's own: back to {to_bps:rate}",
		FollowOtherWay:   "{direction:name}: the cut to {from_bps:rate} did not shorten the delay of {delay_ms:ms}, so the other direction queues: back to {to_bps:rate}",
		FollowOutage:     "{direction:name}: nothing arrives from the line: {to_bps:rate}, so that the modem does not fill up",
		FollowReturned:   "{direction:name}: the line is back: {to_bps:rate}",
		FollowIdle:       "{direction:name}: without load, {to_bps:rate} on the way to the usual rate",
		FollowBlind:      "{direction:name}: nobody answers probes: holds {to_bps:rate}",
		FollowGliding:    "{direction:name}: nobody has answered probes for long: slowly to {to_bps:rate}, which the line nearly always carries",
		FollowSet:        "{direction:name}: {to_bps:rate}, set from outside",
		FollowTrying:     "{direction:name}: {to_bps:rate} for some seconds, a little more than the line has carried so far; it stays if nothing queues",
		FollowLoss:       "{direction:name}: the line loses packets under load and lets none wait: cut from {from_bps:rate} to {to_bps:rate}, just below what came through",
		FollowOwnLoss:    "{direction:name}: the cut to {from_bps:rate} did not lessen the loss, which is the line's own: back to {to_bps:rate}",
	}
}

// germanFollow are the German words.
func germanFollow() map[Code]string {
	return map[Code]string{
		FollowStarted:    "{direction:name}: beginnt mit den üblichen {to_bps:rate}",
		FollowHolding:    "{direction:name}: bleibt bei {to_bps:rate}",
		FollowQueue:      "{direction:name}: auf der Leitung stauen sich {delay_ms:ms}, sie trägt {capacity_bps:rate}: von {from_bps:rate} auf {to_bps:rate} gesenkt",
		FollowDraining:   "{direction:name}: {to_bps:rate}, weniger als die {capacity_bps:rate} der Leitung, bis ihr Stau von {delay_ms:ms} weg ist",
		FollowDrained:    "{direction:name}: der Stau auf der Leitung ist weg: {to_bps:rate}, knapp unter den {capacity_bps:rate}, die sie trägt",
		FollowRoom:       "{direction:name}: ausgelastet ohne Stau auf der Leitung: von {from_bps:rate} auf {to_bps:rate} angehoben",
		FollowNearFailed: "{direction:name}: langsam von {from_bps:rate} auf {to_bps:rate} angehoben, denn etwas mehr war vor Kurzem zu viel",
		FollowNoHelp:     "{direction:name}: die Senkung auf {from_bps:rate} hat die Verzögerung von {delay_ms:ms} nicht verkürzt, sie gehört zur Leitung: zurück auf {to_bps:rate}",
		FollowOtherWay:   "{direction:name}: die Senkung auf {from_bps:rate} hat die Verzögerung von {delay_ms:ms} nicht verkürzt, der Stau ist in der Gegenrichtung: zurück auf {to_bps:rate}",
		FollowOutage:     "{direction:name}: von der Leitung kommt nichts an: {to_bps:rate}, damit sich das Modem nicht füllt",
		FollowReturned:   "{direction:name}: die Leitung ist wieder da: {to_bps:rate}",
		FollowIdle:       "{direction:name}: ohne Last, {to_bps:rate} auf dem Weg zur üblichen Rate",
		FollowBlind:      "{direction:name}: niemand beantwortet Messpakete: bleibt bei {to_bps:rate}",
		FollowGliding:    "{direction:name}: seit Langem beantwortet niemand Messpakete: langsam auf {to_bps:rate}, die die Leitung fast immer trägt",
		FollowSet:        "{direction:name}: {to_bps:rate}, von außen gesetzt",
		FollowTrying:     "{direction:name}: {to_bps:rate} für einige Sekunden, etwas mehr, als die Leitung bisher trug; es bleibt dabei, wenn nichts wartet",
		FollowLoss:       "{direction:name}: die Leitung verliert unter Last Pakete, statt sie warten zu lassen: von {from_bps:rate} auf {to_bps:rate} gesenkt, knapp unter das, was durchkam",
		FollowOwnLoss:    "{direction:name}: die Senkung auf {from_bps:rate} hat den Verlust nicht verringert, er gehört zur Leitung: zurück auf {to_bps:rate}",
	}
}
