package opnsense

import (
	"encoding/json"
	"strings"

	"unbloat/internal/cure/lang/dummynet"
	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform"
)

// Render writes requests to the shaper's API; their fields are those of the web
// form.
func Render(p plan.Plan) ([]platform.PlanPart, []string, error) {
	it, notes, err := dummynet.RenderItems(p)
	if err != nil {
		return nil, nil, err
	}
	parts := []platform.PlanPart{{Where: "The values are those of the form in Firewall: Shaper, field by field, but for the number, which the form gives by itself; or send them to the REST API. " +
		"The uuids are unbloat's own, so sending them again changes the same items.", Text: ""}, {Where: numbersToCheck(it), Text: ""}}
	add := func(where, path, key string, item any) {
		var b strings.Builder
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false)
		if err := e.Encode(map[string]any{key: item}); err != nil {
			panic("marshal an item: " + err.Error()) // strings alone
		}
		parts = append(parts, platform.PlanPart{Where: where, Text: "POST /api/trafficshaper/settings/" + path + "\n" + b.String()})
	}
	for _, x := range it.Pipes {
		add("pipe: "+x.Bandwidth+" "+x.BandwidthMetric+"/s", "setPipe/"+x.UUID, "pipe", x)
	}
	for _, x := range it.Queues {
		add("queue: weight "+x.Weight, "setQueue/"+x.UUID, "queue", x)
	}
	for _, x := range it.Rules {
		add("rule: "+strings.TrimPrefix(x.Description, "unbloat "), "setRule/"+x.UUID, "rule", x)
	}
	return append(parts, platform.PlanPart{Where: "then apply, and read back, for limits have been seen to stop silently after a reload:",
		Text: "POST /api/trafficshaper/service/reconfigure\nGET /api/trafficshaper/service/statistics\n"}), notes, nil
}

// numbersToCheck returns the note about numbers that can't be chosen without
// access to the router.
func numbersToCheck(it dummynet.Items) string {
	list := func(numbers []string) string { return strings.Join(numbers, ", ") }
	var pipes, queues []string
	for _, x := range it.Pipes {
		pipes = append(pipes, x.Number)
	}
	for _, x := range it.Queues {
		queues = append(queues, x.Number)
	}
	return "The numbers (pipes " + list(pipes) + "; queues " + list(queues) + ") are those that `unbloat apply` gives on a router where nothing else has them. " +
		"OPNsense saves two pipes, or two queues, of one number without a word, and the kernel then has one for both. So look first: " +
		"GET /api/trafficshaper/settings/searchPipes and GET /api/trafficshaper/settings/searchQueues list those that are taken. " +
		"If another item has one of these, choose any that is free, from 1 to 65535; the rules name them by their uuids and stay as they are."
}
