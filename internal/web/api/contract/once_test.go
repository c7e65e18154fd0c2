package contract

import (
	"bytes"
	"encoding/json"
	"testing"
)

// A stored response is JSON with a status and a body, and is replayed byte for byte. A response stored by an earlier
// version, which ends with a line break, is read the same way.
func TestStoredAnswer(t *testing.T) {
	t.Parallel()
	out := map[string]any{"name": "a \",\"body\":{} <b>", "list": []int{1, 2}}
	r := Route{Status: 201}
	sent, err := r.reply(out)
	if err != nil {
		t.Fatal(err)
	}
	stored, err := r.Keep(out)
	if err != nil {
		t.Fatal(err)
	}
	var envelope struct {
		Status int
		Body   json.RawMessage
	}
	if err := json.Unmarshal(stored, &envelope); err != nil || envelope.Status != 201 {
		t.Fatalf("%s: %+v, %v", stored, envelope, err)
	}
	for name, b := range map[string][]byte{"stored now": stored, "stored earlier": append(bytes.Clone(stored), '\n')} {
		got, err := Unkeep(b, true, nil)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got.Status != 201 || !bytes.Equal(got.Body, sent.Body) || got.Replayed != "true" {
			t.Errorf("%s: %d %q, want %q", name, got.Status, got.Body, sent.Body)
		}
	}
	for _, b := range []string{``, `{}`, `{"status":201}`, `{"status":"x","body":1}`, `{"status":201,"body":{}`[:20]} {
		if got, err := Unkeep([]byte(b), true, nil); err == nil {
			t.Errorf("%q was read as %+v", b, got)
		}
	}
}
