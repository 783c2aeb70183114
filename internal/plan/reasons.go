package plan

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"unbloat/internal/reason"
	"unbloat/unit"
)

// A Reason says why one field of the plan has its value. In JSON the value and
// the reason are given as English text, and the reason's code and figures beside
// it; a value that is more than a word of the router's has them in value_is.
type Reason struct {
	Field string // as in "up.rate"
	Value reason.Reason
	Why   reason.Reason
}

// reasonText are the members of a Reason's JSON besides its code and figures.
type reasonText struct {
	Field   string         `json:"field"`
	Value   string         `json:"value"`
	Why     string         `json:"why"`
	ValueIs *reason.Reason `json:"value_is,omitempty"`
}

// MarshalJSON writes the reason with its text in English.
func (r Reason) MarshalJSON() ([]byte, error) {
	english := reason.English()
	members := []reason.Arg{{Name: "field", Value: r.Field},
		{Name: "value", Value: r.Value.Text(english, reason.Terminal)}, {Name: "why", Value: r.Why.Text(english, reason.Terminal)}}
	if r.Value.Code != reason.AsWritten {
		members = append(members, reason.Arg{Name: "value_is", Value: r.Value})
	}
	return reason.Object(append(members, r.Why.Members()...))
}

// UnmarshalJSON reads what MarshalJSON wrote. Text without a code, as older
// programs wrote it, is kept as it is.
func (r *Reason) UnmarshalJSON(b []byte) error {
	var text reasonText
	if err := json.Unmarshal(b, &text); err != nil {
		return fmt.Errorf("read a reason of the plan: %w", err)
	}
	*r = Reason{Field: text.Field, Value: symbol(text.Value), Why: reason.Written(text.Why)}
	if text.ValueIs != nil {
		r.Value = *text.ValueIs
	}
	var why reason.Reason
	if err := json.Unmarshal(b, &why); err != nil {
		return fmt.Errorf("read the reason of %s: %w", text.Field, err)
	}
	if why.Code != "" {
		r.Why = reason.Reason{Code: why.Code, Causes: why.Causes}
		for _, a := range why.Args {
			if !slices.Contains([]string{"field", "value", "why", "value_is"}, a.Name) {
				r.Why.Args = append(r.Why.Args, a)
			}
		}
	}
	return nil
}

// planAlone is a plan without its methods.
type planAlone Plan

// planJSON is a plan as JSON has it: warnings are text, and their codes beside it.
type planJSON struct {
	*planAlone
	Warnings []string        `json:"warnings,omitempty"`
	Codes    []reason.Reason `json:"warning_reasons,omitempty"`
	Basis    *Basis          `json:"basis,omitempty"`
}

// MarshalJSON writes the plan; text in it is English.
func (p Plan) MarshalJSON() ([]byte, error) {
	return json.Marshal(planJSON{planAlone: (*planAlone)(&p), Warnings: reason.Texts(p.Warnings), Codes: p.Warnings, Basis: p.Basis})
}

// UnmarshalJSON reads a plan. Warnings without codes, as older programs wrote
// them, are kept as they are.
func (p *Plan) UnmarshalJSON(b []byte) error {
	from := planJSON{planAlone: (*planAlone)(p)}
	if err := json.Unmarshal(b, &from); err != nil {
		return err
	}
	p.Warnings, p.Basis = from.Codes, from.Basis
	if p.Warnings == nil {
		for _, text := range from.Warnings {
			p.Warnings = append(p.Warnings, reason.Written(text))
		}
	}
	return nil
}

// say makes a reason; args are names and values by turns. Rates become bit/s,
// times milliseconds, sizes bytes.
func say(code reason.Code, args ...any) reason.Reason {
	for i := 1; i < len(args); i += 2 {
		switch v := args[i].(type) {
		case unit.Rate:
			args[i] = float64(v)
		case time.Duration:
			args[i] = unit.Ms(v)
		case unit.Size:
			args[i] = float64(v)
		case int:
			args[i] = float64(v)
		case float64, string:
		default:
			args[i] = fmt.Sprint(v)
		}
	}
	return reason.Of(code, args...)
}

// symbol is a value that is the router's own word, the same in every language.
func symbol(s string) reason.Reason { return reason.Written(s) }

// word is a value that every language has its word for.
func word(s string) reason.Reason { return say(reason.WordValue, "word", s) }

// ms is a time as a value, count a number, inBytes a size as kernels take it.
func ms(d time.Duration) reason.Reason  { return say(reason.TimeValue, "time_ms", d) }
func count(n int) reason.Reason         { return say(reason.CountValue, "count", n) }
func inBytes(n unit.Size) reason.Reason { return say(reason.BytesValue, "bytes", n) }
