package incident

import "time"

// A Pace says in which seconds to ask how the line does, so that it costs next to nothing
// while all is well: rarely, and each second while something may be wrong. What may be
// wrong costs no more than a bounded number of questions a day, until the judge says that
// it is. It is for one goroutine.
type Pace struct {
	Every time.Duration // between two questions while all is well
	left  float64       // questions that doubts may cost now
	asked time.Time     // the last question, whoever asked it
	until time.Time     // each second until then
	turn  int
	began bool
}

// firstEvery is how many questions to far ends are one to the first hop, while there is one
// each second.
const firstEvery = 5

// What doubts may cost.
const (
	doubtMost  = 600          // questions at once
	doubtADay  = 1000         // and in a day
	doubtHolds = 5            // seconds that a doubt lasts
	doubtRise  = 15           // ms above what is usual
	dayLasts   = 24 * 60 * 60 // seconds
)

// Ask returns the far end that is to be asked now, below 0 for none, and whether the first
// hop is. open are the seconds that wait to be judged, the last of which is now. others says
// that somebody else has asked since, and doubt that something else tells of trouble.
func (p *Pace) Ask(j *Judge, open []Second, others, doubt bool) (far int, first bool) {
	s := open[len(open)-1]
	if !p.began {
		p.began, p.left = true, doubtMost
	}
	p.left = min(p.left+float64(doubtADay)/dayLasts, doubtMost)
	sure := j.holds()
	switch {
	case sure || p.left >= 1 && (doubt || j.doubts(open)):
		p.until = s.At.Add(doubtHolds * time.Second)
	case p.left >= doubtMost/2 && j.falls(open):
		p.until = s.At.Add(2 * time.Second)
	}
	often := s.At.Before(p.until) && (sure || p.left >= 1)
	if often && p.Every > time.Second && !sure {
		p.left -= 2
	}
	due := often || !others && s.At.Sub(p.asked) >= p.Every
	if others || due {
		p.asked = s.At
	}
	n := len(s.Far)
	if !due || n == 0 {
		return -1, false
	}
	p.turn++
	switch every := p.turn % (n + 1); {
	case p.Every <= time.Second:
		return p.turn % n, often || p.turn%firstEvery == 0
	case often:
		return p.turn % n, true
	case every < n:
		return every, false
	}
	return -1, true
}

// holds reports whether something is wrong, or is about to be told.
func (j *Judge) holds() bool {
	for _, d := range j.all {
		if d.kind != Slow && (d.open != nil || d.sum >= d.raise/2) {
			return true
		}
	}
	return false
}

// doubts reports whether what the newest seconds tell is unusual: a question to a far end
// without an answer, a late one, or another route.
func (j *Judge) doubts(open []Second) bool {
	n := len(open)
	if j.began && open[n-1].Route != j.route {
		return true
	}
	for _, s := range open[:n-1] {
		for i := range min(len(s.Far), len(j.far)) {
			if a := s.Far[i]; a.Answered < a.Asked || j.far[i].late(a) {
				return true
			}
		}
	}
	return false
}

// late reports whether an answer is unusual for its source.
func (s *source) late(a Answers) bool {
	return a.Answered > 0 && s.known() && a.RTT.Ms()-s.usual > max(doubtRise, 2*s.varies)
}

// falls reports whether much less arrives than a moment ago.
func (j *Judge) falls(open []Second) bool {
	const span, share = 10, 0.4
	last := open[max(0, len(open)-2)].Way[0].Carried.Mbit()
	sum, n := 0.0, 0
	for _, s := range j.recent[max(0, len(j.recent)-span):] {
		if c := s.Way[0].Carried; c >= 0 {
			sum, n = sum+c.Mbit(), n+1
		}
	}
	return n == span && last >= 0 && sum/span > alive && last < share*sum/span
}
