package probe

import (
	"time"

	"unbloat/unit"
)

// Config describes a client's stream of probes.
type Config struct {
	Interval time.Duration // between probes, at least MinInterval
	Size     unit.Size     // of each datagram's payload, MinSize to MaxSize
	Token    uint64        // of the stream, from the control connection
	Start    unit.Instant  // when the first probe is due
	End      unit.Instant  // no probe is due at or after it; zero: none
	OneWay   bool          // count only: the server does not answer
	Codec    Codec         // of another protocol; nil: the one of this package
}

// Bounds of what a Session accepts.
const (
	MinInterval = 100 * time.Microsecond
	// MaxBurst is how many overdue probes leave at once after the sender was
	// held up. Further overdue ones are skipped and recorded as a Skip: a long
	// burst would be a load of its own.
	MaxBurst = 4
)

// A Skip is a run of probes that were due but never left, because the machine
// was busy elsewhere.
type Skip struct {
	At       unit.Instant  // when it was noticed
	Probes   int           // how many were skipped
	Lateness time.Duration // of the oldest of them
}

// A Session sends probes on schedule, whatever is outstanding, and files the
// answers. It is not safe for concurrent use.
type Session struct {
	cfg   Config
	due   unit.Instant
	codec Codec
	store store
	skips []Skip
	buf   []byte

	answered   int
	duplicates int
	newest     int // highest sequence number answered, -1 if none
}

// NewSession returns a session; values of cfg out of bounds are brought to the
// bound. How small a datagram may be, a foreign Codec's maker knows.
func NewSession(cfg Config) *Session {
	cfg.Interval = max(cfg.Interval, MinInterval)
	if cfg.Codec == nil {
		cfg.Size = max(cfg.Size, MinSize)
		cfg.Codec = native{token: cfg.Token, oneWay: cfg.OneWay}
	}
	cfg.Size = min(cfg.Size, MaxSize)
	return &Session{cfg: cfg, codec: cfg.Codec, due: cfg.Start, buf: make([]byte, cfg.Size), newest: -1}
}

// Poll returns the datagram that is due at now, or nil if none is, and when to
// poll again. The datagram must leave at once, is counted as sent at now, and
// is valid until the next Poll. After the end it returns nil and zero.
func (s *Session) Poll(now unit.Instant) (datagram []byte, next unit.Instant) {
	if s.ended() {
		return nil, 0
	}
	if now.Before(s.due) {
		return nil, s.due
	}
	if behind := int64(now.Sub(s.due) / s.cfg.Interval); behind > MaxBurst {
		s.skips = append(s.skips, Skip{now, int(behind), now.Sub(s.due)})
		s.due = s.due.Add(time.Duration(behind) * s.cfg.Interval)
	}
	seq := uint32(s.store.n)
	s.codec.Request(s.buf, seq)
	s.store.add(Sample{Seq: seq, Scheduled: s.due, Sent: now})
	s.due = s.due.Add(s.cfg.Interval)
	if s.ended() {
		return s.buf, 0
	}
	return s.buf, s.due
}

func (s *Session) ended() bool { return s.cfg.End != 0 && !s.due.Before(s.cfg.End) }

// Stop ends the schedule at the given instant; probes due before it still leave.
func (s *Session) Stop(at unit.Instant) { s.cfg.End = max(at, 1) }

// Receive files a datagram that arrived at now. An error says why it was
// ignored: such datagrams change nothing.
func (s *Session) Receive(now unit.Instant, b []byte) error {
	h, err := s.codec.Answer(b)
	if err != nil {
		return err
	}
	if int64(h.Seq) >= int64(s.store.n) {
		return ErrSequence
	}
	p := s.store.at(int(h.Seq))
	if p.Fate == Answered {
		s.duplicates++
		return ErrDuplicate
	}
	p.Fate = Answered
	p.Count = h.Count
	p.Received = max(now, p.Sent+1) // an answer is never earlier than its question, whatever a clock says
	p.ServerReceived, p.ServerSent = h.ServerReceived, h.ServerSent
	s.answered++
	s.newest = max(s.newest, int(h.Seq))
	return nil
}

// Sent returns how many probes have left.
func (s *Session) Sent() int { return s.store.n }

// Answered returns how many probes have been answered.
func (s *Session) Answered() int { return s.answered }

// Duplicates returns how many second answers arrived.
func (s *Session) Duplicates() int { return s.duplicates }

// ReorderWindow is how long after the answer to a later probe an earlier one
// may still come before it counts as lost.
const ReorderWindow = time.Second

// Settled reports whether nothing more is to be expected of the probes sent
// before the given instant: each was answered, or a later one was answered
// more than ReorderWindow ago, or it left more than grace ago.
func (s *Session) Settled(before, now unit.Instant, grace time.Duration) bool {
	var earliest unit.Instant // answer to any probe after the one looked at
	last := s.store.from(before) - 1
	for i := s.newest; i > last; i-- {
		earliest = earlier(earliest, s.store.at(i).Received)
	}
	for i := last; i >= 0; i-- {
		p := s.store.at(i)
		switch {
		case p.Fate == Answered:
			earliest = earlier(earliest, p.Received)
		case now.Sub(p.Sent) > grace, earliest != 0 && now.Sub(earliest) >= ReorderWindow:
			return true // and so are all before it
		default:
			return false
		}
	}
	return true
}

// earlier returns the earlier of two instants, of which zero is none.
func earlier(a, b unit.Instant) unit.Instant {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// Samples returns a copy of the samples sent in [from, to), each with its fate
// as far as it is known: see Resolve.
func (s *Session) Samples(from, to unit.Instant) []Sample {
	lo, hi := s.store.from(from), s.store.from(to)
	out := make([]Sample, 0, max(hi-lo, 0))
	for i := lo; i < hi; i++ {
		out = append(out, *s.store.at(i))
	}
	return out
}

// Skips returns the probes that never left in [from, to).
func (s *Session) Skips(from, to unit.Instant) []Skip {
	var out []Skip
	for _, k := range s.skips {
		if !k.At.Before(from) && k.At.Before(to) {
			out = append(out, k)
		}
	}
	return out
}

// NoFinalCount says to Resolve that the server was not asked.
const NoFinalCount = -1

// Resolve decides on which way probes were lost, by the server's count of what it received:
// between two answers the count grows by the probes that arrived, so of the
// unanswered ones between them count says how many were lost on the way there
// and how many of the answers on the way back. Which ones of a gap is not
// known; the earlier ones are taken to be lost on the way there. The probes
// after the last answer are decided by finalCount, the server's count at the
// end, or stay Open without one. Counts assume that the path keeps the order;
// where it does not, a gap's split is brought into its bounds. Of a protocol
// whose answers carry no count, a lost probe is Lost, on either way.
func (s *Session) Resolve(finalCount int64) {
	prevSeq, prevCount := -1, int64(0)
	for i := 0; i < s.store.n; i++ {
		p := s.store.at(i)
		if p.Fate != Answered {
			continue
		}
		if p.Count == 0 {
			s.lose(prevSeq+1, i)
			prevSeq = i
			continue
		}
		s.split(prevSeq+1, i, int64(p.Count)-prevCount-1)
		prevSeq, prevCount = i, int64(p.Count)
	}
	if finalCount != NoFinalCount {
		s.split(prevSeq+1, s.store.n, finalCount-prevCount)
	}
}

// split gives the unanswered probes lo ≤ seq < hi a fate, of which the server
// received arrived.
func (s *Session) split(lo, hi int, arrived int64) {
	up := int64(hi-lo) - arrived
	for i := lo; i < hi; i++ {
		if int64(i-lo) < up {
			s.store.at(i).Fate = LostUp
		} else {
			s.store.at(i).Fate = LostDown
		}
	}
}

// lose gives the unanswered probes lo ≤ seq < hi the fate of the uncounted.
func (s *Session) lose(lo, hi int) {
	for i := lo; i < hi; i++ {
		s.store.at(i).Fate = Lost
	}
}
