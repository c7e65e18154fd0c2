package api_test

import "testing"

// Purging an invalid path is refused instead of succeeding without effect.
func TestPurgePaths(t *testing.T) {
	t.Parallel()
	w, key, path := newWordPress(t)
	path += "/wordpress/purge-cache"
	for _, bad := range []string{"", "shop/", "https://blog.example/shop/", "/shop/?page=2", "/#top"} {
		if a := w.must(400, "POST", path, key, m{"paths": []string{"/", bad}}); a["code"] != "invalid_paths" || a["received"] != bad {
			t.Errorf("%q: %v", bad, a)
		}
	}
	w.must(202, "POST", path, key, m{"paths": []string{"/", "/caf%C3%A9/", "*"}})
	w.must(202, "POST", path, key, nil)
}
