package remote

import (
	"context"
	"errors"
	"testing"
)

// listing is a router of root's whose ls(1) prints this.
type listing string

func (l listing) Run(_ context.Context, argv []string, _ []byte) (stdout, stderr []byte, err error) {
	if argv[0] == "id" {
		return []byte("0\n"), nil, nil
	}
	return []byte(l), []byte("ls: some are not there"), errors.New("exit status 1")
}

// TestWatchdogsPlace: a small Linux system may have /run alone. Where /var/run is there it is
// that or none.
func TestWatchdogsPlace(t *testing.T) {
	const top = "drwxr-xr-x 13 0 0 512 Oct 12 18:02 /\ndrwxr-xr-x 24 0 0 512 Oct 12 18:04 /var\n"
	for says, want := range map[string]string{
		top + "drwxr-xr-x 4 0 0 512 Nov 27 03:01 /var/run\ndrwxr-xr-x 4 0 0 512 Nov 27 03:01 /run\n": "/var/run/unbloat-watchdog-",
		top + "drwxr-xr-x 4 0 0 512 Nov 27 03:01 /run\n":                                             "/run/unbloat-watchdog-",
		top + "drwxrwxrwx 4 0 0 512 Nov 27 03:01 /var/run\ndrwxr-xr-x 4 0 0 512 Nov 27 03:01 /run\n": "",
		top: "",
	} {
		got, err := (&Watchdog{Runner: listing(says)}).prefix(t.Context())
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%s: %q, %v; want %q", says, got, err, want)
		}
	}
}
