package wordpress

import (
	"strings"
	"testing"
)

// The service must extract a readable message from an error of WordPress, whichever form the error has.
func TestReason(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		`{"error": "no such plugin"}`: "no such plugin",
		`{"code":"wp_die","message":"<h1>Error establishing a database connection<\/h1>","data":{"status":500},"additional_errors":[]}`: "Error establishing a database connection",
		`{"code":"internal_server_error","message":"<p>There has been a critical error.<\/p>","data":{"status":500,"error":{"type":1,` +
			`"message":"Uncaught Error: Call to undefined function ours()","file":"\/app\/x.php","line":3}}}`: "Uncaught Error: Call to undefined function ours()",
		"<!DOCTYPE html><html><head><title>WordPress</title><style>p{}</style></head><body><p>It &amp; more\n failed</p></body></html>": "It & more failed",
		"plain words":                "plain words",
		"":                           "",
		strings.Repeat("x", 100_000): strings.Repeat("x", 499) + "…",
	} {
		if got := reason([]byte(in)); got != want {
			t.Errorf("reason(%.60s) = %q, want %q", in, got, want)
		}
	}
}
