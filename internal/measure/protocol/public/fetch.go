package public

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"unbloat/guard"
)

// Prefix begins a --server value that names a list.
const Prefix = "list:"

// fetchPatience is the time limit for downloading a list.
const fetchPatience = 15 * time.Second

// Fetch downloads the list of a --server value such as
// list:https://test.example.net/servers.json#KEY, and checks it with the public
// key after the #.
func Fetch(ctx context.Context, value string, now time.Time) (List, error) {
	u, err := url.Parse(strings.TrimPrefix(value, Prefix))
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.Fragment == "" {
		return List{}, fmt.Errorf("%w: write it like %shttps://HOST/servers.json#KEY, where KEY is the public key of whoever signs the list", ErrMalformed, Prefix)
	}
	key, err := ParseKey(u.Fragment)
	if err != nil {
		return List{}, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	u.Fragment = ""
	text, _, err := guard.Limit{Size: MaxText, Time: fetchPatience}.Take(ctx, func(ctx context.Context, out, _ io.Writer) error {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
		if err != nil {
			return err
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("%s answered %s", u, resp.Status)
		}
		_, err = io.Copy(out, resp.Body)
		return err
	})
	if err != nil {
		return List{}, fmt.Errorf("fetch the list of servers: %w", err)
	}
	return OpenList(text, key, now)
}
