package php

import "testing"

// A closed index.php doesn't answer for its folder either: the front controller does.
func TestClosedIndex(t *testing.T) {
	t.Parallel()
	s := site(t, "public", "public/index.php", "public/admin/index.php", "public/open/index.php")
	s.Closed = []string{"admin/index.php"}
	for p, want := range map[string]string{
		"/admin/index.php": "", "/admin/": "index.php", "/admin": "index.php", "/admin/index.php/x": "", "/open/": "open/index.php", "/": "index.php",
	} {
		if got, _, _ := s.script(p); got != want {
			t.Errorf("%s runs %q, want %q", p, got, want)
		}
	}
}
