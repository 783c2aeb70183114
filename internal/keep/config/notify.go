package config

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"
)

// A Notify is somebody who is told of incidents.
type Notify struct {
	To          string        // ntfy, webhook, mail or mqtt
	URL         string        // where
	SecretFile  string        // has a token, a password or the webhook's key; "": none
	SecretEnv   string        // the same in a variable of the environment
	MinSeverity string        // minor, major or severe
	QuietFrom   time.Duration // since midnight, local; equal to QuietTo: never
	QuietTo     time.Duration
	Most        int      // messages an hour
	From        string   // of mail
	Recipients  []string // of mail
	Language    string   // "": English
}

// Equal says whether both are told the same.
func (n Notify) Equal(m Notify) bool {
	ok := slices.Equal(n.Recipients, m.Recipients)
	n.Recipients, m.Recipients = nil, nil
	return ok && fmt.Sprint(n) == fmt.Sprint(m)
}

// Host is where it is, without what may be secret of its address.
func (n Notify) Host() string {
	u, err := url.Parse(n.URL)
	if err != nil {
		return ""
	}
	return u.Host
}

// Receivers are what can be told.
func Receivers() []string { return []string{"ntfy", "webhook", "mail", "mqtt"} }

// DefaultMost is how many messages an hour a receiver gets at most.
const DefaultMost = 6

type notifyTable struct {
	To          string   `toml:"to"`
	URL         string   `toml:"url"`
	SecretFile  string   `toml:"secret_file"`
	SecretEnv   string   `toml:"secret_env"`
	MinSeverity string   `toml:"min_severity"`
	Quiet       string   `toml:"quiet"`
	Most        int      `toml:"most"`
	From        string   `toml:"from"`
	Recipients  []string `toml:"recipients"`
	Language    string   `toml:"language"`
}

func notifyKeys() []string {
	return []string{"to", "url", "secret_file", "secret_env", "min_severity", "quiet", "most", "from", "recipients", "language"}
}

// notify reads a table [[notify]].
func (t notifyTable) notify(name string, at map[string]int) (n Notify, err error) {
	bad := func(key, format string, args ...any) error {
		line, ok := at[key]
		if !ok {
			line = at[""]
		}
		return &Error{name, line, key, fmt.Errorf(format, args...)}
	}
	n = Notify{To: t.To, URL: t.URL, SecretFile: t.SecretFile, SecretEnv: t.SecretEnv, MinSeverity: t.MinSeverity, Most: t.Most, From: t.From, Recipients: t.Recipients, Language: t.Language}
	schemes := map[string][]string{"ntfy": {"https", "http"}, "webhook": {"https", "http"}, "mail": {"smtp", "smtps"}, "mqtt": {"mqtt", "mqtts"}}[t.To]
	u, uerr := url.Parse(t.URL)
	switch {
	case schemes == nil:
		return n, bad("to", "%q: must be one of %s", t.To, strings.Join(Receivers(), ", "))
	case uerr != nil || !slices.Contains(schemes, u.Scheme) || u.Hostname() == "":
		return n, bad("url", "must begin with %s:// and name a host", strings.Join(schemes, ":// or "))
	case func() bool { _, has := u.User.Password(); return has }():
		return n, bad("url", "has a password; put it into a file that only the daemon can read, and name that with secret_file")
	case t.SecretFile != "" && !strings.HasPrefix(t.SecretFile, "/"):
		return n, bad("secret_file", "%q: must be the whole path of a file", t.SecretFile)
	case t.SecretFile != "" && t.SecretEnv != "":
		return n, bad("secret_env", "secret_file is there too; give one of them")
	case t.To == "webhook" && t.SecretFile == "" && t.SecretEnv == "":
		return n, bad("to", "a webhook needs secret_file or secret_env, whose key signs what is sent")
	case t.Most < 0 || t.Most > 1000:
		return n, bad("most", "%d: must be from 1 to 1000 messages an hour", t.Most)
	case t.Language != "" && t.Language != "en" && t.Language != "de":
		return n, bad("language", "%q: must be en or de", t.Language)
	}
	if n.Most == 0 {
		n.Most = DefaultMost
	}
	switch n.MinSeverity {
	case "":
		n.MinSeverity = "major"
	case "minor", "major", "severe":
	default:
		return n, bad("min_severity", "%q: must be minor, major or severe", t.MinSeverity)
	}
	if t.Quiet != "" {
		from, to, _ := strings.Cut(t.Quiet, "-")
		var errs [2]error
		n.QuietFrom, errs[0] = clockTime(from)
		n.QuietTo, errs[1] = clockTime(to)
		if err := errors.Join(errs[:]...); err != nil || n.QuietFrom == n.QuietTo {
			return n, bad("quiet", "%q: must be two times of day, as in 22:00-07:00", t.Quiet)
		}
	}
	if t.To != "mail" {
		for key, given := range map[string]bool{"from": t.From != "", "recipients": len(t.Recipients) > 0} {
			if given {
				return n, bad(key, "is for mail")
			}
		}
		return n, nil
	}
	if len(t.Recipients) == 0 {
		return n, bad("recipients", "mail needs them, as in recipients = [\"me@example.net\"]")
	}
	for _, a := range append([]string{t.From}, t.Recipients...) {
		if user, host, ok := strings.Cut(a, "@"); !ok || user == "" || host == "" || strings.ContainsFunc(a, func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune("<>,;:\"()[]\\", r) }) {
			return n, bad("recipients", "%q is not an address of mail; from needs one, and each of recipients", a)
		}
	}
	return n, nil
}

// clockTime reads a time of day.
func clockTime(s string) (time.Duration, error) {
	t, err := time.Parse("15:04", strings.TrimSpace(s))
	if err != nil {
		return 0, fmt.Errorf("%q is no time of day", s)
	}
	return sinceMidnight(t), nil
}
