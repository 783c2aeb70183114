package clearosfake

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"unbloat/testkit/await"
)

// TestClearOSVerdicts gives the stand-in the recorded inputs of the real
// engine, and compares commands, messages and the final error.
func TestClearOSVerdicts(t *testing.T) {
	type vector struct {
		Note     string
		QoS      string  `json:"qos.conf"`
		Network  *string `json:"network.conf"`
		Family   string
		Commands []string
		Says     []string
		Error    string
	}
	await.EachVerdict(t, "clearos.jsonl", func(t *testing.T, line int, v vector) {
		got, err := Engine(v.QoS, v.Network, v.Family)
		if err != nil {
			t.Errorf("clearos.jsonl:%d: %s: %v", line, v.Note, err)
			return
		}
		if d := cmp.Diff(v.Commands, append([]string{}, got.Commands...)); d != "" {
			t.Errorf("clearos.jsonl:%d: %s: -real +stand-in\n%s", line, v.Note, d)
		}
		if d := cmp.Diff(v.Says, got.Says); d != "" {
			t.Errorf("clearos.jsonl:%d: %s, says: -real +stand-in\n%s", line, v.Note, d)
		}
		if got.Error != v.Error {
			t.Errorf("clearos.jsonl:%d: %s: %q, really %q", line, v.Note, got.Error, v.Error)
		}
	})
}
