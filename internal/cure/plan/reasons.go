package plan

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"unbloat/reason"
	"unbloat/unit"
)

// A Reason says why one field of the plan has its value. JSON has the value and the
// reason as English text, and the reason's code and figures. If the value has a
// code too, it is in value_is.
type Reason struct {
	Field string // as in "up.rate"
	Value reason.Reason
	Why   reason.Reason
}

// reasonText are the members of a Reason's JSON other than its code and figures.
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

// UnmarshalJSON reads what MarshalJSON wrote. Older programs wrote text without a
// code; that text is kept.
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

// planJSON is the JSON of a plan. Warnings are text; their codes are a separate list.
type planJSON struct {
	*planAlone
	Warnings []string        `json:"warnings,omitempty"`
	Codes    []reason.Reason `json:"warning_reasons,omitempty"`
	Basis    *Basis          `json:"basis,omitempty"`
}

// MarshalJSON writes the plan, with texts in English.
func (p Plan) MarshalJSON() ([]byte, error) {
	return json.Marshal(planJSON{planAlone: (*planAlone)(&p), Warnings: reason.Texts(p.Warnings), Codes: p.Warnings, Basis: p.Basis})
}

// UnmarshalJSON reads a plan. A member that is there twice is a *FieldError. Older
// programs wrote warnings without codes; their text is kept.
func (p *Plan) UnmarshalJSON(b []byte) error {
	if name, err := twice(json.NewDecoder(bytes.NewReader(b))); err != nil || name != "" {
		return errors.Join(err, fieldError(name, "is there twice; leave one"))
	}
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
	p.judged()
	return nil
}

// say makes a reason from a code and pairs of names and values. It converts rates
// to bit/s, times to milliseconds and sizes to bytes.
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

// symbol is a value that is a keyword of the router, the same in every language.
func symbol(s string) reason.Reason { return reason.Written(s) }

// word is a value that languages translate.
func word(s string) reason.Reason { return say(reason.WordValue, "word", s) }

// ms, count and inBytes are values: a time, a number, and a size in bytes.
func ms(d time.Duration) reason.Reason  { return say(reason.TimeValue, "time_ms", d) }
func count(n int) reason.Reason         { return say(reason.CountValue, "count", n) }
func inBytes(n unit.Size) reason.Reason { return say(reason.BytesValue, "bytes", n) }
