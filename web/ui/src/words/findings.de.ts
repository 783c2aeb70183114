// What the doctor's findings mean, in German. The router says them in English, with its
// names and figures; here they are without. internal/cure/platform has the codes.

/** What is found, why it matters, and what to do. */
export interface FindingWords {
  what: string;
  why: string;
  remedy: string;
}

const shaperKept = "Es setzt seine eigenen Warteschlangen und nimmt weg, was unbloat gesetzt hat.";

export const germanFindings: Record<string, FindingWords> = {
  "classes-lost": {
    what: "Die Regeln, die den Verkehr einteilen, sind nicht die, die gesetzt wurden.",
    why: "Gespräche warten dann hinter anderem.",
    remedy: "Setzen Sie sie wieder ein, und suchen Sie das Programm, das sie entfernt hat.",
  },
  "clearos-bandwidth": {
    what: "Der alte Bandbreiten-Manager von ClearOS ist an.",
    why: "Er setzt bei jedem Start der Firewall seine eigenen Warteschlangen.",
    remedy: "Schalten Sie ihn in seiner Datei ab, und starten Sie die Firewall neu.",
  },
  clock: {
    what: "Die Uhr des Routers geht falsch.",
    why: "Zertifikate werden abgelehnt, und Ergebnisse lassen sich nicht ordnen.",
    remedy: "Stellen Sie die Uhr, und schalten Sie NTP ein.",
  },
  clocksource: {
    what: "Der Kernel nimmt die Zeit aus einer langsamen oder groben Quelle.",
    why: "Jedes Paket bekommt einen Zeitstempel davon.",
    remedy: "Nehmen Sie eine andere Zeitquelle, wenn es sie gibt, etwa tsc.",
  },
  cpu: {
    what: "Der Prozessor ist für diese Geschwindigkeit knapp.",
    why: "Reicht er nicht, entsteht der Stau in ihm.",
    remedy: "Stellen Sie weniger ein, oder messen Sie, ob es reicht.",
  },
  drift: {
    what: "Auf der Leitung gilt nicht mehr, was eingestellt wurde.",
    why: "Etwas anderes hat es geändert.",
    remedy: "Setzen Sie es wieder ein, und suchen Sie das Programm, das es geändert hat.",
  },
  "flow-offload": {
    what: "Verbindungen werden am Kernel vorbei weitergeleitet.",
    why: "Diese Pakete gehen an der Grenze vorbei, also hält sie nicht.",
    remedy: "Schalten Sie das Offloading der Firewall ab.",
  },
  "ipv6-bypass": {
    what: "Was über IPv6 ankommt, wird nicht begrenzt.",
    why: "Ein Download über IPv6 füllt die Warteschlange des Anbieters, und alles wartet dort.",
    remedy: "Setzen Sie die Grenze neu; sie gilt dann für beide Protokolle.",
  },
  mss: {
    what: "Auf der Leitung sind Pakete kleiner als im Heimnetz, und nichts passt TCP daran an.",
    why: "Manche Seiten laden dann nicht.",
    remedy: "Schalten Sie in der Firewall ein, dass sie die Größe von TCPs Segmenten anpasst (MSS clamping).",
  },
  mtu: {
    what: "Die MTU der Leitung ist zu klein.",
    why: "IPv6 braucht 1280 Byte.",
    remedy: "Stellen Sie ein, was der Anbieter nennt.",
  },
  networkd: { what: "systemd-networkd setzt Warteschlangen.", why: shaperKept, remedy: "Entfernen Sie diese Einstellungen aus den genannten Dateien." },
  networkmanager: { what: "NetworkManager setzt Warteschlangen.", why: shaperKept, remedy: "Entfernen Sie diese Einstellungen aus den genannten Verbindungen." },
  "no-aqm": {
    what: "Im Kernel fehlt, was eine Rate halten kann.",
    why: "Ohne das bleibt keine Warteschlange kurz.",
    remedy: "Installieren oder laden Sie das genannte Modul.",
  },
  "no-cake": {
    what: "Im Kernel fehlt CAKE.",
    why: "HTB mit fq_codel trennt Verbindungen, aber nicht die Geräte.",
    remedy: "Installieren Sie das genannte Paket.",
  },
  "no-ifb": {
    what: "Im Kernel fehlt, was Ankommendes umleitet (ifb).",
    why: "Der Download lässt sich dann nur zum Heimnetz hin begrenzen.",
    remedy: "Installieren Sie das genannte Paket.",
  },
  "no-isolation": {
    what: "Etwas begrenzt die Leitung, ohne Verbindungen zu trennen.",
    why: "Ein Gespräch wartet dann hinter jedem Download.",
    remedy: "Nehmen Sie stattdessen einen Plan von unbloat.",
  },
  ntp: {
    what: "Die Uhr wird nicht nachgestellt.",
    why: "Ergebnisse verschiedener Rechner lassen sich nicht ordnen.",
    remedy: "Schalten Sie NTP ein.",
  },
  "offload-engine": {
    what: "Ein Modul trägt Verbindungen am Kernel vorbei.",
    why: "Diese Pakete gehen an der Grenze vorbei, also hält sie nicht.",
    remedy: "Entladen Sie das Modul, und laden Sie es beim Start nicht mehr.",
  },
  offloads: {
    what: "Die Netzwerkkarte fasst Pakete zusammen, und die Warteschlange teilt sie nicht.",
    why: "Ein großes Paket hält ein kleines auf.",
    remedy: "Schalten Sie das Zusammenfassen ab.",
  },
  "other-shaper": {
    what: "Etwas anderes begrenzt diese Leitung schon.",
    why: "Von zwei Grenzen gilt die kleinere, und der Stau entsteht dort, wo niemand abgestimmt hat.",
    remedy: "Entfernen Sie die andere, oder lassen Sie unbloat sie übernehmen.",
  },
  overhead: {
    what: "Die Grenze zählt zu wenig von dem, was die Leitung jedem Paket hinzufügt.",
    why: "Kleine Pakete brauchen dann mehr als gezählt, und der Stau wandert ins Modem.",
    remedy: "Geben Sie an, was für eine Leitung es ist.",
  },
  "past-wan": {
    what: "Nicht alles, was ins Internet geht, geht über diese Schnittstelle.",
    why: "Was an ihr vorbeigeht, wird nicht begrenzt.",
    remedy: "Begrenzen Sie die Leitung, die beides trägt, oder auch die andere.",
  },
  "pf-off": { what: "pf ist aus.", why: "Dann sind seine Warteschlangen es auch.", remedy: "Schalten Sie pf ein, auch für den nächsten Start." },
  police: {
    what: "Was ankommt, wird ohne Warteschlange verworfen (Policer).",
    why: "Das trifft auch, was IPv6 zum Leben braucht.",
    remedy: "Entfernen Sie den Policer, und setzen Sie die Grenze neu.",
  },
  privilege: {
    what: "Dieser Benutzer darf das Netz nicht einstellen.",
    why: "Nichts lässt sich begrenzen und nicht alles prüfen.",
    remedy: "Starten Sie das Programm als root.",
  },
  rehearsal: { what: "Eine Änderung würde abgelehnt.", why: "Der Grund steht unten.", remedy: "Beheben Sie den Grund." },
  sqm: {
    what: "sqm-scripts begrenzt diese Leitung bei jedem Start.",
    why: "Es nimmt weg, was unbloat setzt.",
    remedy: "Schalten Sie es für diese Leitung ab.",
  },
  tool: { what: "Ein Programm fehlt.", why: "Ohne es lässt sich nicht alles einstellen oder prüfen.", remedy: "Installieren Sie das genannte Paket." },
  wan: {
    what: "Die Leitung ist nicht da.",
    why: "Es gibt nichts zu begrenzen.",
    remedy: "Sehen Sie nach dem Kabel, oder nennen Sie in der Konfiguration eine andere Schnittstelle.",
  },
  "whole-marks": {
    what: "Andere Regeln überschreiben die ganze Marke von Verbindungen.",
    why: "Darin steht auch, welche Klasse sie haben.",
    remedy: "Lassen Sie diese Regeln nur ihre eigenen Bits schreiben.",
  },
  "no-bpf": {
    what: "Anrufe sind nicht dadurch geschützt, wie Verbindungen sich verhalten: Dem Router fehlt, was dafür nötig ist.",
    why: "Neben hundert anderen Verbindungen ist der gleiche Anteil für einen Anruf zu klein; eigene Regeln wirken weiterhin.",
    remedy: "Installieren Sie das genannte Paket.",
  },
  "slow-bpf": {
    what: "Anrufe sind nicht dadurch geschützt, wie Verbindungen sich verhalten: Auf diesem Router würde es viel Rechenzeit kosten.",
    why: "Neben hundert anderen Verbindungen ist der gleiche Anteil für einen Anruf zu klein; eigene Regeln wirken weiterhin.",
    remedy: "Tun Sie, was genannt ist, oder nehmen Sie die Kosten mit --classifier bpf in Kauf.",
  },
  headroom: {
    what: "Der Prozessor des Routers schafft die gewünschte Rate nicht.",
    why: "Was er nicht rechtzeitig weitergibt, wartet in der Netzwerkkarte, wo keine Warteschlange hilft.",
    remedy: "Setzen Sie eine niedrigere Rate, oder nehmen Sie einen schnelleren Router.",
  },
  softnet: {
    what: "Der Kernel des Routers verwirft Pakete, bevor sie eine Warteschlange erreichen.",
    why: "Der Prozessor kommt nicht nach; diese Verluste treffen auch Gespräche.",
    remedy: "Setzen Sie eine niedrigere Rate, oder nehmen Sie einen schnelleren Router.",
  },
  wondershaper: { what: "wondershaper startet von selbst.", why: shaperKept, remedy: "Schalten Sie es ab." },
};
