package opnsense

import "testing"

// FuzzAnswers: any answer of the router's API is parsed or refused.
func FuzzAnswers(f *testing.F) {
	f.Add([]byte(`{"ts":{"pipes":{"pipe":{"a-b":{"enabled":"1","bandwidth":"29100","mask":{"none":{"value":"none","selected":1}}}}},"queues":{"queue":[]},"rules":{"rule":[]}}}`))
	f.Add([]byte(`{"status":"ok","items":[{"Type":"pipe","UUID":"a","BW":"1","Rules":[{"rule_uuid":"b"}]}]}`))
	f.Add([]byte(`{"ts":[]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if items, err := parseItems(b); err == nil {
			for _, i := range items {
				if i.Kind == "" {
					t.Fatalf("%q: %+v", b, i)
				}
			}
		}
		if _, err := parseSettings(b); err == nil {
			if _, err := parseItems(b); err != nil {
				t.Fatalf("%q: settings without items: %v", b, err)
			}
		}
		if live, err := parseStatistics(b); err == nil && live == nil {
			t.Fatalf("%q: neither lines nor an error", b)
		}
	})
}
