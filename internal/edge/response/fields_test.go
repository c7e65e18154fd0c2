package response

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"slipway/internal/platform/fair"
)

// The memory for header fields of responses in progress is limited per visitor and per owner. Above the limit a
// response is sent without its fields. Others keep theirs, and all of it is released at the end.
func TestHeld(t *testing.T) {
	t.Parallel()
	held := NewHeld()
	var open []*Recorder
	answer := func(owner, remote string, size int) (*Recorder, *httptest.ResponseRecorder) {
		w := httptest.NewRecorder()
		r := &Recorder{ResponseWriter: w, Owner: owner, Site: owner, Held: held, Remote: remote}
		r.Header().Set("X-Large", strings.Repeat("x", size))
		open = append(open, r)
		return r, w
	}
	flood := func(owner string, remote func(i int) string) (given int) {
		for i := range 1300 {
			r, w := answer(owner, remote(i), 16<<10)
			n, err := r.Write([]byte("hello"))
			switch h := w.Result().Header; {
			case r.Status == http.StatusOK && n == 5 && h.Get("X-Large") != "":
				given++
			case r.Status != http.StatusServiceUnavailable || w.Code != r.Status || !errors.Is(err, errHeld) ||
				h.Get("X-Large") != "" || h.Get("Retry-After") == "" || h.Get("Content-Length") != "0" ||
				w.Body.Len() > 0:
				t.Fatalf("%d, %d bytes, %v: %v", r.Status, n, err, h)
			}
		}
		return given
	}
	if n := flood("eve", func(int) string { return "192.0.2.1:1" }); n*(16<<10) > connectionHeld || n < 50 {
		t.Errorf("one connection has %d answers under way", n)
	}
	if n := flood("eve", func(i int) string { return fmt.Sprint("192.0.2.1:", 2+i%100) }); n*(16<<10) > siteHeld || n < 150 {
		t.Errorf("one visitor has %d more answers under way", n)
	}
	if n := flood("eve", func(i int) string { return fmt.Sprintf("192.0.2.%d:1", 2+i%250) }); n*(16<<10) > ownerHeld || n < 500 {
		t.Errorf("one owner's visitors have %d more answers under way", n)
	}
	several := 0
	for i := range 8 {
		several += flood(fmt.Sprint("owner", i), func(i int) string { return fmt.Sprint("192.0.2.253:", i%100) })
	}
	if several*(16<<10) > visitorHeld || several < 900 {
		t.Errorf("one visitor of several sites has %d answers under way", several)
	}
	for owner, size := range map[string]int{"eve": 3 << 10, "anna": 16 << 10} {
		r, w := answer(owner, "192.0.2.254:1", size)
		r.WriteHeader(http.StatusOK)
		if w.Code != http.StatusOK {
			t.Errorf("%s's answer with %d bytes: %d", owner, size, w.Code)
		}
	}
	for _, r := range open {
		r.End()
	}
	for _, pool := range []*fair.Pool{held.owners, held.visitors, held.connections} {
		if n, _ := pool.Held(); n != 0 {
			t.Errorf("%d bytes stay counted", n)
		}
	}
}
