package response

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// Every page of ours has a body that says what is the matter, with its status and the time
// after which to ask again, and takes back what was said of another answer.
func TestPages(t *testing.T) {
	t.Parallel()
	for _, n := range []*Notice{
		PageUnknown, PageMissing, PageLogin, PageAccess, PageDenied, PageEither, PageEitherDenied, PageMembers,
		PageNoGrant, PageStopped, PagePaused, PageEmpty, PageError, PageStarting, PageBusy, PageOverloaded, PageWaking,
		PageCrashed, PageTimeout, PageAway, PageBroken,
		PageMissing.As(410),
	} {
		w := httptest.NewRecorder()
		w.Header().Set("Etag", `"x"`)
		Page(w, httptest.NewRequest("GET", "/", nil), n)
		if w.Code != n.Status || !strings.Contains(
			w.Body.String(),
			"<h1>",
		) || !strings.Contains(
			w.Body.String(),
			"</html>",
		) || w.Header().Get("Etag") != "" || w.Header().Get("Cache-Control") != "no-store" {
			t.Errorf("%s: %d %v %q", n.title, w.Code, w.Header(), w.Body)
		}
		if again := w.Header().Get("Retry-After"); (again != "") != (n.Retry > 0) {
			t.Errorf("%s: Retry-After %q", n.title, again)
		}
	}
}

// A recorder knows an answer's status and how many bytes its body had; what comes before it
// is not the answer.
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
