package dnctl

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"unbloat/testkit/await"
)

// printed prints a message as the recorder did that stood in for the kernel.
func printed(m Message) string {
	switch m := m.(type) {
	case *Params:
		name := "aqmparams"
		if m.Scheduler {
			name = "schparams"
		}
		s := fmt.Sprintf("KERNEL %s nr=0 name=%s par=", name, m.Name)
		for _, p := range m.Par {
			s += fmt.Sprintf("%d ", p)
		}
		return s
	case *Sched:
		return fmt.Sprintf("KERNEL sched nr=%d name=%s flags=0x%x oid.subtype=0 buckets=%d", m.Number, m.Type, m.Flags, m.Buckets)
	case *Link:
		return fmt.Sprintf("KERNEL link nr=%d bw=%d bit/s delay=%d burst=%d", m.Number, m.Bandwidth, m.Delay, m.Burst)
	case *FlowSet:
		return fmt.Sprintf("KERNEL fs nr=%d flags=0x%x sched=%d qsize=%d par=%d,%d,%d lim? buckets=%d", m.Number, m.Flags, m.Sched, m.Size, m.Par[0], m.Par[1], m.Par[2], m.Buckets)
	}
	return fmt.Sprintf("%T", m)
}

// A said is the output and the exit code of a recorded program.
type said struct {
	Exit   int
	Stdout []string
	Stderr string
}

// runFile runs a program with a file of commands. The kernel only prints what
// it is told.
func runFile(argv []string, slots int, text string) said {
	m := &Machine{SlotLimit: slots, Told: func(x Message) string { return printed(x) + "\n" }}
	r := m.Run(append(argv, "/file"), func(string) (string, bool) { return text, true })
	return said{r.Exit, lines(r.Stdout), r.Stderr}
}

func lines(s string) []string {
	s = strings.TrimSuffix(s, "\n")
	if s == "" {
		return []string{}
	}
	return strings.Split(s, "\n")
}

// TestOPNsenseFilesVerdicts gives dnctl and ipfw files that OPNsense's own
// templates made, and compares with what the real programs answered.
func TestOPNsenseFilesVerdicts(t *testing.T) {
	type vector struct {
		Name  string
		Files map[string]string
		Dnctl said
		Ipfw  said `json:"ipfw -n"`
	}
	await.EachVerdict(t, "opnsense-render.jsonl", func(t *testing.T, _ int, v vector) {
		if d := cmp.Diff(v.Dnctl, runFile([]string{"dnctl", "-q"}, 0, v.Files["/usr/local/etc/dnctl.conf"])); d != "" {
			t.Errorf("%s: dnctl: -real +stand-in\n%s", v.Name, d)
		}
		if d := cmp.Diff(v.Ipfw, runFile([]string{"ipfw", "-n"}, 0, v.Files["/usr/local/etc/ipfw.rules"])); d != "" {
			t.Errorf("%s: ipfw: -real +stand-in\n%s", v.Name, d)
		}
	})
}

// TestPfSenseFilesVerdicts gives dnctl files that pfSense's shaper.inc made.
// The recorded program was built without setprogname(3), so its messages begin
// with its own name.
func TestPfSenseFilesVerdicts(t *testing.T) {
	type vector struct {
		Note     string
		Limiters *string `json:"rules.limiter"`
		Slots    int     `json:"max_qlimit,string"`
		Dnctl    *said
	}
	line := regexp.MustCompile(`(?m)^Line \d+: `)
	await.EachVerdict(t, "pfsense.jsonl", func(t *testing.T, _ int, v vector) {
		if v.Dnctl == nil {
			return
		}
		got := runFile([]string{"dnctl"}, v.Slots, *v.Limiters)
		got.Stderr = line.ReplaceAllString(got.Stderr, "dnctl: ")
		if d := cmp.Diff(*v.Dnctl, got); d != "" {
			t.Errorf("%s: -real +stand-in\n%s", v.Note, d)
		}
	})
}

// kept prints a command's messages and what the kernel stores of them, in the
// words of the recording.
func kept(m *Machine, told []Message) (out []string) {
	say := func(format string, args ...any) { out = append(out, "kernel: "+fmt.Sprintf(format, args...)) }
	aqm, sch := "", (*Params)(nil)
	for _, x := range told {
		p, is := x.(*Params)
		switch {
		case is && p.Scheduler:
			sch = p
		case is:
			aqm = fmt.Sprintf(" AQM %s %s", p.Name, strings.Trim(fmt.Sprint(p.Par[:7]), "[]"))
		}
	}
	for _, x := range told {
		switch x := x.(type) {
		case *Sched:
			s := m.scheds[x.Number]
			switch {
			case s == nil && x.Number < maxID:
				say("invalid scheduler type 0 %s", x.Type)
				return out
			case s == nil:
				return out
			case x.Type == "":
				say("sched %d type (as is, else WF2Q+)", x.Number)
				continue
			case x.Type == "fq_pie":
				say("sched %d type fq_pie params %s", x.Number, strings.Trim(fmt.Sprint(sch.Par), "[]"))
				continue
			}
			mask, clamped, ecn := "", "", "NoECN"
			if x.Flags&FlagMask != 0 {
				mask = fmt.Sprintf(" mask{dst 0x%x src 0x%x dport 0x%x sport 0x%x proto 0x%x}", s.mask.Dst, s.mask.Src, s.mask.DstPort, s.mask.SrcPort, s.mask.Proto)
			}
			for i := 3; i < 6; i++ {
				if sch.Par[i] > s.par[i] {
					clamped += fmt.Sprintf(" [CLAMPED %d]", sch.Par[i])
				}
			}
			if s.par[2]&1 != 0 {
				ecn = "ECN"
			}
			say("sched %d type %s%s%s target %dus interval %dus %s quantum %d limit %d flows %d", x.Number, s.kind, mask, clamped, s.par[0], s.par[1], ecn, s.par[3], s.par[4], s.par[5])
		case *Link:
			unlimited := ""
			if m.scheds[x.Number].link.Bandwidth == 0 {
				unlimited = " (unlimited)"
			}
			say("link %d bw %d bit/s%s delay %dms burst %d", x.Number, x.Bandwidth, unlimited, x.Delay, x.Burst)
		case *FlowSet:
			fs := m.flowsets[x.Number]
			switch {
			case fs == nil:
				say("missing sched for flowset %d", x.Number)
			case x.Number > 2*maxID:
				say("internal fs of pipe %d q %d sl.%s", x.Number-2*maxID, fs.Size, aqm)
			case x.Number > maxID:
				say("internal fs of sched %d q %d sl.%s", x.Number-maxID, fs.Size, aqm)
			default:
				text := fmt.Sprintf("queue %d sched %d weight %d lmax %d pri %d q %d sl.%s", x.Number, fs.Sched, x.Par[0], x.Par[1], x.Par[2], fs.Size, aqm)
				m.attachAs(fs, "wf2q+")
				if x.Par[0] != -1 && fs.Par[0] != x.Par[0] {
					text += fmt.Sprintf(" [CLAMPED weight %d by wf2q+]", fs.Par[0])
				}
				if m.scheds[fs.Sched] == nil {
					text += fmt.Sprintf(" [sched %d not (yet) configured]", fs.Sched)
				}
				say("%s", text)
			}
		}
	}
	return out
}

// attachAs attaches a flow set to a scheduler of this kind.
func (m *Machine) attachAs(fs *flowset, kind string) {
	(&Machine{scheds: map[int]*scheduler{fs.Sched: {kind: kind}}}).attach(fs)
}

// TestDnctlVerdicts runs single commands, each on an empty kernel. The messages
// of the recorded programs begin with ipfw's name.
func TestDnctlVerdicts(t *testing.T) {
	type vector struct {
		Command string
		Exit    int
		Output  []string
	}
	await.EachVerdict(t, "freebsd-dummynet.jsonl", func(t *testing.T, _ int, v vector) {
		argv := strings.Fields(v.Command)
		var told []Message
		(&Machine{Told: func(x Message) string { told = append(told, x); return "" }}).Run(argv, nil)
		m := &Machine{}
		r := m.Run(argv, nil)
		out := lines(r.Stdout)
		out = append(out, kept(m, told)...)
		out = append(out, lines(strings.ReplaceAll(r.Stderr, "dnctl: ", "ipfw: "))...)
		if len(v.Output) == 4 { // the recording has at most four lines
			out = out[:min(4, len(out))]
		}
		if d := cmp.Diff(v.Output, out); d != "" || r.Exit != v.Exit {
			t.Errorf("%s\nexit %d, want %d\n-real +stand-in:\n%s", v.Command, r.Exit, v.Exit, d)
		}
	})
}
