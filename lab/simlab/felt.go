package simlab

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"

	"unbloat/internal/measure/probe"
	"unbloat/internal/measure/verdict"
	"unbloat/lab"
	"unbloat/lab/household"
	"unbloat/lab/scenario"
	"unbloat/lab/sim"
	"unbloat/unit"
)

// What the household of package lab asks for by datagrams and keys.
const (
	dnsFrame   = 80  // a question, and near enough its answer
	freshShare = 0.3 // of the questions, that the router does not know the answer to
	dnsTimeout = 5 * time.Second
	dnsTries   = 2
	sshFrame   = 36 + 66 // a key, encrypted, in a segment of TCP
	sshTimeout = 220 * time.Millisecond
	sshTries   = 8
)

// film is a video player: package household's, which plays in the lab too.
type film struct {
	household.Player
	began   unit.Instant
	quality unit.Rate
}

// Ask implements sim.Film.
func (f *film) Ask(now unit.Instant) unit.Size {
	f.Advance(now.Sub(f.began))
	f.quality = f.Choose()
	return f.quality.Bytes(household.SegmentLength)
}

// Took implements sim.Film.
func (f *film) Took(now unit.Instant, took time.Duration) time.Duration {
	f.Fetched(now.Sub(f.began), took, f.quality)
	return f.Full()
}

// activity starts what somebody does by short exchanges.
func (h *house) activity(r *load) error {
	p := sim.AppParams{Host: r.Host, ExtraRTT: h.scenario.Home.AwayOf(r.Host), Start: r.start, Stop: r.stop, Objects: r.Objects, Think: r.Think, Messages: r.Messages}
	switch r.Kind {
	case scenario.Web:
		p.Activity = sim.Web
	case scenario.Video:
		p.Activity = sim.Video
	default:
		p.Activity = sim.IMAP
	}
	for range r.Flows {
		q := p
		if r.Kind == scenario.Video {
			f := &film{began: p.Start}
			r.films, q.Film = append(r.films, f), f
		}
		a, err := h.net.AddApp(q)
		if err != nil {
			return err
		}
		r.apps = append(r.apps, a)
	}
	return nil
}

// felt returns what the users of a load noticed, as package lab reports it.
func (l *load) felt(random *rand.Rand) (f household.QoE) {
	switch l.Kind {
	case scenario.Web:
		f.Web = l.pages()
	case scenario.IMAP:
		f.Mail = l.mail()
	case scenario.Video:
		for _, p := range l.films {
			p.Advance(l.stop.Sub(p.began))
			if r := p.Result(); f.Video == nil || r.PlayedS < f.Video.PlayedS {
				f.Video = r
			}
		}
	case scenario.DNS:
		times, failed := l.answers(dnsTimeout, dnsTries)
		// The router answers all others at once.
		for range int(float64(len(times)+failed)*(1/freshShare-1) + random.Float64()) {
			times = append(times, 0)
		}
		f.DNS = &household.DNSResult{Queries: len(times) + failed, Failed: failed, AnswerMs: verdict.Summarise(times)}
	case scenario.SSH:
		times, missing := l.answers(sshTimeout, sshTries)
		f.Shell = &household.ShellResult{Keys: len(times) + missing, Missing: missing, EchoMs: verdict.Summarise(times), Program: "none: simulated"}
	}
	return f
}

// pages says how pages loaded: one that has not come counts as failed if it has
// taken longer than all others.
func (l *load) pages() *household.WebResult {
	var times []time.Duration
	for _, a := range l.apps {
		for _, p := range a.Fetches() {
			if p.Asked.Add(p.Took) <= l.stop {
				times = append(times, p.Took)
			}
		}
	}
	slices.Sort(times)
	r := &household.WebResult{Pages: len(times), LoadMs: verdict.Summarise(times)}
	for _, a := range l.apps {
		if since, ok := a.UnderWay(); ok && (len(times) == 0 || l.stop.Sub(since) > times[len(times)-1]) {
			r.Failed++
		}
	}
	return r
}

// mail says how far a mailbox came; messages are counted by their mean size.
func (l *load) mail() *household.MailResult {
	a := l.apps[0]
	arrived, all := a.Mailbox()
	r := &household.MailResult{Of: l.Messages, Bytes: int64(arrived), Seconds: l.stop.Sub(l.start).Seconds()}
	if done := a.Fetches(); len(done) > 0 {
		r.Done, r.Seconds = true, done[0].Took.Seconds()
	}
	r.Messages = int(int64(l.Messages) * int64(arrived) / max(int64(all), 1))
	return r
}

// answers returns how long questions took whose sender asks again after a
// timeout, which doubles, and how many had no answer after so many tries. What
// becomes of a repeated question is what becomes of the next one sent then.
func (l *load) answers(timeout time.Duration, tries int) (times []time.Duration, failed int) {
	for _, s := range l.streams {
		all := s.Sent()
		for i := range all {
			k, wait, answered := i, timeout, false
			for range tries {
				if d := all[k]; d.Fate == sim.Answered && (d.Back.Sub(d.Sent) < wait || k == i) {
					times = append(times, d.Back.Sub(all[i].Sent))
					answered = true
					break
				}
				again := all[k].Sent.Add(wait)
				for k < len(all) && all[k].Sent.Before(again) {
					k++
				}
				if k == len(all) {
					break
				}
				wait *= 2
			}
			if !answered {
				failed++
			}
		}
	}
	slices.Sort(times)
	return times, failed
}

// outcome returns what a load got through.
func (h *house) outcome(l *load, raw *verdict.Raw, base verdict.Baseline) lab.LoadResult {
	r := lab.LoadResult{Kind: l.Kind, Host: l.Host, Flows: l.Flows, QoE: l.felt(h.random)}
	seconds := raw.To.Sub(raw.From).Seconds()
	switch l.Kind {
	case scenario.Upload, scenario.Download:
		r.GoodputBps = verdict.Goodput(l.groups[0].series(), raw.From, raw.To)
	case scenario.QUICUpload, scenario.QUICDownload:
		r.GoodputBps = verdict.Goodput(l.groups[0].series(), raw.From, raw.To)
		r.QUIC = household.Shares(l.groups[0].series(), raw.From, raw.To)
	case scenario.WebRTC:
		r.Call = l.called(raw)
		r.Call.LeaveOut(lab.Outages(h.scenario.Line, h.changed))
		r.Latency = r.Call.Latency()
		for _, c := range l.calls {
			r.GoodputUpBps += verdict.Goodput([]verdict.Series{c[1].arrived}, raw.From, raw.To)
			r.GoodputDownBps += verdict.Goodput([]verdict.Series{c[0].arrived}, raw.From, raw.To)
		}
		r.GoodputBps = r.GoodputUpBps + r.GoodputDownBps
	case scenario.CloudGame:
		r.Play = l.played(raw)
		for _, s := range l.servers {
			r.GoodputDownBps += verdict.Goodput([]verdict.Series{s.arrived}, raw.From, raw.To)
		}
		r.GoodputBps = r.GoodputDownBps
	case scenario.Torrent:
		r.GoodputDownBps = verdict.Goodput(l.groups[0].series(), raw.From, raw.To)
		r.GoodputUpBps = verdict.Goodput(l.groups[1].series(), raw.From, raw.To)
		r.GoodputBps = r.GoodputDownBps + r.GoodputUpBps
		r.Torrent = &household.TorrentResult{Peers: l.Peers, Connected: l.Peers, Transport: l.Transport, DownBps: r.GoodputDownBps, UpBps: r.GoodputUpBps}
	case scenario.IMAP: // as mbsync reports it: nothing counts its bytes as they come
		r.GoodputBps = float64(r.Mail.Bytes) * 8 / r.Mail.Seconds
	case scenario.Web, scenario.Video:
		for _, a := range l.apps {
			r.GoodputDownBps += verdict.Goodput(seriesOf(a.Conns()), raw.From, raw.To)
		}
		r.GoodputBps = r.GoodputDownBps
	case scenario.VoIP, scenario.Game:
		latency := verdict.EvaluateLatency(h.sampled(l, raw), base)
		r.GoodputBps = float64(latency.Received) * float64(household.AnswerBytes(l.Load)) * 8 / seconds
		if r.Latency = &latency; l.Kind == scenario.VoIP {
			r.Voice = verdict.Call(latency)
		}
	case scenario.UDP:
		samples := h.sampled(l, raw)
		latency := verdict.Latency{Sent: len(samples)}
		for _, s := range samples {
			if s.ServerReceived != 0 {
				latency.Received++
			}
		}
		if len(samples) > 0 {
			latency.Loss = 1 - float64(latency.Received)/float64(len(samples))
		}
		r.Latency = &latency
		r.GoodputBps = float64(latency.Received) * float64(cmp.Or(l.Bytes, udpBytes)) * 8 / seconds
	}
	return r
}

// sampled returns a load's datagrams of the counted time.
func (h *house) sampled(l *load, raw *verdict.Raw) (out []probe.Sample) {
	for _, s := range l.streams {
		out = append(out, h.samples(s, raw.From, raw.To)...)
	}
	return out
}
