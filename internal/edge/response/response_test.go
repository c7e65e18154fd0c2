package response

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// Every page has a body that names the problem, its status, its Retry-After, and none of the headers set for another
// response.
func TestPages(t *testing.T) {
	t.Parallel()
	for _, n := range allPages() {
		w := httptest.NewRecorder()
		w.Header().Set("Etag", `"x"`)
		Page(w, httptest.NewRequest("GET", "/", nil), n)
		if w.Code != n.Status || !strings.Contains(w.Body.String(), "<h1>") ||
			!strings.Contains(w.Body.String(), "</html>") || w.Header().Get("Etag") != "" ||
			w.Header().Get("Cache-Control") != "no-store" {
			t.Errorf("%s: %d %v %q", n.title, w.Code, w.Header(), w.Body)
		}
		if again := w.Header().Get("Retry-After"); (again != "") != (n.Retry > 0) {
			t.Errorf("%s: Retry-After %q", n.title, again)
		}
		if w.Body.Len() > 4<<10 || strings.Contains(w.Body.String(), mark) || !strings.Contains(w.Body.String(), fmt.Sprint("Error ", n.Status)) {
			t.Errorf("%s: %d bytes: %s", n.title, w.Body.Len(), w.Body)
		}
		id := w.Header().Get(RequestField)
		if n.alone != (id == "") || !n.alone && !strings.Contains(w.Body.String(), "<code>"+id+"</code>") {
			t.Errorf("%s: the request is %q: %s", n.title, id, w.Body)
		}
	}
}

func allPages() []*Notice {
	return []*Notice{
		PageUnknown, PageMissing, PageLogin, PageAccess, PageDenied, PageEither, PageEitherDenied, PageMembers,
		PageNoGrant, PageStopped, PagePaused, PageEmpty, PageError, PageStarting, PageBusy, PageOverloaded, PageWaking,
		PageCrashed, PageTimeout, PageAway, PageBroken,
		PageMissing.As(410),
	}
}

// A page shows the id under which its recorder's request is logged.
func TestRequestID(t *testing.T) {
	t.Parallel()
	w := httptest.NewRecorder()
	rec := &Recorder{ResponseWriter: w}
	Page(rec, httptest.NewRequest("GET", "/", nil), PageCrashed)
	if id := rec.RequestID(); rec.Request != id || w.Header().Get(RequestField) != id || !strings.Contains(w.Body.String(), id) {
		t.Errorf("recorded %q, sent %q: %s", id, w.Header().Get(RequestField), w.Body)
	}
}

// A recorder knows the status of the final response and its body's size. Informational responses don't count.
func TestRecorder(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		w := &Recorder{ResponseWriter: rw}
		w.WriteHeader(http.StatusEarlyHints)
		if w.Status != 0 {
			t.Errorf("early hints: %d", w.Status)
		}
		w.WriteHeader(http.StatusTeapot)
		w.Write([]byte("hello"))
		if err := http.NewResponseController(w).Flush(); err != nil || w.Status != http.StatusTeapot || w.Bytes != 5 {
			t.Errorf("%d, %d bytes, %v", w.Status, w.Bytes, err)
		}
	}))
	defer srv.Close()
	resp, err := srv.Client().Get(srv.URL)
	if err != nil || resp.StatusCode != http.StatusTeapot {
		t.Fatal(resp, err)
	}
	resp.Body.Close()
}
