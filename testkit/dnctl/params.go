package dnctl

import (
	"strings"
)

// Flags of PIE, which are its seventh parameter.
const (
	pieECN = 1 << iota
	pieCapDrop
	pieOnOff
	pieDRE
	pieDerand
)

func unset() (par [10]int64) {
	for i := range par {
		par[i] = -1
	}
	return par
}

// parameters reads the parameters of an AQM or scheduler, up to the end of the
// command. An unknown word is reported on standard output and skipped.
func (s *statement) parameters(p *Params) {
	if strings.EqualFold(p.Name, "codel") || strings.EqualFold(p.Name, "fq_codel") {
		s.codel(p)
		return
	}
	s.pie(p)
}

// span reads a time.
func (s *statement) span(of string) int64 {
	if len(s.av) > 0 {
		if us := microseconds(s.av[0]); us >= 0 {
			s.av = s.av[1:]
			return us
		}
	}
	s.fail(exitData, "%s needs time\n", of)
	return 0
}

// number reads a number without a sign. If fixed is not 0 the number may have a
// fraction, and is multiplied by it.
func (s *statement) number(of string, fixed float64) int64 {
	if len(s.av) == 0 || strings.Trim(s.av[0], "0123456789.") != "" || strings.Count(s.av[0], ".") > 1 {
		s.fail(exitData, "%s needs number\n", of)
	}
	w := s.av[0]
	s.av = s.av[1:]
	if fixed != 0 {
		return int64(strtod(w) * fixed)
	}
	return int64(atoi(w))
}

func (s *statement) codel(p *Params) {
	queues := strings.EqualFold(p.Name, "fq_codel")
	p.Par[2] = 0
	if queues {
		p.Par[2] = 1
	}
	for len(s.av) > 0 {
		switch w := s.take(""); w {
		case "target":
			p.Par[0] = s.span(w)
		case "interval":
			p.Par[1] = s.span(w)
		case "ecn":
			p.Par[2] = 1
		case "noecn":
			p.Par[2] = 0
		case "quantum", "limit", "flows":
			if !queues {
				s.fail(exitData, "%s\n", map[string]string{"quantum": "quantum is not for codel", "limit": "limit is not for codel, use queue instead", "flows": "flows is not for codel"}[w])
			}
			p.Par[3+strings.Index("qlf", w[:1])] = s.number(w, 0)
		default:
			s.out.WriteString(w + " is Invalid parameter\n")
		}
	}
}

func (s *statement) pie(p *Params) {
	queues := strings.EqualFold(p.Name, "fq_pie")
	p.Par[6] = pieCapDrop | pieDerand | pieDRE
	if queues {
		p.Par[6] = pieCapDrop | pieDerand | pieECN
	}
	for len(s.av) > 0 {
		switch w := s.take(""); w {
		case "target":
			p.Par[0] = s.span(w)
		case "tupdate":
			p.Par[1] = s.span(w)
		case "max_burst":
			p.Par[2] = s.span(w)
		case "max_ecnth":
			p.Par[3] = s.number(w, pieScale)
		case "alpha":
			p.Par[4] = s.number(w, pieScale)
		case "beta":
			p.Par[5] = s.number(w, pieScale)
		case "ecn":
			p.Par[6] |= pieECN
		case "noecn":
			p.Par[6] &^= pieECN
		case "capdrop":
			p.Par[6] |= pieCapDrop
		case "nocapdrop":
			p.Par[6] &^= pieCapDrop
		case "onoff":
			p.Par[6] |= pieOnOff
		case "dre":
			p.Par[6] |= pieDRE
		case "ts":
			p.Par[6] &^= pieDRE
		case "derand":
			p.Par[6] |= pieDerand
		case "noderand":
			p.Par[6] &^= pieDerand
		case "quantum", "limit", "flows":
			if !queues {
				s.fail(exitData, "%s\n", map[string]string{"quantum": "quantum is not for pie", "limit": "limit is not for pie, use queue instead", "flows": "flows is not for pie"}[w])
			}
			p.Par[7+strings.Index("qlf", w[:1])] = s.number(w, 0)
		default:
			s.out.WriteString(w + " is invalid parameter\n")
		}
	}
}

// microseconds reads a time, in ms if it has no unit. It returns -1 for
// anything else.
func microseconds(word string) int64 {
	if len(word) > 15 {
		return -1
	}
	i, dots := 0, 0
	for ; i < len(word) && (digit(word[i:]) || word[i] == '.'); i++ {
		if word[i] == '.' {
			if dots++; dots > 1 {
				return -1
			}
		}
	}
	if i == 0 {
		return -1
	}
	number, unit := word[:i], strings.ToLower(word[i:])
	switch unit {
	case "us":
		return strtolBase(number, 10)
	case "ms", "":
		return int64(strtod(number) * 1000)
	case "s":
		return int64(strtod(number) * 1e6)
	}
	return -1
}
