package config_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"unbloat/internal/keep/config"
)

// Receivers are read, and what can't be is told with its key; a password in an address is
// refused, and not repeated.
func TestNotify(t *testing.T) {
	const wan = "[[wan]]\ninterface = \"eth0\"\ndown = \"50 Mbit/s\"\n"
	c, err := config.Parse("F", []byte(wan+"[[notify]]\nto = \"ntfy\"\nurl = \"https://ntfy.example/topic\"\nquiet = \"22:00-07:00\"\n"))
	if err != nil || len(c.Notify) != 1 || c.Notify[0].MinSeverity != "major" || c.Notify[0].Most != config.DefaultMost || c.Notify[0].QuietFrom != 22*time.Hour || c.Notify[0].Host() != "ntfy.example" {
		t.Fatalf("%+v, %v", c.Notify, err)
	}
	for text, key := range map[string]string{
		"to = \"pager\"\nurl = \"https://x.example\"":                                                      "to",
		"to = \"ntfy\"\nurl = \"ntfy.example/topic\"":                                                      "url",
		"to = \"mail\"\nurl = \"smtp://me:pa55@x.example\"":                                                "url",
		"to = \"webhook\"\nurl = \"https://x.example\"":                                                    "to",
		"to = \"ntfy\"\nurl = \"https://x.example\"\nsecret_file = \"token\"":                              "secret_file",
		"to = \"ntfy\"\nurl = \"https://x.example\"\nsecret_file = \"/t\"\nsecret_env = \"T\"":             "secret_env",
		"to = \"ntfy\"\nurl = \"https://x.example\"\nmin_severity = \"bad\"":                               "min_severity",
		"to = \"ntfy\"\nurl = \"https://x.example\"\nquiet = \"at night\"":                                 "quiet",
		"to = \"ntfy\"\nurl = \"https://x.example\"\nmost = -1":                                            "most",
		"to = \"ntfy\"\nurl = \"https://x.example\"\nfrom = \"a@b.example\"":                               "from",
		"to = \"ntfy\"\nurl = \"https://x.example\"\nlanguage = \"fr\"":                                    "language",
		"to = \"mail\"\nurl = \"smtp://x.example\"\nfrom = \"a@b.example\"":                                "recipients",
		"to = \"mail\"\nurl = \"smtp://x.example\"\nfrom = \"a@b.example\"\nrecipients = [\"a@b\\r\\nX\"]": "recipients",
	} {
		_, err := config.Parse("F", []byte(wan+"[[notify]]\n"+text+"\n"))
		var bad *config.Error
		if !errors.As(err, &bad) || bad.Key != key || bad.Line < 4 || strings.Contains(err.Error(), "pa55") {
			t.Errorf("%s\n%v, want about %s", text, err, key)
		}
	}
}
