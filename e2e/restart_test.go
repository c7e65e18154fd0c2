package e2e

import (
	"context"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"slipway/e2e/world"
)

// With sockets from systemd, a restart refuses no connection and fails no request: connections wait in the socket's
// queue until the program runs again. The program notifies systemd when it is ready and when it stops.
func TestRestartRefusesNothing(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), world.Patience(3*time.Minute))
	defer cancel()
	w, err := world.New(binary, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	key, err := w.User("ada@example.test")
	if err != nil {
		t.Fatal(err)
	}
	for _, addr := range []string{w.Listen, w.HTTP, w.HTTPS} {
		w.Sockets = append(w.Sockets, passed(t, addr))
	}
	told := newManager(t, w)
	if err := w.Start(ctx); err != nil {
		t.Fatal(err)
	}
	told.wait(ctx, t, "READY=1")
	told.wait(ctx, t, "WATCHDOG=1")
	site := newSite(ctx, t, w, key)
	v := visit(ctx, t, w, site)
	for life := range 3 {
		v.more(ctx, t)
		if err := w.Stop(ctx); err != nil {
			t.Fatalf("life %d: %v", life, err)
		}
		told.wait(ctx, t, "STOPPING=1")
		if err := w.Start(ctx); err != nil {
			t.Fatalf("life %d: %v", life, err)
		}
		told.wait(ctx, t, "READY=1")
	}
	t.Logf("%d requests over three restarts", v.end())
}

// visitors are four clients. Each sends a hundred requests per second over HTTP/1.1 or HTTP/2, each on a new connection.
// A wrong response fails the test.
type visitors struct {
	answered, failed atomic.Int64 // share: none, of one test alone
	stop             context.CancelFunc
	all              sync.WaitGroup
}

func visit(ctx context.Context, t *testing.T, w *world.World, site string) *visitors {
	t.Helper()
	browser, err := w.Browser()
	if err != nil {
		t.Fatal(err)
	}
	browser.Transport.(*http.Transport).DisableKeepAlives = true
	old, err := w.Browser()
	if err != nil {
		t.Fatal(err)
	}
	plain := old.Transport.(*http.Transport)
	plain.DisableKeepAlives, plain.ForceAttemptHTTP2 = true, false
	v := &visitors{}
	ctx, v.stop = context.WithCancel(ctx)
	for i := range 4 {
		client := []*http.Client{browser, old}[i%2]
		v.all.Go(func() {
			pace := time.NewTicker(10 * time.Millisecond)
			defer pace.Stop()
			for {
				select {
				case <-ctx.Done():
					return
				case <-pace.C:
				}
				a, err := w.Site(context.WithoutCancel(ctx), client, world.Request{Method: "GET", URL: site})
				if err != nil || a.Status != 200 || string(a.Body) != "It floats." {
					v.failed.Add(1)
					t.Errorf("a visitor: %v %d %.200s", err, a.Status, a.Body)
					return
				}
				v.answered.Add(1)
			}
		})
	}
	t.Cleanup(func() { v.end() })
	return v
}

// more waits until fifty more requests were answered, or one failed.
func (v *visitors) more(ctx context.Context, t *testing.T) {
	t.Helper()
	before := v.answered.Load()
	if err := world.Until(ctx, 10*time.Millisecond, func() (bool, error) {
		return v.answered.Load() > before+50 || v.failed.Load() > 0, nil
	}); err != nil {
		t.Fatal(err)
	}
}

// end stops the requests and returns the number of answered ones.
func (v *visitors) end() int64 {
	v.stop()
	v.all.Wait()
	return v.answered.Load()
}

// newSite creates a site with the page "It floats." and returns its URL.
func newSite(ctx context.Context, t *testing.T, w *world.World, key string) string {
	t.Helper()
	dir := filepath.Join(w.Dir, "content")
	if err := world.WriteFiles(dir, map[string]string{"index.html": "It floats."}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Git.Commit("acme/boat", "main", dir, "a boat"); err != nil {
		t.Fatal(err)
	}
	var site struct{ Data struct{ ID, URL string } }
	if err := w.Call(ctx, key, "POST", "/sites", map[string]string{
		"name": "Boat", "type": "static", "repository": "git.test/acme/boat", "branch": "main",
	}, &site); err != nil {
		t.Fatal(err)
	}
	var deployed struct{ DeploymentID string }
	if err := w.Call(ctx, key, "POST", "/sites/"+site.Data.ID+"/deploy", nil, &deployed); err != nil {
		t.Fatal(err)
	}
	browser, err := w.Browser()
	if err != nil {
		t.Fatal(err)
	}
	if err := world.Until(ctx, 20*time.Millisecond, func() (bool, error) {
		a, err := w.Site(ctx, browser, world.Request{Method: "GET", URL: site.Data.URL + "/"})
		return err == nil && a.Status == 200, err
	}); err != nil {
		t.Fatal(err)
	}
	return site.Data.URL + "/"
}

// passed opens a socket like systemd, and closes it when the test ends.
func passed(t *testing.T, addr string) *os.File {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	f, err := l.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// manager receives the program's notifications to systemd.
type manager struct {
	conn *net.UnixConn
	said chan string
}

func newManager(t *testing.T, w *world.World) *manager {
	t.Helper()
	path := filepath.Join(w.Dir, "notify")
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	w.Env = append(w.Env, "NOTIFY_SOCKET="+path, "WATCHDOG_USEC=2000000")
	// share: none, of this test alone
	m := &manager{conn: c, said: make(chan string, 1000)}
	go func() {
		for {
			b := make([]byte, 4096)
			n, err := c.Read(b)
			if err != nil {
				return
			}
			m.said <- string(b[:n])
		}
	}()
	return m
}

// wait waits for a notification that begins with what, and skips others.
func (m *manager) wait(ctx context.Context, t *testing.T, what string) {
	t.Helper()
	for {
		select {
		case got := <-m.said:
			if len(got) >= len(what) && got[:len(what)] == what {
				return
			}
		case <-ctx.Done():
			t.Fatalf("the program never said %s", what)
		}
	}
}
