package household

import (
	"fmt"

	"unbloat/internal/measure/verdict"
)

// QoE is what the users of a load noticed: one part is given, that of its
// kind. A game is scored by its latency.
type QoE struct {
	Voice   *verdict.Voice `json:"voice,omitempty"` // voip
	Torrent *TorrentResult `json:"torrent,omitempty"`
	Mail    *MailResult    `json:"mail,omitempty"` // imap
	Web     *WebResult     `json:"web,omitempty"`
	DNS     *DNSResult     `json:"dns,omitempty"`
	Shell   *ShellResult   `json:"shell,omitempty"` // ssh
	Video   *VideoResult   `json:"video,omitempty"`
	Call    *CallResult    `json:"call,omitempty"` // webrtc
	QUIC    *SharesResult  `json:"quic,omitempty"` // quic-upload, quic-download
	Play    *PlayResult    `json:"play,omitempty"` // cloud-game
}

// TorrentResult is what a BitTorrent client got through.
type TorrentResult struct {
	Peers     int     `json:"peers"`     // of the swarm, beside the home's own client
	Connected int     `json:"connected"` // of them, at the end
	Transport string  `json:"transport"` // tcp or utp
	DownBps   float64 `json:"down_bps"`  // payload that arrived, in the counted window
	UpBps     float64 `json:"up_bps"`
}

// MailResult is how a mailbox was synchronised.
type MailResult struct {
	Messages int     `json:"messages"` // that arrived
	Of       int     `json:"of"`       // in the mailbox
	Bytes    int64   `json:"bytes"`    // that arrived
	Seconds  float64 `json:"seconds"`  // until it was done, or until the load's end
	Done     bool    `json:"done"`
}

// WebResult is how pages loaded: from the name's look-up to the last object.
type WebResult struct {
	Pages  int               `json:"pages"`
	Failed int               `json:"failed"`  // pages of which something never came
	LoadMs verdict.Quantiles `json:"load_ms"` // of those that came
}

// DNSResult is how names were resolved.
type DNSResult struct {
	Queries  int               `json:"queries"`
	Failed   int               `json:"failed"`
	AnswerMs verdict.Quantiles `json:"answer_ms"` // with the client's own retries
}

// ShellResult is how long a key took to appear on the screen.
type ShellResult struct {
	Keys    int               `json:"keys"`
	Missing int               `json:"missing"` // whose echo had not come at the end
	EchoMs  verdict.Quantiles `json:"echo_ms"`
	Program string            `json:"program"` // that carried them
}

// VideoResult is how a film played.
type VideoResult struct {
	Segments   int     `json:"segments"`    // fetched
	QualityBps float64 `json:"quality_bps"` // mean of those fetched
	StartupMs  float64 `json:"startup_ms"`  // from the press of the button to the first picture; 0: it never came
	Stalls     int     `json:"stalls"`
	StalledS   float64 `json:"stalled_s"` // seconds in which the picture stood still, without the startup
	PlayedS    float64 `json:"played_s"`
}

// Sentences says what the users noticed.
func (f QoE) Sentences() []string {
	var out []string
	say := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	if v := f.Voice; v != nil {
		say("MOS %.2f", v.MOS)
	}
	if x := f.Torrent; x != nil {
		say("%s, %d of %d peers", x.Transport, x.Connected, x.Peers)
	}
	if x := f.Mail; x != nil {
		say("%d of %d messages in %.1f s", x.Messages, x.Of, x.Seconds)
	}
	if x := f.Web; x != nil {
		say("%d pages, p50 %.2f s, p95 %.2f s, %d failed", x.Pages, x.LoadMs.P50/1e3, x.LoadMs.P95/1e3, x.Failed)
	}
	if x := f.DNS; x != nil {
		say("%d answers, p50 %.1f ms, p95 %.1f ms, %d failed", x.Queries-x.Failed, x.AnswerMs.P50, x.AnswerMs.P95, x.Failed)
	}
	if x := f.Shell; x != nil {
		say("echo p50 %.1f ms, p95 %.1f ms, %d of %d keys missing", x.EchoMs.P50, x.EchoMs.P95, x.Missing, x.Keys)
	}
	if x := f.Video; x != nil && x.StartupMs == 0 {
		say("no picture came")
	} else if x != nil {
		say("%.2g Mbit/s of picture, %d stalls of %.1f s together, started after %.1f s", x.QualityBps/1e6, x.Stalls, x.StalledS, x.StartupMs/1e3)
	}
	if x := f.Call; x != nil {
		say("up %s", x.Up.words())
		say("down %s", x.Down.words())
	}
	if x := f.QUIC; x != nil {
		say("the flows have %.2f to %.2f Mbit/s, over 3 s at most %.2f", x.LeastBps/1e6, x.MostBps/1e6, x.PeakBps/1e6)
	}
	if x := f.Play; x != nil {
		say("%d of %d frames late, %d not shown, %d freezes of %.1f s together, input p95 %.1f ms, %.1f %% of it lost",
			x.Late, x.Frames, x.Frames-x.Shown, x.Freezes, x.FrozenS, x.InputMs.P95, 100*x.InputLoss)
	}
	return out
}

// words says how one way of a call was.
func (w CallWay) words() string {
	return fmt.Sprintf("MOS %.2f, %.2f Mbit/s of video, %d freezes of %.1f s together, the longest of %.1f s, %d of %d frames late, %d not shown, %.1f %% of packets lost, %d key frames asked for",
		w.MOS, w.VideoBps/1e6, w.Freezes, w.FrozenS, w.LongestS, w.Late, w.Frames, w.Frames-w.Shown, 100*w.PacketLoss, w.KeysAsked)
}
