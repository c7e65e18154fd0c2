package dashboard

import "testing"

// While the database is unavailable, pages return 503 with Retry-After, like the API.
func TestDatabaseAway(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.user("ada@example.test", false)
	b := w.as("ada@example.test")
	if p := b.get("/account"); p.status != 200 {
		t.Fatalf("before: %d", p.status)
	}
	if err := w.db.Close(); err != nil {
		t.Fatal(err)
	}
	if p := b.get("/account"); p.status != 503 || p.header.Get("Retry-After") == "" {
		t.Errorf("got %d with Retry-After %q", p.status, p.header.Get("Retry-After"))
	}
}
