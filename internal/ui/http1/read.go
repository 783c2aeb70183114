package http1

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strconv"
	"strings"
)

// Why a request is refused: its status.
const (
	badRequest  = 400
	tooLarge    = 413
	headTooLong = 431
	noEncoding  = 501 // also: no such method
	noVersion   = 505
)

// read reads a request. refused is the status of one that cannot be taken; both are
// zero if the connection is of no use any more.
func (c *conn) read() (r *Request, refused int) {
	left := c.s.Limits.Head
	line, refused := c.line(&left)
	if line == nil {
		return nil, refused
	}
	r = &Request{Header: map[string]string{}, From: c.from, At: c.at}
	method, rest, _ := bytes.Cut(line, []byte(" "))
	target, version, ok := bytes.Cut(rest, []byte(" "))
	switch {
	case !ok || len(target) == 0 || target[0] != '/' || !printable(target):
		return nil, badRequest
	case string(version) != "HTTP/1.1":
		return nil, noVersion
	}
	switch r.Method = string(method); r.Method {
	case "GET", "HEAD", "POST":
	default:
		return nil, noEncoding
	}
	r.Path, r.Query, _ = strings.Cut(string(target), "?")
	if refused = c.headers(r, &left); refused != 0 {
		return nil, refused
	}
	return c.body(r)
}

// line reads a line that ends in CR LF; nil if there is none.
func (c *conn) line(left *int) ([]byte, int) {
	var out []byte
	for {
		part, err := c.in.ReadSlice('\n')
		if *left -= len(part); *left < 0 {
			return nil, headTooLong
		}
		out = append(out, part...)
		switch {
		case err == nil:
			n := len(out)
			if n < 2 || out[n-2] != '\r' {
				return nil, badRequest
			}
			return out[: n-2 : n-2], 0
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, 0
		}
	}
}

// headers reads the header. A field that comes twice is refused: no field that a
// browser sends to us does, and two that differ would be read differently by others.
func (c *conn) headers(r *Request, left *int) (refused int) {
	for {
		line, refused := c.line(left)
		switch {
		case line == nil && refused == 0:
			return badRequest
		case refused != 0:
			return refused
		case len(line) == 0:
			if r.Header["host"] == "" {
				return badRequest
			}
			return 0
		}
		name, value, ok := bytes.Cut(line, []byte(":"))
		if !ok || !token(name) {
			return badRequest
		}
		value = bytes.Trim(value, " \t")
		if !text(value) {
			return badRequest
		}
		key := strings.ToLower(string(name))
		if _, twice := r.Header[key]; twice {
			return badRequest
		}
		r.Header[key] = string(value)
	}
}

// body reads the body.
func (c *conn) body(r *Request) (*Request, int) {
	if _, has := r.Header["transfer-encoding"]; has {
		return nil, noEncoding
	}
	length, has := r.Header["content-length"]
	if !has {
		return r, 0
	}
	n, err := strconv.ParseUint(length, 10, 63)
	if err != nil || length[0] == '+' {
		return nil, badRequest
	}
	if n > uint64(c.s.Limits.Body) {
		return nil, tooLarge
	}
	if strings.EqualFold(r.Header["expect"], "100-continue") {
		if _, err := io.WriteString(c.Conn, "HTTP/1.1 100 Continue\r\n\r\n"); err != nil {
			return nil, 0
		}
	}
	r.Body = make([]byte, n)
	if _, err := io.ReadFull(c.in, r.Body); err != nil {
		return nil, 0
	}
	return r, 0
}

// token reports whether a text is a token (RFC 9110 §5.6.2).
func token(b []byte) bool {
	for _, x := range b {
		switch {
		case x >= 'a' && x <= 'z', x >= 'A' && x <= 'Z', x >= '0' && x <= '9':
		case strings.IndexByte("!#$%&'*+-.^_`|~", x) >= 0:
		default:
			return false
		}
	}
	return len(b) > 0
}

// text reports whether a field's value has no control character.
func text(b []byte) bool {
	for _, x := range b {
		if x < ' ' && x != '\t' || x == 0x7f {
			return false
		}
	}
	return true
}

// printable reports whether a target has only visible ASCII.
func printable(b []byte) bool {
	for _, x := range b {
		if x <= ' ' || x >= 0x7f {
			return false
		}
	}
	return true
}
