package buildlog

import (
	"encoding/base64"
	"testing"
)

// Redact hides a secret anywhere in a line, plain or encoded, and nothing else.
func TestRedactor(t *testing.T) {
	t.Parallel()
	r := NewRedactor([]string{"hunter2-hunter2", "one\ntwo-of-it"})
	for in, want := range map[string]string{
		"nothing here":                        "nothing here",
		"a hunter2-hunter2 b hunter2-hunter2": "a [secret] b [secret]",
		"hunter2-hunter2":                     "[secret]",
		"line two-of-it ends":                 "line [secret] ends",
		"x=" + base64.StdEncoding.EncodeToString([]byte("hunter2-hunter2")): "x=[secret]",
	} {
		if got := r.Redact(in); got != want {
			t.Errorf("Redact(%q) = %q, want %q", in, got, want)
		}
	}
	if got := NewRedactor(nil).Redact("as it is"); got != "as it is" {
		t.Errorf("without secrets: %q", got)
	}
}
