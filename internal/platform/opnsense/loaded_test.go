package opnsense_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"unbloat/internal/lang/dummynet"
	"unbloat/internal/plan"
	"unbloat/internal/platform/opnsense"
	opnsensefake "unbloat/internal/platform/opnsense/fake"
)

// What the simulator runs for a plan is what OPNsense's templates make of it, word by
// word, as the stand-in has them; and the rules that look flows up are found missing
// there, and added once.
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
		if use == "" {
			continue
		}
		var list strings.Builder
		for line := range strings.Lines(files["/usr/local/etc/ipfw.rules"]) {
			if rule, ok := strings.CutPrefix(line, "add "); ok {
				list.WriteString(rule)
			}
		}
		missing, err := dummynet.Lookups(list.String())
		if err != nil {
			t.Fatal(err)
		}
		var said []string
		for _, argv := range missing {
			said = append(said, strings.Join(argv, " "))
		}
		if !slices.Equal(said, []string{
			"ipfw table unbloat create type flow:src-ip,proto,src-port,dst-ip,dst-port missing",
			"ipfw -q add 59001 queue tablearg ip from any to any flow table(unbloat) out via igb0",
			"ipfw -q add 59002 queue tablearg ip from any to any flow table(unbloat) in via igb0",
		}) {
			t.Errorf("%q", said)
		}
		list.WriteString("59001 queue tablearg ip from any to any flow table(unbloat) out via igb0\n59002 queue tablearg ip from any to any flow table(unbloat) in via igb0\n")
		if missing, err = dummynet.Lookups(list.String()); err != nil || missing != nil {
			t.Errorf("with the rules %q is missing, %v", missing, err)
		}
		if _, err := dummynet.Lookups("00100 allow pfsync from any to any\n"); err == nil {
			t.Error("rules are added where the shaper is not loaded")
		}
		if _, err := dummynet.Lookups(strings.ReplaceAll(list.String(), "queue 200", "queue 300")); err == nil {
			t.Error("rules are added where other items have the queues' numbers")
		}
	}
}
