package incident

import (
	"bytes"
	"crypto/sha256"
	"encoding/csv"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"unbloat/unit"
)

// columns are those of the samples as CSV; behind them are three for each far end. A rate
// that is not known is -1, a link that is not known "".
func columns() []string {
	return []string{"time", "first_asked", "first_answered", "first_ms", "shaper_down_bps", "carried_down_bps", "shaper_up_bps", "carried_up_bps",
		"wan_link", "lan_link", "lan_packets", "lan_errors", "route", "cpu"}
}

// CSV returns samples as CSV, with the names of the far ends.
func CSV(samples []Second, far []string) []byte {
	var b bytes.Buffer
	write := func(row []string) { b.WriteString(strings.Join(row, ",") + "\n") }
	head := columns()
	for _, name := range far {
		name = strings.Map(plainly, name)
		head = append(head, name+"_asked", name+"_answered", name+"_ms")
	}
	write(head)
	for _, s := range samples {
		row := append([]string{s.At.UTC().Format(time.RFC3339)}, answers(s.First)...)
		for _, x := range s.Way {
			row = append(row, rate(x.Rate), rate(x.Carried))
		}
		row = append(row, link(s.WAN), link(s.LAN), strconv.FormatUint(s.LAN.Packets, 10), strconv.FormatUint(s.LAN.Errors, 10),
			strconv.FormatUint(uint64(s.Route), 10), strconv.FormatFloat(s.CPU, 'f', 2, 64))
		for i := range far {
			a := Answers{}
			if i < len(s.Far) {
				a = s.Far[i]
			}
			row = append(row, answers(a)...)
		}
		write(row)
	}
	return b.Bytes()
}

// plainly leaves what CSV takes as it is: names of far ends are ours, or addresses.
func plainly(r rune) rune {
	if strings.ContainsRune(",\"\r\n", r) {
		return '_'
	}
	return r
}

func answers(a Answers) []string {
	rtt := ""
	if a.Answered > 0 {
		rtt = strconv.FormatFloat(a.RTT.Ms(), 'f', 2, 64)
	}
	return []string{strconv.Itoa(a.Asked), strconv.Itoa(a.Answered), rtt}
}

func rate(r unit.Rate) string { return strconv.FormatInt(int64(r), 10) }

func link(p Port) string {
	switch {
	case !p.Known:
		return ""
	case p.Up:
		return "1"
	}
	return "0"
}

// Digest is the checksum of samples as CSV: SHA-256, in hexadecimal.
func Digest(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// ParseCSV reads what CSV wrote, which a judge can be given again.
func ParseCSV(text []byte) (samples []Second, far []string, err error) {
	rows, err := csv.NewReader(bytes.NewReader(text)).ReadAll()
	if err != nil {
		return nil, nil, fmt.Errorf("read samples: %w", err)
	}
	fixed := columns()
	const each = 3
	if len(rows) == 0 || len(rows[0]) < len(fixed) || !slices.Equal(rows[0][:len(fixed)], fixed) || (len(rows[0])-len(fixed))%each != 0 {
		return nil, nil, errors.New("read samples: the first line does not have the columns of samples")
	}
	for k := len(fixed); k < len(rows[0]); k += each {
		name, is := bytes.CutSuffix([]byte(rows[0][k]), []byte("_asked"))
		if !is {
			return nil, nil, fmt.Errorf("read samples: column %q is not a far end's", rows[0][k])
		}
		far = append(far, string(name))
	}
	for n, row := range rows[1:] {
		p := parser{row: row}
		s := Second{At: p.time(), First: p.answers()}
		for i := range s.Way {
			s.Way[i] = Way{unit.Rate(p.int()), unit.Rate(p.int())}
		}
		s.WAN, s.LAN = p.port(), p.port()
		s.LAN.Packets, s.LAN.Errors, s.Route, s.CPU = uint64(p.int()), uint64(p.int()), uint32(p.int()), p.float()
		for range far {
			s.Far = append(s.Far, p.answers())
		}
		if p.err != nil {
			return nil, nil, fmt.Errorf("read samples: line %d: %w", n+2, p.err)
		}
		samples = append(samples, s)
	}
	return samples, far, nil
}

// A parser reads the fields of a row, one after the other.
type parser struct {
	row []string
	err error
}

func (p *parser) next() string {
	s := p.row[0]
	p.row = p.row[1:]
	return s
}

func (p *parser) time() time.Time {
	t, err := time.Parse(time.RFC3339, p.next())
	p.err = errors.Join(p.err, err)
	return t
}

func (p *parser) int() int64 {
	v, err := strconv.ParseInt(p.next(), 10, 64)
	p.err = errors.Join(p.err, err)
	return v
}

func (p *parser) float() float64 {
	s := p.next()
	if s == "" {
		return 0
	}
	v, err := strconv.ParseFloat(s, 64)
	p.err = errors.Join(p.err, err)
	return v
}

func (p *parser) answers() Answers {
	return Answers{int(p.int()), int(p.int()), unit.Milliseconds(unit.FromMs(p.float()))}
}

func (p *parser) port() Port {
	s := p.next()
	return Port{Known: s != "", Up: s == "1"}
}
