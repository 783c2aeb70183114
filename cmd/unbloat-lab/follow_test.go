package main

import (
	"bytes"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"unbloat/lab"
	"unbloat/lab/scenario"
	"unbloat/unit"
)

// fallsLog is a line that falls to a third for four seconds.
const fallsLog = "../../internal/keep/follow/testdata/falls.log"

// A log says in two lines why the rate fell: the situation, and its figures.
func TestFollowReplay(t *testing.T) {
	f, err := os.Open(fallsLog)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var out bytes.Buffer
	if err := replay(&out, f); err != nil {
		t.Fatal(err)
	}
	if fell := regexp.MustCompile(`(?m)^  +4\.\d+ s  down  queueing   rate +\d+\.\d\d  line +\d+\.\d\d  carried +\d+\.\d\d Mbit/s  queue +\d+\.\d ms  follow_queue$`); !fell.Match(out.Bytes()) {
		t.Errorf("why the rate fell is not told:\n%s", out.String())
	}
	if strings.Contains(out.String(), "!") {
		t.Error("it decides otherwise than it did")
	}
	if err := replay(&out, strings.NewReader("no log\n")); err == nil || !strings.Contains(err.Error(), "decisions =") {
		t.Errorf("of no log: %v", err)
	}
}

// The figure has the line, both rates, the delays and the situations, and is XML.
func TestFollowFigure(t *testing.T) {
	text, err := os.ReadFile(fallsLog)
	if err != nil {
		t.Fatal(err)
	}
	s := &scenario.Scenario{Title: "A line", Line: scenario.Line{Down: 50 * unit.MbitPerSecond, Up: 10 * unit.MbitPerSecond,
		Vary: []scenario.Change{{At: 4 * time.Second, Down: 15 * unit.MbitPerSecond, Up: 3 * unit.MbitPerSecond}, {At: 8 * time.Second, Down: 50 * unit.MbitPerSecond, Up: 10 * unit.MbitPerSecond}}}}
	s.Test.Seconds = 12 * time.Second
	svg, err := lab.FollowLog{Text: string(text)}.Figure(s)
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(svg, []byte(`fill="none"`)); n != 6 || bytes.Count(svg, []byte("#c0392b")) < 3 {
		t.Errorf("%d lines:\n%s", n, svg)
	}
	s.Test.Idle = time.Hour
	if _, err := (lab.FollowLog{Text: string(text)}).Figure(s); err == nil {
		t.Error("a log of another time is drawn")
	}
}
