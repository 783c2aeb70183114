// Package reason has reasons as data: a code, its subject, and figures with their
// units. Programs decide by the code. The text is made where it is shown, in the
// reader's language. The package is pure.
package reason

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"
)

// A Code names a reason, as in "load_not_full". Codes are part of the JSON.
type Code string

// Why a measurement is invalid. The English text of a code shows which figures it
// has. Their names end in their unit; a share is within 0…1.
const (
	NoIdlePhase     Code = "no_idle_phase"
	CPUBusy         Code = "cpu_busy"          // of this machine
	ServerCPUBusy   Code = "server_cpu_busy"   // of the server
	ProbesLate      Code = "probes_late"       // by this machine's p99
	TooFewProbes    Code = "too_few_probes"    // were answered
	ClockSet        Code = "clock_set"         // meanwhile
	PathChanged     Code = "path_changed"      // meanwhile
	OthersTraffic   Code = "others_traffic"    // on the line
	RadioRoamed     Code = "radio_roamed"      // to another access point
	RadioFull       Code = "radio_full"        // by the load itself
	ChannelBusy     Code = "channel_busy"      // by whoever sends there
	RadioLossy      Code = "radio_lossy"       // after all retries
	FlowsBroken     Code = "flows_broken"      // before the phase's end
	IdleUnsteady    Code = "idle_unsteady"     // round trip
	LoadNotFull     Code = "load_not_full"     // its Causes say why, by direction
	NothingArrived  Code = "nothing_arrived"   // in a direction
	RateRising      Code = "rate_rising"       // at the end still
	SendersIdle     Code = "senders_idle"      // for a part of the time
	SendersHeldBack Code = "senders_held_back" // by an end's buffers
	TooFewRuns      Code = "too_few_runs"      // were valid
	PageHidden      Code = "page_hidden"       // behind another window
	ClockCoarse     Code = "clock_coarse"      // of a browser
	PageResent      Code = "page_resent"       // probes over TCP waited for lost packets
	PageProbesLate  Code = "page_probes_late"  // by a browser's p95
)

// A Reason is a code with its figures and causes.
type Reason struct {
	Code   Code
	Phase  string // phase of the measurement; "": all of it
	Args   []Arg
	Causes []Reason // the reasons behind it
}

// An Arg is a named figure or word: a float64, an int or a string.
type Arg struct {
	Name  string
	Value any
}

// Of makes a reason from a code and pairs of names and values.
func Of(code Code, args ...any) Reason {
	if len(args)%2 != 0 {
		panic("reason: a name without a value")
	}
	r := Reason{Code: code}
	for i := 0; i < len(args); i += 2 {
		r.Args = append(r.Args, Arg{args[i].(string), args[i+1]})
	}
	return r
}

// Written returns a reason whose text is given, such as the output of a program.
func Written(text string) Reason { return Of(AsWritten, "text", text) }

// IsZero reports whether there is no reason.
func (r Reason) IsZero() bool { return r.Code == "" }

// With returns the reason with the reasons behind it.
func (r Reason) With(causes ...Reason) Reason {
	r.Causes = causes
	return r
}

// String returns the text in English, as a terminal shows it.
func (r Reason) String() string { return r.Text(English(), Terminal) }

// In returns the reason with its phase set.
func (r Reason) In(phase string) Reason {
	r.Phase = phase
	return r
}

// arg returns a named value.
func (r Reason) arg(name string) (any, bool) {
	for _, a := range r.Args {
		if a.Name == name {
			return a.Value, true
		}
	}
	return nil, false
}

// MarshalJSON writes the code, the phase, the figures and the text in English as
// members of one object.
func (r Reason) MarshalJSON() ([]byte, error) {
	return Object(append(r.Members(), Arg{"text", r.Text(English(), Terminal)}))
}

// Members returns the code, the phase, the figures and the causes as members of a
// JSON object, which may have others too.
func (r Reason) Members() []Arg {
	out := []Arg{{"code", r.Code}}
	if r.Phase != "" {
		out = append(out, Arg{"phase", r.Phase})
	}
	out = append(out, r.Args...)
	if len(r.Causes) > 0 {
		out = append(out, Arg{"causes", r.Causes})
	}
	return out
}

// Object writes a JSON object with its members in the given order.
func Object(members []Arg) ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, m := range members {
		text, err := json.Marshal(m.Value)
		if err != nil {
			return nil, fmt.Errorf("write %s: %w", m.Name, err)
		}
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Quote(m.Name) + ":")
		b.Write(text)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// Equal reports whether two reasons have the same code, figures and causes.
func (r Reason) Equal(other Reason) bool { return reflect.DeepEqual(r, other) }

// UnmarshalJSON reads what MarshalJSON wrote, but not the text, which is made again
// from the code. Figures are read as float64.
func (r *Reason) UnmarshalJSON(b []byte) error {
	d := json.NewDecoder(bytes.NewReader(b))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return fmt.Errorf("read a reason: it is not an object: %.40s", b)
	}
	*r = Reason{}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return fmt.Errorf("read a reason: %w", err)
		}
		name, _ := t.(string)
		switch name {
		case "code":
			err = d.Decode(&r.Code)
		case "phase":
			err = d.Decode(&r.Phase)
		case "causes":
			err = d.Decode(&r.Causes)
		default:
			var v any
			if err = d.Decode(&v); name != "text" {
				r.Args = append(r.Args, Arg{name, v})
			}
		}
		if err != nil {
			return fmt.Errorf("read a reason: %s: %w", name, err)
		}
	}
	return nil
}

// Text returns the reason as a sentence without a full stop, after its phase.
func (r Reason) Text(l *Language, where Surface) string {
	text := r.words(l, where)
	if r.Phase != "" {
		text = l.Name(r.Phase) + ": " + text
	}
	return text
}

// words fills in the language's template of the code.
func (r Reason) words(l *Language, where Surface) string {
	template, ok := l.Words[r.Code]
	if !ok {
		return string(r.Code)
	}
	var b strings.Builder
	for {
		before, rest, found := strings.Cut(template, "{")
		b.WriteString(before)
		if !found {
			return b.String()
		}
		var field string
		field, template, _ = strings.Cut(rest, "}")
		name, verb, _ := strings.Cut(field, ":")
		switch {
		case name == "causes":
			var causes []string
			for _, c := range r.Causes {
				causes = append(causes, c.words(l, where))
			}
			b.WriteString(strings.Join(causes, "; "))
		case verb == "cause":
			if i, err := strconv.Atoi(name); err == nil && i >= 1 && i <= len(r.Causes) {
				b.WriteString(r.Causes[i-1].words(l, where))
			}
		case verb == "flag":
			if where == Terminal {
				b.WriteString(" (" + name + ")")
			}
		default:
			v, _ := r.arg(name)
			b.WriteString(l.format(v, verb))
		}
	}
}

// Texts returns the texts of several reasons in English, as a terminal shows them.
func Texts(rs []Reason) []string { return TextsIn(rs, English(), Terminal) }

// TextsIn returns the texts of several reasons in a language.
func TextsIn(rs []Reason, l *Language, where Surface) []string {
	out := make([]string, len(rs))
	for i, r := range rs {
		out[i] = r.Text(l, where)
	}
	return out
}
