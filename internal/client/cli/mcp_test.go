package cli

import "testing"

func TestQuoted(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{"node": "node", "--a=b/c.js": "--a=b/c.js", "": "''", "two words": "'two words'", "it's; rm": `'it'\''s; rm'`} {
		if got := quoted(in); got != want {
			t.Errorf("%q is %s, want %s", in, got, want)
		}
	}
}
