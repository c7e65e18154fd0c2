package api_test

import (
	"testing"

	"slipway/internal/account"
)

// What a schema refuses is told in a sentence, wherever in the body it is, and under a code that
// doesn't change with its place in a list.
func TestSchemaErrorsAreSentences(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, key := w.user("ada@example.test", account.All)
	id := w.site(key, "Blog")
	for name, tt := range map[string]struct {
		method, path        string
		body                any
		says, details, code string
	}{
		"one item": {"POST", "/webhooks", map[string]any{"url": "https://example.com/in", "events": []string{}},
			"Invalid webhook events", "events must have at least 1 item", "invalid_events"},
		"below a field": {"PATCH", "/sites/" + id, map[string]any{"backups": map[string]any{"every": "never"}},
			"Invalid backups.every", "backups.every must be off, hourly, daily or weekly", "invalid_backups_every"},
		"in a list": {"POST", "/sites/" + id + "/env", map[string]any{"key": "A", "value": "x", "target": []string{"build", "nope"}},
			"Invalid variable target", "target[1] must be build, runtime, production or preview", "invalid_target"},
		"in a list of a list": {"POST", "/sites/" + id + "/env", []any{map[string]any{"key": "A", "value": "x", "target": []string{"nope"}}},
			"Invalid variable target", "[0].target[0] must be build, runtime, production or preview", "invalid_target"},
	} {
		got := w.must(400, tt.method, tt.path, key, tt.body)
		if got["error"] != tt.says || got["details"] != tt.details || got["code"] != tt.code {
			t.Errorf("%s: %q, %q, %q", name, got["error"], got["details"], got["code"])
		}
	}
}
