package forge

import "testing"

func TestWebAddresses(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]WebAddress{
		"https://github.com/o/r/tree/main/apps/web":                {"github.com/o/r", "main", "apps/web"},
		"https://github.com/o/r/tree/main":                         {"github.com/o/r", "main", ""},
		"https://github.com/o/r/blob/dev/docs/index.md?plain=1#L3": {"github.com/o/r", "dev", "docs"},
		"https://gitlab.com/g/sub/p/-/tree/main/site":              {"gitlab.com/g/sub/p", "main", "site"},
		"https://git.test:3000/o/r/src/branch/main/apps/web/":      {"git.test:3000/o/r", "main", "apps/web"},
		"https://bitbucket.org/w/r/src/main/dir/":                  {"bitbucket.org/w/r", "main", "dir"},
		"https://github.com/o/r":                                   {},
		"https://github.com/o/r.git":                               {},
		"https://user:secret@github.com/o/r/tree/main/x":           {},
		"git@github.com:o/r.git":                                   {},
		"https://github.com/o/r/issues/1":                          {},
		"https://github.com/o/r/tree/":                             {},
	} {
		got, ok := ParseWebAddress(s)
		if want == (WebAddress{}) == ok || ok && got != want && want.Branch != "" {
			t.Errorf("%s is %+v, %v; want %+v", s, got, ok, want)
		}
	}
}
