package terminal

import (
	"fmt"

	"unbloat/internal/cure/tune"
)

// trials returns how many of them there are.
func (l *Line) trials() int {
	if l.tuning == nil {
		return 0
	}
	return len(l.tuning.Trials)
}

// steps draws what the tuner has tried, with what came of it, what it tries
// now, and between which rates it still looks.
func (l *Line) steps(p pane, narrow bool) {
	t := l.tuning
	note := ""
	if t.Goal > 0 {
		note = fmt.Sprintf("goal +%.1f ms", float64(t.Goal)/1e6)
	}
	in := p.box("Steps", note, narrow)
	in.step(0, dim, "Mbit/s", "down", "up", "p95 rises")
	y := 1
	if t.AsFound > 0 {
		word, st := "✗ too much", bad
		if t.AsFound <= float64(t.Goal)/1e6 {
			word, st = "✓ good as it is", good
		}
		in.step(y, plain, "as found", mbit(t.LineDown), mbit(t.LineUp), signed(t.AsFound))
		in.outcome(y, word, st)
		y++
	}
	for i, tr := range t.Trials {
		word, st := "✗ too much", bad
		if tr.Held {
			word, st = "✓ holds", good
		}
		in.step(y, plain, fmt.Sprintf("trial %d", i+1), mbit(tr.Down), mbit(tr.Up), signed(tr.IncreaseMs))
		in.outcome(y, word, st)
		y++
	}
	y += l.step(in, y)
	if t.DownTo > 0 && t.Doing == tune.Trying {
		in.text(0, y, cut(fmt.Sprintf("search   ↓ %s–%s  ↑ %s–%s", mbit(t.DownFrom), mbit(t.DownTo), mbit(t.UpFrom), mbit(t.UpTo)), in.w), accent)
	}
}

// step writes what is being measured now, and returns how many lines that took.
func (l *Line) step(in pane, y int) int {
	t, cur := l.tuning, l.current()
	if cur == nil || t.Doing == tune.Deciding {
		return 0
	}
	name := map[tune.Doing]string{tune.AsItIs: "▶ as found", tune.Trying: "▶ trying", tune.Checking: "▶ checking"}[t.Doing]
	down, up := mbit(t.Rates.Down), mbit(t.Rates.Up)
	plus := "–"
	if v, ok := l.over(cur.quantiles().P95); ok && len(cur.answers) > 0 && cur.event.FlowsDown+cur.event.FlowsUp > 0 {
		plus = signed(v)
	}
	in.step(y, bold, name, down, up, plus)
	in.outcome(y, "… so far", dim)
	return 1
}

// step writes the figures of a step.
func (p pane) step(y int, st style, name, down, up, plus string) {
	p.text(0, y, name, st)
	p.right(17, y, down, st)
	p.right(25, y, up, st)
	p.right(36, y, plus, st)
}

// outcome writes what came of a step: a sign, and words if there is room.
func (p pane) outcome(y int, words string, st style) {
	const at = 38
	if p.w < at+width(words) {
		words = string([]rune(words)[:1])
	}
	p.text(at, y, words, st)
}
