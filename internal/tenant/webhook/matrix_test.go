package webhook

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/webhook/delivery"
	"slipway/internal/tenant/webhook/event"
)

// Every status from 100 to 599 has its outcome: only 2xx is success, 3xx (except 304) is a redirect that isn't
// followed, 410 disables the webhook, and all others are retried. A hand-written server sends them, so that 1xx
// responses and statuses without a body are as on the wire.
func TestEveryStatus(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		wire := &http.Transport{DisableKeepAlives: true, MaxResponseHeaderBytes: 64 << 10}
		wire.DialTLSContext = dialTo(func(path string, c net.Conn) {
			n, _ := strconv.Atoi(strings.TrimPrefix(path, "/"))
			if n < 200 && n != 101 { // an interim response, then a final one
				fmt.Fprintf(c, "HTTP/1.1 %d Interim\r\nX-Interim: yes\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n", n)
				return
			}
			body := "answered"
			if n == 101 || n == 204 || n == 304 {
				body = ""
			}
			fmt.Fprintf(c, "HTTP/1.1 %d Status\r\nContent-Length: %d\r\nLocation: https://elsewhere.test/\r\n\r\n%s", n, len(body), body)
		})
		w := timeless(t, nil)
		w.c.Out = &http.Client{
			Transport:     wire,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}
		type probe struct {
			owner account.OwnerID
			id    ID
		}
		hooks := map[int]probe{}
		for n := 100; n <= 599; n++ {
			p := probe{owner: account.OwnerID(fmt.Sprintf("usr_%d", n/50))}
			h, err := w.Create(t.Context(), p.owner, NewWebhook{
				URL:    fmt.Sprintf("https://h%d.test/%d", n, n),
				Events: []string{"site.created"},
			})
			if err != nil {
				t.Fatal(err)
			}
			p.id = h.ID
			hooks[n] = p
		}
		stop := start(t, w)
		for n := 100; n <= 599; n += 50 {
			owner := hooks[n].owner
			if err := w.c.DB.Write(t.Context(), func(tx *db.Tx) error {
				return w.EmitTx(t.Context(), tx, owner, event.SiteCreated(someSite))
			}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(3 * time.Second) // second attempts come after 4.5 s at the earliest
		synctest.Wait()
		stop()
		for n := 100; n <= 599; n++ {
			p := hooks[n]
			status, state, word := n, "pending", ""
			switch {
			case n < 200 && n != 101:
				status, state = 204, "succeeded"
			case n >= 200 && n < 300:
				state = "succeeded"
			case n >= 300 && n < 400 && n != 304:
				word = delivery.ReasonRedirect
			case n == 410:
				state = "failed"
			}
			list, total, err := w.Deliveries(t.Context(), p.owner, p.id, 1, 10)
			if err != nil || total != 1 || len(list[0].Attempts) != 1 {
				t.Errorf("%d: %d deliveries, %+v, %v", n, total, list, err)
				continue
			}
			if a := list[0].Attempts[0]; a.Status != status || a.Error != word || list[0].State != state {
				t.Errorf("%d: %s, status %d %q; want %s, %d %q", n, list[0].State, a.Status, a.Error, state, status, word)
			}
			if h, _ := w.Get(t.Context(), p.owner, p.id); h.Active == (n == 410) {
				t.Errorf("%d: active %v", n, h.Active)
			}
		}
	})
}

// An attempt ends within 15 seconds, records a reason and keeps a limited part of the response, in every case of an
// endpoint's misbehavior.
func TestBadReceivers(t *testing.T) {
	t.Parallel()
	const ok = "HTTP/1.1 200 OK\r\n"
	drip := func(c net.Conn, text string, each time.Duration) {
		for i := range text {
			if _, err := io.WriteString(c, text[i:i+1]); err != nil {
				return
			}
			time.Sleep(each)
		}
	}
	for name, tt := range map[string]struct {
		speak  func(net.Conn)
		word   string
		status int
		least  time.Duration // minimum duration of the attempt
	}{
		"slow headers": {
			func(c net.Conn) { drip(c, ok+strings.Repeat("X: y\r\n", 100), time.Second) },
			delivery.ReasonTimeout,
			0,
			15 * time.Second,
		},
		"slow but in time":         {func(c net.Conn) { drip(c, ok+"Content-Length: 0\r\n\r\n", 200*time.Millisecond) }, "", 200, 0},
		"headers and then silence": {func(c net.Conn) { io.WriteString(c, ok); io.Copy(io.Discard, c) }, delivery.ReasonTimeout, 0, 15 * time.Second},
		"silence":                  {func(c net.Conn) { io.Copy(io.Discard, c) }, delivery.ReasonTimeout, 0, 15 * time.Second},
		"slow body": {func(c net.Conn) {
			io.WriteString(c, ok+"Content-Length: 100000\r\n\r\n")
			drip(c, strings.Repeat("b", 1000), time.Second)
		}, "", 200, 15 * time.Second},
		"body that never comes": {
			func(c net.Conn) { io.WriteString(c, ok+"Content-Length: 10\r\n\r\n"); io.Copy(io.Discard, c) },
			"",
			200,
			15 * time.Second,
		},
		"endless body": {func(c net.Conn) {
			io.WriteString(c, ok+"\r\n")
			for b := bytes.Repeat([]byte("x"), 32<<10); ; {
				if _, err := c.Write(b); err != nil {
					return
				}
			}
		}, "", 200, 0},
		"endless chunks": {func(c net.Conn) {
			io.WriteString(c, ok+"Transfer-Encoding: chunked\r\n\r\n")
			for {
				if _, err := io.WriteString(c, "1\r\nx\r\n"); err != nil {
					return
				}
			}
		}, "", 200, 0},
		"huge headers": {func(c net.Conn) { io.WriteString(c, ok+"X: "+strings.Repeat("x", 1<<20)+"\r\n\r\n") }, delivery.ReasonConnection, 0, 0},
		"endless headers": {func(c net.Conn) {
			io.WriteString(c, ok)
			for {
				if _, err := io.WriteString(c, "X: y\r\n"); err != nil {
					return
				}
			}
		}, delivery.ReasonConnection, 0, 0},
		"endless interim answers": {func(c net.Conn) {
			for {
				if _, err := io.WriteString(c, "HTTP/1.1 103 Early Hints\r\n\r\n"); err != nil {
					return
				}
			}
		}, delivery.ReasonConnection, 0, 0},
		"reset":               {func(net.Conn) {}, delivery.ReasonClosedEarly, 0, 0},
		"reset in the status": {func(c net.Conn) { io.WriteString(c, "HTTP/1.") }, delivery.ReasonConnection, 0, 0},
		"no HTTP":             {func(c net.Conn) { io.WriteString(c, "hello\r\n\r\n") }, delivery.ReasonConnection, 0, 0},
		"two lengths": {
			func(c net.Conn) { io.WriteString(c, ok+"Content-Length: 1\r\nContent-Length: 2\r\n\r\nab") },
			delivery.ReasonConnection,
			0,
			0,
		},
		"negative length": {func(c net.Conn) { io.WriteString(c, ok+"Content-Length: -1\r\n\r\n") }, delivery.ReasonConnection, 0, 0},
		"short body":      {func(c net.Conn) { io.WriteString(c, ok+"Content-Length: 10\r\n\r\nabc") }, "", 200, 0},
		"bytes of no text": {
			func(c net.Conn) { io.WriteString(c, ok+"X-Y: \xff\xfe\r\nContent-Length: 3\r\n\r\n\x00\xff\x80") },
			"",
			200,
			0,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				wire := &http.Transport{MaxResponseHeaderBytes: 64 << 10}
				wire.DialTLSContext = dialTo(func(_ string, c net.Conn) { tt.speak(c) })
				defer wire.CloseIdleConnections()
				w := timeless(t, nil)
				w.c.Out = &http.Client{Transport: wire}
				h := create(t, w, "https://example.test/", "site.created")
				stop := start(t, w)
				emit(t, w, event.SiteCreated(someSite))
				time.Sleep(20 * time.Second)
				synctest.Wait()
				stop()
				time.Sleep(time.Minute) // the servers notice that the connections are closed
				list, _, err := w.Deliveries(t.Context(), anna, h.ID, 1, 1)
				if err != nil || len(list) != 1 || len(list[0].Attempts) == 0 {
					t.Fatalf("%+v, %v", list, err)
				}
				a := list[0].Attempts[0]
				took := time.Duration(a.Duration) * time.Millisecond
				if a.Error != tt.word || a.Status != tt.status || took < tt.least || took > 15*time.Second+50*time.Millisecond {
					t.Errorf("status %d %q after %s; want %d %q after %s or more", a.Status, a.Error, took, tt.status, tt.word, tt.least)
				}
				if len(a.Answer) > 3*delivery.StoredAnswer || len(a.Response) > 3*delivery.StoredAnswer {
					t.Errorf("%d bytes of the answer and %d of its head are kept", len(a.Answer), len(a.Response))
				}
				if strings.Contains(fmt.Sprint(a), "127.0.0.1") {
					t.Errorf("the log shows an address: %+v", a)
				}
			})
		})
	}
}

// dialTo connects in memory to a server that reads a whole request and then calls speak.
func dialTo(speak func(path string, c net.Conn)) func(context.Context, string, string) (net.Conn, error) {
	return func(context.Context, string, string) (net.Conn, error) {
		here, there := net.Pipe()
		go func() {
			defer there.Close()
			r, err := http.ReadRequest(bufio.NewReader(there))
			if err != nil {
				return
			}
			io.Copy(io.Discard, r.Body)
			speak(r.URL.Path, there)
		}()
		return here, nil
	}
}

// An owner's log is limited in rows as well as in time, per webhook, and unfinished deliveries always stay.
func TestLogIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := timeless(t, func(r *http.Request) (*http.Response, error) {
			if r.URL.Host == "away.test" {
				return answer(503)
			}
			return answer(200)
		})
		w.c.MaxLog = 40
		busy := create(t, w, "https://busy.test/", "site.created")
		quiet := create(t, w, "https://quiet.test/", "site.deleted")
		away := create(t, w, "https://away.test/", "site.deleted")
		create(t, w, "https://fourth.test/", "site.deleted")
		other, err := w.Create(t.Context(), bert, NewWebhook{URL: "https://other.test/", Events: []string{"site.created"}})
		if err != nil {
			t.Fatal(err)
		}
		stop := start(t, w)
		defer stop()
		for range 5 {
			emit(t, w, event.SiteDeleted(someSite))
		}
		const many = batch + 30
		for range many {
			emit(t, w, event.SiteCreated(someSite))
		}
		if err := w.c.DB.Write(t.Context(), func(tx *db.Tx) error {
			for range 30 {
				if err := w.EmitTx(t.Context(), tx, bert, event.SiteCreated(someSite)); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(25 * time.Minute) // the failed ones wait for their third attempt
		synctest.Wait()
		for hook, want := range map[ID]int{busy.ID: 10, quiet.ID: 5, away.ID: 5, other.ID: 30} {
			var got, attempts int
			if err := w.c.DB.QueryRow(t.Context(), `SELECT count(*), coalesce(sum((SELECT count(*) FROM webhook_attempts a WHERE a.delivery_id = d.id)), 0)
				FROM webhook_deliveries d WHERE hook_id = $1`, hook).Scan(&got, &attempts); err != nil {
				t.Fatal(err)
			}
			if got != want || attempts < got || hook == busy.ID && attempts != got {
				t.Errorf("%s: %d deliveries with %d attempts, want %d", hook, got, attempts, want)
			}
		}
		var orphans int
		if err := w.c.DB.QueryRow(
			t.Context(),
			`SELECT count(*) FROM webhook_attempts WHERE delivery_id NOT IN (SELECT id FROM webhook_deliveries)`,
		).Scan(&orphans); err != nil || orphans > 0 {
			t.Errorf("%d attempts of no delivery, %v", orphans, err)
		}
	})
}

// Finished deliveries, attempts, events and counts are deleted in batches after 30 days. Younger and unfinished ones
// stay.
func TestRetention(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		n := 0
		w := timeless(t, func(r *http.Request) (*http.Response, error) {
			mu.Lock()
			defer mu.Unlock()
			n++
			if r.URL.Host == "ill.test" {
				return answer(500)
			}
			return answer(200)
		})
		w.c.Keep = 30 * 24 * time.Hour
		create(t, w, "https://well.test/", "site.created")
		ill, err := w.Create(t.Context(), bert, NewWebhook{URL: "https://ill.test/", Events: []string{"site.created"}})
		if err != nil {
			t.Fatal(err)
		}
		stop := start(t, w)
		defer stop()
		const many = 3*batch + 7
		for range many {
			emit(t, w, event.SiteCreated(someSite))
		}
		if err := w.c.DB.Write(t.Context(), func(tx *db.Tx) error {
			return w.EmitTx(t.Context(), tx, bert, event.SiteCreated(someSite))
		}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(29 * 24 * time.Hour)
		synctest.Wait()
		if got := count(t, w, "webhook_deliveries"); got != many+1 {
			t.Errorf("after 29 days %d deliveries are there, want %d", got, many+1)
		}
		if list, _, _ := w.Deliveries(t.Context(), bert, ill.ID, 1, 1); list[0].State != "failed" || len(list[0].Attempts) != 10 {
			t.Errorf("%+v", list)
		}
		time.Sleep(25 * time.Hour) // the failed one ended 3 days later than the others
		synctest.Wait()
		for table, want := range map[string]int{"webhook_deliveries": 1, "webhook_attempts": 10, "webhook_events": 1} {
			if got := count(t, w, table); got != want {
				t.Errorf("after 30 days: %d rows of %s, want %d", got, table, want)
			}
		}
		time.Sleep(4 * 24 * time.Hour)
		synctest.Wait()
		for _, table := range []string{"webhook_deliveries", "webhook_attempts", "webhook_events", "webhook_hours"} {
			if got := count(t, w, table); got != 0 {
				t.Errorf("in the end %d rows of %s are left", got, table)
			}
		}
	})
}
