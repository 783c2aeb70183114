//go:build !router

package tell

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/smtp"
	"net/url"
	"strings"
	"time"

	"unbloat/internal/keep/config"
	"unbloat/internal/keep/incident"
)

// SignatureHeader has the HMAC-SHA-256 of a webhook's body, with its secret as the key.
const SignatureHeader = "X-Unbloat-Signature"

// Send sends a message by ntfy, a webhook or mail.
func Send(ctx context.Context, to config.Notify, secret string, m Message) error {
	switch to.To {
	case "ntfy":
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, to.URL, strings.NewReader(m.Text))
		if err != nil {
			return errors.New("its url is none")
		}
		r.Header.Set("Title", mime.QEncoding.Encode("utf-8", m.Title))
		r.Header.Set("Priority", map[incident.Severity]string{incident.Minor: "low", incident.Major: "default", incident.Severe: "high"}[m.Severity])
		r.Header.Set("Tags", map[bool]string{false: "warning", true: "white_check_mark"}[m.Over])
		if secret != "" {
			r.Header.Set("Authorization", "Bearer "+secret)
		}
		return post(r)
	case "webhook":
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, to.URL, bytes.NewReader([]byte(m.Body)))
		if err != nil {
			return errors.New("its url is none")
		}
		mac := hmac.New(sha256.New, []byte(secret))
		mac.Write([]byte(m.Body))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set(SignatureHeader, "sha256="+hex.EncodeToString(mac.Sum(nil)))
		return post(r)
	}
	return sendMail(ctx, to, secret, m)
}

// post sends a request. What is secret of it goes nowhere else: redirects are refused.
func post(r *http.Request) error {
	r.Header.Set("User-Agent", "unbloat")
	c := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	defer c.CloseIdleConnections()
	a, err := c.Do(r)
	if err != nil {
		return err
	}
	defer a.Body.Close()
	const most = 64 << 10
	_, _ = io.Copy(io.Discard, io.LimitReader(a.Body, most))
	if a.StatusCode/100 != 2 {
		return fmt.Errorf("it answered %d", a.StatusCode)
	}
	return nil
}

// sendMail sends by SMTP: over TLS from the begin (smtps), or after STARTTLS, without which
// no password is sent.
func sendMail(ctx context.Context, to config.Notify, secret string, m Message) error {
	u, err := url.Parse(to.URL)
	if err != nil {
		return errors.New("its url is none")
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"smtp": "587", "smtps": "465"}[u.Scheme]
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort(u.Hostname(), port))
	if err != nil {
		return err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	trust := &tls.Config{ServerName: u.Hostname(), MinVersion: tls.VersionTLS12}
	if u.Scheme == "smtps" {
		conn = tls.Client(conn, trust)
	}
	c, err := smtp.NewClient(conn, u.Hostname())
	if err != nil {
		return err
	}
	defer c.Close()
	if can, _ := c.Extension("STARTTLS"); can && u.Scheme == "smtp" {
		if err := c.StartTLS(trust); err != nil {
			return err
		}
	}
	if secret != "" {
		if err := c.Auth(smtp.PlainAuth("", u.User.Username(), secret, u.Hostname())); err != nil { // refuses to send it in the clear
			return err
		}
	}
	if err := c.Mail(to.From); err != nil {
		return err
	}
	for _, a := range to.Recipients {
		if err := c.Rcpt(a); err != nil {
			return err
		}
	}
	w, err := c.Data()
	if err != nil {
		return err
	}
	text := fmt.Sprintf("From: %s\r\nTo: %s\r\nDate: %s\r\nSubject: %s\r\nMIME-Version: 1.0\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Transfer-Encoding: 8bit\r\nAuto-Submitted: auto-generated\r\n\r\n%s\r\n",
		to.From, strings.Join(to.Recipients, ", "), m.Made.Format(time.RFC1123Z), mime.QEncoding.Encode("utf-8", m.Title), strings.ReplaceAll(m.Text, "\n", "\r\n"))
	if _, err := io.WriteString(w, text); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	return c.Quit()
}
