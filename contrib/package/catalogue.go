package main

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// catalogue makes of a catalogue of translations (gettext's .po) what LuCI reads on a
// router (.lmo): the translations, each padded to four bytes; then for each the hash
// of the original, 1, its offset and its length, ordered by hash; then the offset of
// that table. Numbers are big-endian.
func catalogue(po string) ([]byte, error) {
	messages, err := messagesOf(po)
	if err != nil {
		return nil, err
	}
	type entry struct{ key, offset, length uint32 }
	var out []byte
	var index []entry
	for _, m := range messages {
		if m.id == "" || m.text == "" || m.text == m.id {
			continue // the head, and what is not translated
		}
		index = append(index, entry{messageHash(m.id), uint32(len(out)), uint32(len(m.text))})
		out = append(out, m.text...)
		out = append(out, make([]byte, -len(out)&3)...)
	}
	table := uint32(len(out))
	slices.SortFunc(index, func(a, b entry) int { return cmp.Compare(a.key, b.key) })
	for i, e := range index {
		if i > 0 && e.key == index[i-1].key {
			return nil, errors.New("two messages have the same hash; change one")
		}
		for _, n := range []uint32{e.key, 1, e.offset, e.length} {
			out = binary.BigEndian.AppendUint32(out, n)
		}
	}
	return binary.BigEndian.AppendUint32(out, table), nil
}

// A message is a text and its translation.
type message struct{ id, text string }

// messagesOf reads a catalogue, as far as ours have it: msgid and msgstr.
func messagesOf(po string) ([]message, error) {
	var out []message
	var to *string
	n := 0
	for line := range strings.Lines(po) {
		n++
		line = strings.TrimSpace(line)
		word, rest, _ := strings.Cut(line, " ")
		switch {
		case line == "" || line[0] == '#':
			continue
		case word == "msgid":
			out = append(out, message{})
			to = &out[len(out)-1].id
		case word == "msgstr" && len(out) > 0:
			to = &out[len(out)-1].text
		case line[0] == '"' && to != nil:
			rest = line
		default:
			return nil, fmt.Errorf("line %d: %q is neither msgid nor msgstr", n, line)
		}
		text, err := strconv.Unquote(rest)
		if err != nil {
			return nil, fmt.Errorf("line %d: %q is not a text in quotes", n, rest)
		}
		*to += text
	}
	return out, nil
}

// messageHash is Hsieh's SuperFastHash of a text, begun with its length.
func messageHash(s string) uint32 {
	h := uint32(len(s))
	pair := func(i int) uint32 { return uint32(s[i]) | uint32(s[i+1])<<8 }
	i := 0
	for ; len(s)-i >= 4; i += 4 {
		h += pair(i)
		h = h<<16 ^ (pair(i+2)<<11 ^ h)
		h += h >> 11
	}
	// Single bytes have a sign there.
	switch len(s) - i {
	case 3:
		h += pair(i)
		h ^= h << 16
		h ^= uint32(int32(int8(s[i+2]))) << 18
		h += h >> 11
	case 2:
		h += pair(i)
		h ^= h << 11
		h += h >> 17
	case 1:
		h += uint32(int32(int8(s[i])))
		h ^= h << 10
		h += h >> 1
	}
	h ^= h << 3
	h += h >> 5
	h ^= h << 4
	h += h >> 17
	h ^= h << 25
	h += h >> 6
	return h
}
