package ready

import (
	"fmt"
	"net/http"
	"testing"

	"slipway/internal/edge/fastpath"
	"slipway/internal/edge/visits"
)

// A table of answers stays within its limit, counts a shared body once, and finds its answers.
func TestTable(t *testing.T) {
	t.Parallel()
	h := New(1 << 20)
	body := make([]byte, 100_000)
	put := func(of *Source, path string, body []byte) *Answer {
		made, err := fastpath.NewAnswer(http.Header{"Content-Type": {"x/y"}, "Content-Length": {fmt.Sprint(len(body))}}, body)
		if err != nil {
			t.Fatal(err)
		}
		a := &Answer{Answer: made, Page: visits.Page{Host: "h", Path: path}, Source: of}
		h.Put(a)
		return a
	}
	one, two := NewSource(), NewSource()
	a, b := put(one, "/a", body), put(two, "/a", body)
	if h.Get(one, "h", []byte("/a"), 0) != a || h.Get(two, "h", []byte("/a"), 0) != b {
		t.Error("answers of two targets are mixed up")
	}
	if h.Get(one, "other", []byte("/a"), 0) != nil || h.Get(one, "h", []byte("/b"), 0) != nil ||
		h.Get(one, "h", []byte("/a"), fastpath.Brotli) != nil {
		t.Error("found what isn't there")
	}
	if h.bytes > 110_000 {
		t.Errorf("a shared body is counted twice: %d bytes", h.bytes)
	}
	for i := range 3000 {
		put(one, fmt.Sprint("/", i), make([]byte, 2000))
		if h.bytes > h.limit {
			t.Fatalf("%d bytes, limit %d", h.bytes, h.limit)
		}
	}
	used := put(one, "/used", make([]byte, 10))
	for i := range 300 {
		put(two, fmt.Sprint("/", i), make([]byte, 2000))
		h.Get(one, "h", []byte("/used"), 0)
	}
	if h.Get(one, "h", []byte("/used"), 0) != used {
		t.Error("an answer in constant use was evicted")
	}
	var bytes int64
	bodies := map[*byte]bool{}
	for i := range h.slots {
		if a := h.slots[i].Load(); a != nil {
			bytes += a.cost()
			if b := a.Body(); !bodies[&b[0]] {
				bodies[&b[0]] = true
				bytes += int64(len(b))
			}
		}
	}
	if bytes != h.bytes || len(bodies) != len(h.bodies) {
		t.Errorf("%d bytes in %d bodies are there, %d in %d are counted", bytes, len(bodies), h.bytes, len(h.bodies))
	}
}
