package tc

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// textKey holds bare text in a decoded object. tc(8) prints JSON that a strict
// parser would misread: keys occur twice (the matches of a u32 filter, tbf's
// mpu), and kinds without JSON support print bare text between braces ({default
// 10 }). So objects are kept as ordered lists, and bare text is quoted under
// this key before decoding.
const textKey = "?text"

// maxDepth bounds the nesting that is accepted; tc(8) never goes beyond 5.
const maxDepth = 32

type member struct {
	key   string
	value any // string (scalars as text), []any, object or nil
}

type object []member

// get returns the first value under key.
func (o object) get(key string) (any, bool) {
	for _, m := range o {
		if m.key == key {
			return m.value, true
		}
	}
	return nil, false
}

// text returns the scalar under key as text, "" if there is none.
func (o object) text(key string) string {
	v, _ := o.get(key)
	s, _ := v.(string)
	return s
}

// child returns the object under key, nil if there is none.
func (o object) child(key string) object {
	v, _ := o.get(key)
	c, _ := v.(object)
	return c
}

// decodeList reads the array of objects that `tc -j` and `ip -j` print; no
// output at all is an empty list.
func decodeList(b []byte) ([]object, error) {
	if len(bytes.TrimSpace(b)) == 0 {
		return nil, nil
	}
	dec := json.NewDecoder(bytes.NewReader(quoteBare(b)))
	dec.UseNumber()
	var out []object
	for { // several arrays follow each other in batch mode
		v, err := decodeValue(dec, 0)
		if err == io.EOF {
			return out, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read tool's JSON: %w", err)
		}
		items, ok := v.([]any)
		if !ok {
			return nil, fmt.Errorf("read tool's JSON: not a list")
		}
		for _, it := range items {
			o, ok := it.(object)
			if !ok {
				return nil, fmt.Errorf("read tool's JSON: the list holds something other than objects")
			}
			if len(o) > 0 { // ip -j prints {} for what it filtered out
				out = append(out, o)
			}
		}
	}
}

func decodeValue(dec *json.Decoder, depth int) (any, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("nested too deeply")
	}
	tok, err := dec.Token()
	if err != nil {
		return nil, err
	}
	switch t := tok.(type) {
	case json.Delim:
		if t == '[' {
			return decodeArray(dec, depth)
		}
		return decodeObject(dec, depth)
	case json.Number:
		return t.String(), nil
	case bool:
		if t {
			return "true", nil
		}
		return "false", nil
	case nil:
		return "null", nil
	case string:
		return t, nil
	}
	return nil, fmt.Errorf("unexpected %v", tok)
}

func decodeArray(dec *json.Decoder, depth int) (any, error) {
	list := []any{}
	for dec.More() {
		v, err := decodeValue(dec, depth+1)
		if err != nil {
			return nil, unexpectedEnd(err)
		}
		list = append(list, v)
	}
	_, err := dec.Token()
	return list, unexpectedEnd(err)
}

func decodeObject(dec *json.Decoder, depth int) (any, error) {
	var o object
	for dec.More() {
		k, err := dec.Token()
		if err != nil {
			return nil, unexpectedEnd(err)
		}
		v, err := decodeValue(dec, depth+1)
		if err != nil {
			return nil, unexpectedEnd(err)
		}
		o = append(o, member{k.(string), v})
	}
	_, err := dec.Token()
	return o, unexpectedEnd(err)
}

// unexpectedEnd keeps an end inside a value from passing for the end of the output.
func unexpectedEnd(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// quoteBare rewrites {bare text } to {"?text":"bare text"}; everything else stays.
func quoteBare(b []byte) []byte {
	var out bytes.Buffer
	inString := false
	for i := 0; i < len(b); i++ {
		c := b[i]
		out.WriteByte(c)
		switch {
		case inString && c == '\\' && i+1 < len(b):
			i++
			out.WriteByte(b[i])
		case c == '"':
			inString = !inString
		case c == '{' && !inString:
			end := bytes.IndexByte(b[i:], '}')
			if end < 0 {
				continue
			}
			body := strings.TrimSpace(string(b[i+1 : i+end]))
			if body == "" || body[0] == '"' {
				continue
			}
			quoted, err := json.Marshal(body)
			if err != nil {
				continue
			}
			fmt.Fprintf(&out, "%q:%s", textKey, quoted)
			i += end - 1
		}
	}
	return out.Bytes()
}
