package dashboard

import (
	"io"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"slipway/internal/deploy/journal"
	"slipway/internal/platform/db"
	"slipway/internal/web/requestinfo"
)

// A download in progress is cut off when its session ends. With a valid session it completes.
func TestDownloadEndsWithItsSession(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ada := w.user("ada@example.test", false)
	s := w.site(ada, "Ada's site")
	b := w.as("ada@example.test")
	id := w.deployment(s)
	var lines []journal.Line
	for range 4000 { // 32 MB: more than socket buffers hold
		lines = append(lines, journal.Line{Level: "info", Stage: "build", Message: strings.Repeat("x", 8000)})
	}
	w.lines(id, 1, lines...)
	path := "/sites/" + string(s.ID) + "/deployments/" + string(id) + "/log"
	open := func() *http.Response {
		t.Helper()
		client := *b.client
		client.Timeout = 0 // no time limit
		a, err := client.Get(w.srv.URL + path)
		must(t, err)
		if a.StatusCode != 200 {
			t.Fatal(a.Status)
		}
		t.Cleanup(func() { a.Body.Close() })
		return a
	}
	if n, err := io.Copy(io.Discard, open().Body); err != nil || n < 32_000_000 {
		t.Fatalf("%d bytes, %v", n, err)
	}
	w.dash.shell.Streams = requestinfo.NewStreams(1, 1, 1)
	a := open()
	if _, err := io.ReadFull(a.Body, make([]byte, 1000)); err != nil {
		t.Fatal(err)
	}
	must(t, w.db.Write(t.Context(), func(tx *db.Tx) error {
		_, err := w.dash.Accounts.EndSessionsTx(t.Context(), tx, ada.ID, "")
		return err
	}))
	// The client reads nothing until the server gives up, like a stalling client.
	w.eventually("the server gives the download up", func() bool {
		done, ok := w.dash.shell.Streams.Begin("usr_other", netip.Addr{})
		if ok {
			done()
		}
		return ok
	})
	if n, err := io.Copy(io.Discard, a.Body); err == nil || n > 30_000_000 {
		t.Errorf("%d bytes came, %v", n, err)
	}
}
