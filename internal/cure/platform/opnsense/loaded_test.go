package opnsense_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"unbloat/internal/cure/lang/dummynet"
	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform/opnsense"
	"unbloat/testkit/opnsensefake"
)

// What the simulator runs for a plan is what OPNsense's templates make of it, word by
// word, as the stand-in has them.
func TestLoaded(t *testing.T) {
	for name, use := range map[string]string{"classes": plan.ClassesOn, "one queue": ""} {
		p, err := plan.Make(plan.Line{}, opnsense.Language().Assume("", ""),
			plan.Preferences{Down: plan.RatePreference{Rate: 24e6}, Up: plan.RatePreference{Rate: 4.2e6}, Classes: plan.ClassPreferences{Use: use}})
		if err != nil {
			t.Fatal(err)
		}
		it, _, err := dummynet.RenderItems(p)
		if err != nil {
			t.Fatal(err)
		}
		r := opnsensefake.New()
		post := func(path, key string, item any) {
			t.Helper()
			body, err := json.Marshal(map[string]any{key: item})
			if err != nil {
				t.Fatal(err)
			}
			out, _, _ := opnsensefake.API{Router: r}.Run(context.Background(), []string{"POST", "/api/trafficshaper/settings/" + path}, body)
			if !strings.Contains(string(out), `"saved"`) {
				t.Fatalf("%s: %s", path, out)
			}
		}
		for _, x := range it.Pipes {
			post("setPipe/"+x.UUID, "pipe", x)
		}
		for _, x := range it.Queues {
			post("setQueue/"+x.UUID, "queue", x)
		}
		for _, x := range it.Rules {
			post("setRule/"+x.UUID, "rule", x)
		}
		// Both in the order of the words that say something; its comments go on with a description.
		lines := func(text string) (out []string) {
			for line := range strings.Lines(text) {
				w := strings.Fields(line)
				if len(w) > 0 && (w[0] == "dnctl" || w[0] == "ipfw") {
					w = w[1:]
				}
				if at := slices.Index(w, "//"); at >= 0 {
					w = w[:at+2]
				}
				if len(w) > 2 && (w[0] == "pipe" || w[0] == "queue" || w[0] == "add" && w[2] == "queue") {
					out = append(out, strings.Join(w, " "))
				}
			}
			slices.Sort(out)
			return out
		}
		files := r.Files()
		want := lines(files["/usr/local/etc/dnctl.conf"] + files["/usr/local/etc/ipfw.rules"])
		got, err := opnsense.Driver().Simulated.Commands(p)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(lines(got), want) || len(want) < 6 {
			t.Errorf("%s:\n%s\nwant\n%s", name, strings.Join(lines(got), "\n"), strings.Join(want, "\n"))
		}
	}
}
