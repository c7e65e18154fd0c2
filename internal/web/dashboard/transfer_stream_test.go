package dashboard

import (
	"bufio"
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/tenant/site"
	"slipway/internal/web/dashboard/sites"
)

// A site's open streams end within 5 seconds of its transfer and show the sender nothing that happens afterwards: the
// program's log, the deployment's log and the live parts.
func TestTransferEndsPages(t *testing.T) {
	t.Parallel()
	var printed atomic.Int64
	printed.Store(1)
	w := newWorld(t, func(c *Config) {
		c.Programs = programs{log: func(_ site.ID, f sites.ProgramFilter) (list []sites.ProgramLine, _ error) {
			for n := max(1, f.After+1); n <= printed.Load(); n++ {
				list = append(list, sites.ProgramLine{N: n, At: db.Now(), Level: "info", Stream: "stdout", Message: map[bool]string{true: "first", false: "secret"}[n == 1]})
			}
			return list, nil
		}}
	})
	u, grace := w.user("ada@example.test", false), w.user("grace@example.test", false)
	s := w.site(u, "Harbor")
	id := w.deployment(s)
	base := "/sites/" + string(s.ID)
	b := w.as(u.Email)
	b.client.Timeout = 0
	type stream struct {
		path  string
		lines *bufio.Scanner
	}
	var open []stream
	ctx, stop := context.WithTimeout(t.Context(), 2*time.Minute) // a stream that doesn't end fails the test
	defer stop()
	for _, path := range []string{base + "/logs/follow", base + "/deployments/" + string(id) + "/log/follow", base + "/follow"} {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, w.srv.URL+path, nil)
		must(t, err)
		r.Header.Set("Accept", "text/event-stream")
		resp, err := b.client.Do(r)
		must(t, err)
		t.Cleanup(func() { resp.Body.Close() })
		if kind := resp.Header.Get("Content-Type"); kind != "text/event-stream" {
			t.Fatalf("%s: %s %s", path, resp.Status, kind)
		}
		lines := bufio.NewScanner(resp.Body)
		lines.Buffer(nil, 1<<20)
		lines.Scan()
		open = append(open, stream{path, lines})
	}
	must(t, w.db.Write(t.Context(), func(tx *db.Tx) error {
		_, err := w.dash.Sites.MoveSiteTx(t.Context(), tx, s.ID, u.Owner, grace.Owner)
		return err
	}))
	printed.Store(2)
	began := time.Now()
	for _, x := range open {
		for x.lines.Scan() {
			if strings.Contains(x.lines.Text(), "secret") {
				t.Errorf("%s: the sender reads %q", x.path, x.lines.Text())
			}
		}
	}
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("the streams ended after %s", took)
	}
}
