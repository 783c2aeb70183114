package opnsensefake

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A pair is one entry of a PHP array, whose entries keep their order.
type pair struct {
	key   string
	value any
}

// An object is a PHP array with string keys. An empty one is written as [],
// since PHP cannot distinguish it from a list.
type object []pair

func (o object) get(key string) (any, bool) {
	for _, p := range o {
		if p.key == key {
			return p.value, true
		}
	}
	return nil, false
}

// set changes an entry in place, or appends it.
func (o *object) set(key string, value any) {
	for i, p := range *o {
		if p.key == key {
			(*o)[i].value = value
			return
		}
	}
	*o = append(*o, pair{key, value})
}

// A list is a PHP array without string keys.
type list []any

// decode is json_decode($body, true): nil for invalid JSON.
func decode(body []byte) any {
	if !utf8.Valid(body) || loneSurrogate(body) {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	v, err := decodeValue(d)
	if err != nil || d.More() {
		return nil
	}
	if _, err := d.Token(); err == nil { // more text follows
		return nil
	}
	return v
}

// loneSurrogate reports whether a \u escape is only half of a surrogate pair.
// PHP refuses that; Go replaces it.
func loneSurrogate(body []byte) bool {
	for i := 0; i+1 < len(body); i++ {
		if body[i] != '\\' {
			continue
		}
		i++
		if body[i] != 'u' {
			continue
		}
		half := func(at int) uint64 {
			if at < 0 || at+6 > len(body) || body[at] != '\\' || body[at+1] != 'u' {
				return 0
			}
			n, _ := strconv.ParseUint(string(body[at+2:at+6]), 16, 16)
			return n
		}
		switch n := half(i - 1); {
		case n >= 0xdc00 && n < 0xe000:
			return true
		case n >= 0xd800 && n < 0xdc00:
			if low := half(i + 5); low < 0xdc00 || low >= 0xe000 {
				return true
			}
			i += 10
		}
	}
	return false
}

func decodeValue(d *json.Decoder) (any, error) {
	t, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch t {
	case json.Delim('{'):
		o := object{}
		for d.More() {
			key, err := d.Token()
			if err != nil {
				return nil, err
			}
			v, err := decodeValue(d)
			if err != nil {
				return nil, err
			}
			o.set(key.(string), v)
		}
		_, err := d.Token()
		return o, err
	case json.Delim('['):
		l := list{}
		for d.More() {
			v, err := decodeValue(d)
			if err != nil {
				return nil, err
			}
			l = append(l, v)
		}
		_, err := d.Token()
		return l, err
	}
	return t, nil
}

// text is (string)$v of a value that is not an array.
func text(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case bool:
		if v {
			return "1"
		}
	case json.Number:
		if n, err := strconv.ParseInt(v.String(), 10, 64); err == nil {
			return strconv.FormatInt(n, 10)
		}
		f, _ := v.Float64()
		return floatText(f)
	}
	return ""
}

// encode is json_encode($v).
func encode(v any, slashes bool) string {
	var b strings.Builder
	encodeInto(&b, v, slashes)
	return b.String()
}

func encodeInto(b *strings.Builder, v any, slashes bool) {
	switch v := v.(type) {
	case object:
		if len(v) == 0 {
			b.WriteString("[]")
			return
		}
		b.WriteByte('{')
		for i, p := range v {
			if i > 0 {
				b.WriteByte(',')
			}
			quote(b, p.key, slashes)
			b.WriteByte(':')
			encodeInto(b, p.value, slashes)
		}
		b.WriteByte('}')
	case list:
		b.WriteByte('[')
		for i, x := range v {
			if i > 0 {
				b.WriteByte(',')
			}
			encodeInto(b, x, slashes)
		}
		b.WriteByte(']')
	case string:
		quote(b, v, slashes)
	case nil:
		b.WriteString("null")
	case int, int64, bool:
		fmt.Fprint(b, v)
	default:
		panic(fmt.Sprintf("a %T in an answer", v)) // we only make the types above
	}
}

// quote writes a string as json_encode() does: ASCII only, and with slashes
// escaped unless slashes is set.
func quote(b *strings.Builder, s string, slashes bool) {
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '/' && !slashes:
			b.WriteString(`\/`)
		case r == '\b':
			b.WriteString(`\b`)
		case r == '\f':
			b.WriteString(`\f`)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\r':
			b.WriteString(`\r`)
		case r == '\t':
			b.WriteString(`\t`)
		case r >= 0x10000:
			r -= 0x10000
			fmt.Fprintf(b, `\u%04x\u%04x`, 0xd800+r>>10, 0xdc00+r&0x3ff)
		case r < ' ' || r > '~' && r != 0x7f:
			fmt.Fprintf(b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
}
