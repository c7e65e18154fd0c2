package shell

import (
	"strings"
	"testing"
)

// In a shell command, a text is quoted literally even if it looks like a variable, and a Variable is expanded.
func TestCallVariables(t *testing.T) {
	t.Parallel()
	d := &Shell{}
	c, err := d.rest("POST", "/sites", map[string]any{"name": "it's $SLIPWAY_KEY `id`", "token": Variable("GIT_TOKEN")})
	if err != nil {
		t.Fatal(err)
	}
	if want := `--json '{"name":"it'\''s $SLIPWAY_KEY ` + "`id`" + `","token":"'"$GIT_TOKEN"'"}'`; !strings.HasSuffix(c.Command, want) {
		t.Errorf("%s\nends not in %s", c.Command, want)
	}
	if c.Variables != "GIT_TOKEN" {
		t.Errorf("variables: %q", c.Variables)
	}
}
