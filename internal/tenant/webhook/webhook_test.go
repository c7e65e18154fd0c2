package webhook

import (
	"context"
	"crypto/hmac"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/dbtest"
	"slipway/internal/platform/egress"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/seal"
	"slipway/internal/platform/signature"
	"slipway/internal/platform/wait"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/webhook/delivery"
	"slipway/internal/tenant/webhook/event"
)

const (
	anna   account.OwnerID = "usr_anna"
	bert   account.OwnerID = "usr_bert"
	secret                 = "a secret of the owner's own"
)

var someSite = event.Site{ID: "site_1", Name: `<My "Site"> & Söhne`}

// request is what a receiver got.
type request struct {
	path   string
	header http.Header
	body   string
	at     time.Time
}

// receiver is a TLS server on loopback that records its requests.
type receiver struct {
	*httptest.Server
	mu     sync.Mutex // guards got
	got    []request
	change chan struct{}
}

func receive(t testing.TB, answer http.HandlerFunc) *receiver {
	t.Helper()
	r := &receiver{change: make(chan struct{}, 1)}
	r.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		b, _ := io.ReadAll(req.Body)
		r.mu.Lock()
		r.got = append(r.got, request{req.URL.Path, req.Header.Clone(), string(b), time.Now()})
		r.mu.Unlock()
		select {
		case r.change <- struct{}{}:
		default:
		}
		if answer != nil {
			answer(w, req)
		}
	}))
	r.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	r.StartTLS()
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) requests() []request {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]request(nil), r.got...)
}

func (r *receiver) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.got)
}

// wait waits until the receiver has n requests.
func (r *receiver) wait(t testing.TB, n int) []request {
	t.Helper()
	late := time.After(time.Minute)
	for {
		if got := r.requests(); len(got) >= n {
			return got
		}
		select {
		case <-r.change:
		case <-late:
			t.Fatalf("%d requests came, want %d", len(r.requests()), n)
		}
	}
}

// client trusts the receivers and may connect to loopback.
func client(t testing.TB, r *receiver, timeout time.Duration) *http.Client {
	t.Helper()
	c := egress.Config{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}
	if r != nil {
		c.Roots = r.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	}
	e, err := egress.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return e.PooledClient(timeout, 256)
}

func newWebhooks(t testing.TB, d *db.DB, r *receiver, change func(*Config)) *Webhooks {
	t.Helper()
	s, err := seal.Load(filepath.Join(t.TempDir(), "key"))
	if err != nil {
		t.Fatal(err)
	}
	c := Config{DB: d, Seal: s, Out: client(t, r, 15*time.Second)}
	if change != nil {
		change(&c)
	}
	return New(c)
}

// start runs the dispatcher until the test ends or stop is called.
func start(t testing.TB, w *Webhooks) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(stop)
	return stop
}

func create(t testing.TB, w *Webhooks, url string, events ...string) Webhook {
	t.Helper()
	h, err := w.Create(context.Background(), anna, NewWebhook{URL: url, Events: events, Secret: ptr(secret)})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func ptr[T any](v T) *T { return &v }

func emit(t testing.TB, w *Webhooks, events ...event.Event) {
	t.Helper()
	err := w.c.DB.Write(context.Background(), func(tx *db.Tx) error {
		for _, e := range events {
			if err := w.EmitTx(context.Background(), tx, anna, e); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// settle waits until ok accepts the newest delivery.
func settle(t testing.TB, w *Webhooks, hook ID, ok func(Delivery) bool) Delivery {
	t.Helper()
	var list []Delivery
	wait.Until(t, "a delivery is as wanted", func() bool {
		var err error
		if list, _, err = w.Deliveries(context.Background(), anna, hook, 1, 100); err != nil {
			t.Fatal(err)
		}
		return len(list) > 0 && ok(list[0])
	}, func() string { return fmt.Sprintf("%+v", list) })
	return list[0]
}

func tried(n int) func(Delivery) bool {
	return func(d Delivery) bool { return len(d.Attempts) >= n && d.State != "sending" }
}

func TestDelivery(t *testing.T) {
	t.Parallel()
	r := receive(t, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "thank you") })
	w := newWebhooks(t, dbtest.New(t), r, nil)
	start(t, w)
	h := create(t, w, r.URL+"/a", "deployment.completed", "site.created")
	create(t, w, r.URL+"/other", "payment.failed")
	began := time.Now()
	emit(t, w, event.DeploymentCompleted(someSite, event.Deployment{
		ID:          "dep_1",
		URL:         "https://x.test",
		Status:      "ready",
		Branch:      "main",
		CommitHash:  "abc",
		Trigger:     "api",
		Target:      "production",
		CreatedAt:   1767225600000,
		StartedAt:   1767225601000,
		CompletedAt: 1767225643900,
	}))
	got := r.wait(t, 1)[0]
	d := settle(t, w, h.ID, func(d Delivery) bool { return d.State == "succeeded" })
	want := `{"id":"` + d.EventID + `","event":"deployment.completed","timestamp":"` + d.CreatedAt.String() + `","data":{"site":{"id":"site_1","name":"<My \"Site\"> & Söhne"},` +
		`"deployment":{"id":"dep_1","url":"https://x.test","status":"ready","branch":"main","commitHash":"abc","commitMessage":null,"commitAuthor":null,` +
		`"trigger":"api","target":"production","error":null,"createdAt":"2026-01-01T00:00:00.000Z","startedAt":"2026-01-01T00:00:01.000Z","completedAt":"2026-01-01T00:00:43.900Z","duration":42}}}`
	if got.body != want || d.Body != want {
		t.Errorf("body\n%s\nwant\n%s", got.body, want)
	}
	for name, want := range map[string]string{
		"Content-Type":        "application/json",
		"User-Agent":          "Slipway-Webhooks/1",
		"X-Service-Event":     "deployment.completed",
		"X-Service-Delivery":  string(d.ID),
		"X-Service-Attempt":   "1",
		"X-Service-Signature": signature.Of(secret, []byte(want)),
		"Webhook-Id":          d.EventID,
		"X-Service-Timestamp": got.header.Get("Webhook-Timestamp"),
	} {
		if got.header.Get(name) != want {
			t.Errorf("%s: %q, want %q", name, got.header.Get(name), want)
		}
	}
	var sec int64
	for _, c := range got.header.Get("Webhook-Timestamp") {
		sec = sec*10 + int64(c-'0')
	}
	if sent := time.Unix(
		sec,
		0,
	); sent.Before(began.Truncate(time.Second)) || sent.After(time.Now()) || !hmac.Equal(
		[]byte(got.header.Get("Webhook-Signature")),
		[]byte(signature.Standard(secret, d.EventID, sent, []byte(want))),
	) {
		t.Errorf("webhook-signature %q at %s", got.header.Get("Webhook-Signature"), sent)
	}
	if len(d.Attempts) != 1 || d.Attempts[0].Status != 200 || d.Attempts[0].Answer != "thank you" || d.Attempts[0].Error != "" ||
		d.NextAt != 0 ||
		d.FinishedAt == 0 {
		t.Errorf("delivery: %+v", d)
	}
	if all := r.requests(); len(all) != 1 {
		t.Errorf("%d requests, want 1 for the only subscribed webhook", len(all))
	}
}

func TestBothVocabularies(t *testing.T) {
	t.Parallel()
	r := receive(t, nil)
	w := newWebhooks(t, dbtest.New(t), r, nil)
	start(t, w)
	create(t, w, r.URL+"/a", "deployment.started", "deployment.started")
	create(t, w, r.URL+"/b", "deployment.created")
	create(t, w, r.URL+"/both", "deployment.created", "deployment.started")
	emit(t, w, event.DeploymentStarted(someSite, event.Deployment{ID: "dep_1"}))
	ids := map[string]bool{}
	names := map[string]int{}
	for _, q := range r.wait(t, 4) {
		names[q.path+" "+q.header.Get("X-Service-Event")]++
		if !strings.Contains(q.body, `"event":"`+q.header.Get("X-Service-Event")+`"`) {
			t.Errorf("%s: body %s", q.path, q.body)
		}
		if q.path == "/both" {
			ids[q.header.Get("Webhook-Id")] = true
		}
	}
	if len(names) != 4 || names["/a deployment.started"] != 1 || names["/b deployment.created"] != 1 || len(ids) != 2 {
		t.Errorf("got %v, ids %v", names, ids)
	}
}

func TestRollbackSendsNothing(t *testing.T) {
	t.Parallel()
	w := newWebhooks(t, dbtest.New(t), nil, nil)
	h := create(t, w, "https://example.test/", "site.created")
	boom := errors.New("boom")
	err := w.c.DB.Write(t.Context(), func(tx *db.Tx) error {
		if err := w.EmitTx(t.Context(), tx, anna, event.SiteCreated(someSite)); err != nil {
			return err
		}
		return boom
	})
	if !errors.Is(err, boom) {
		t.Fatal(err)
	}
	if list, n, err := w.Deliveries(t.Context(), anna, h.ID, 1, 25); len(list) != 0 || n != 0 || err != nil {
		t.Errorf("%v, %d, %v", list, n, err)
	}
}

// Each kind of response leads to success, a retry or a disabled webhook.
func TestAnswers(t *testing.T) {
	t.Parallel()
	trap := receive(t, nil)
	for name, tt := range map[string]struct {
		answer http.HandlerFunc
		state  string
		err    string
		status int
	}{
		"200": {status(200), "succeeded", "", 200},
		"204": {status(204), "succeeded", "", 204},
		"299": {status(299), "succeeded", "", 299},
		"300": {status(300), "pending", "redirect_not_followed", 300},
		"304": {status(304), "pending", "", 304},
		"400": {status(400), "pending", "", 400},
		"404": {status(404), "pending", "", 404},
		"410": {status(410), "failed", "", 410},
		"500": {status(500), "pending", "", 500},
		"599": {status(599), "pending", "", 599},
		"redirect": {
			func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, trap.URL, http.StatusFound) },
			"pending",
			"redirect_not_followed",
			302,
		},
		"redirect 307": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, trap.URL, http.StatusTemporaryRedirect)
		}, "pending", "redirect_not_followed", 307},
		"no answer": {func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, "pending", "timeout", 0},
		"cut off":   {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "pending", "closed_early", 0},
		"huge headers": {
			func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X", strings.Repeat("x", 200<<10)) },
			"pending",
			"connection_error",
			0,
		},
		"endless body":  {endless, "succeeded", "", 200},
		"dripping body": {drip, "succeeded", "", 200},
		"not UTF-8":     {func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("a\x00\xffb")) }, "succeeded", "", 200},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := receive(t, tt.answer)
			w := newWebhooks(t, dbtest.New(t), r, func(c *Config) {
				c.Timeout = time.Minute
				if tt.err == "timeout" || name == "dripping body" {
					c.Timeout = 500 * time.Millisecond
				}
			})
			start(t, w)
			h := create(t, w, r.URL, "site.created")
			emit(t, w, event.SiteCreated(someSite))
			d := settle(t, w, h.ID, tried(1))
			a := d.Attempts[0]
			if d.State != tt.state || a.Status != tt.status || a.Error != tt.err || len(a.Answer) > delivery.StoredAnswer || a.Duration > 30_000 {
				t.Errorf("state %s, attempt %+v; want %s, %d %q", d.State, a, tt.state, tt.status, tt.err)
			}
			if d.State == "pending" {
				// The delay counts from when the response was stored.
				if delay := d.NextAt.Sub(a.StartedAt) - time.Duration(a.Duration)*time.Millisecond; delay < 4400*time.Millisecond ||
					delay > time.Minute {
					t.Errorf("the next attempt is %s away, want about 5 s", delay)
				}
			}
			if h, _ = w.Get(t.Context(), anna, h.ID); h.Active == (tt.status == 410) || h.Reason == "gone" != (tt.status == 410) {
				t.Errorf("webhook: %+v", h)
			}
			if n := len(r.requests()); n != 1 {
				t.Errorf("%d requests, want 1", n)
			}
		})
	}
	t.Cleanup(func() {
		if n := len(trap.requests()); n != 0 {
			t.Errorf("redirects were followed: %d requests", n)
		}
	})
}

func status(n int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(n) }
}

func endless(w http.ResponseWriter, r *http.Request) {
	for b := []byte(strings.Repeat("x", 32<<10)); r.Context().Err() == nil; {
		if _, err := w.Write(b); err != nil {
			return
		}
	}
}

func drip(w http.ResponseWriter, r *http.Request) {
	for r.Context().Err() == nil {
		io.WriteString(w, "x")
		w.(http.Flusher).Flush()
		select {
		case <-r.Context().Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func TestUnreachable(t *testing.T) {
	t.Parallel()
	r := receive(t, nil)
	closed := receive(t, nil)
	closed.Close()
	for name, tt := range map[string]struct {
		url, err string
		out      *http.Client
	}{
		"blocked": {
			r.URL,
			"blocked_address",
			func() *http.Client { e, _ := egress.New(egress.Config{}); return e.Client(time.Second) }(),
		},
		"nobody":     {closed.URL, "connect_error", client(t, r, time.Second)},
		"distrusted": {r.URL, "certificate_unknown_authority", client(t, nil, time.Second)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWebhooks(t, dbtest.New(t), r, func(c *Config) { c.Out = tt.out })
			start(t, w)
			h := create(t, w, tt.url, "site.created")
			emit(t, w, event.SiteCreated(someSite))
			if a := settle(t, w, h.ID, tried(1)).Attempts[0]; a.Error != tt.err || a.Status != 0 || a.Answer != "" {
				t.Errorf("attempt %+v, want %s", a, tt.err)
			}
			if h, _ := w.Get(t.Context(), anna, h.ID); h.FailingSince == 0 {
				t.Error("the webhook doesn't know that it fails")
			}
		})
	}
}

func TestGoneSkipsTheRest(t *testing.T) {
	t.Parallel()
	r := receive(t, status(410))
	w := newWebhooks(t, dbtest.New(t), r, nil)
	h := create(t, w, r.URL, "site.created")
	for range 20 {
		emit(t, w, event.SiteCreated(someSite))
	}
	start(t, w)
	var n map[string]int
	wait.Until(t, "16 of 20 or more are skipped", func() bool {
		list, _, err := w.Deliveries(t.Context(), anna, h.ID, 1, 100)
		if err != nil {
			t.Fatal(err)
		}
		n = map[string]int{}
		for _, d := range list {
			n[d.State]++
		}
		return n["skipped"] >= 16 && n["failed"] == len(r.requests()) && n["skipped"]+n["failed"] == 20
	}, func() string { return fmt.Sprint(n) })
	emit(t, w, event.SiteCreated(someSite))
	if list, n, _ := w.Deliveries(t.Context(), anna, h.ID, 1, 1); n != 21 || list[0].State != "skipped" || len(list[0].Attempts) != 0 {
		t.Errorf("%d deliveries: what a webhook misses while it is disabled is noted as skipped: %+v", n, list[0])
	}
	if _, err := w.Ping(t.Context(), anna, h.ID); !fault.Is(err, fault.Conflict) {
		t.Errorf("ping: %v", err)
	}
	on := true
	if h, err := w.Update(t.Context(), anna, h.ID, Change{Active: &on}); err != nil || !h.Active || h.Reason != "" {
		t.Errorf("turned on again: %+v, %v", h, err)
	}
	if _, err := w.Ping(t.Context(), anna, h.ID); err != nil {
		t.Errorf("ping: %v", err)
	}
}

func TestStore(t *testing.T) {
	t.Parallel()
	w := newWebhooks(t, dbtest.New(t), nil, nil)
	ctx := t.Context()
	for name, n := range map[string]NewWebhook{
		"http":            {URL: "http://example.test", Events: []string{"site.created"}},
		"no events":       {URL: "https://example.test"},
		"unknown":         {URL: "https://example.test", Events: []string{"site.exploded"}},
		"ping":            {URL: "https://example.test", Events: []string{"ping"}},
		"long secret":     {URL: "https://example.test", Events: []string{"site.created"}, Secret: ptr(strings.Repeat("ä", 257))},
		"empty secret":    {URL: "https://example.test", Events: []string{"site.created"}, Secret: ptr("")},
		"bytes as secret": {URL: "https://example.test", Events: []string{"site.created"}, Secret: ptr("\xff")},
	} {
		if h, err := w.Create(ctx, anna, n); !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: %+v, %v", name, h, err)
		}
	}
	own := create(t, w, "https://example.test/1", "site.created", "deployment.failed", "site.created")
	made, err := w.Create(ctx, anna, NewWebhook{URL: "https://example.test/2", Events: []string{"site.deleted"}})
	if err != nil {
		t.Fatal(err)
	}
	if len(own.Events) != 2 || !own.Active || own.Generated || !made.Generated {
		t.Errorf("%+v, %+v", own, made)
	}
	if s, err := w.Reveal(ctx, anna, made.ID); err != nil || !strings.HasPrefix(s, "whsec_") {
		t.Errorf("Reveal = %q, %v", s, err)
	}
	if s, err := w.Reveal(ctx, anna, own.ID); !fault.Is(err, fault.Conflict) || s != "" {
		t.Errorf("Reveal of a given secret = %q, %v", s, err)
	}
	var stored string
	if err := w.c.DB.QueryRow(
		ctx,
		`SELECT secret FROM webhooks WHERE id = $1`,
		own.ID,
	).Scan(&stored); err != nil || strings.Contains(stored, secret) {
		t.Errorf("the secret lies open: %q, %v", stored, err)
	}
	list, err := w.List(ctx, anna)
	if err != nil || len(list) != 2 || list[0].ID != made.ID {
		t.Errorf("List = %+v, %v", list, err)
	}
	// Another owner's webhooks can't be read or changed.
	off, url := false, "https://example.test/3"
	for name, err := range map[string]error{
		"get":     second(w.Get(ctx, bert, own.ID)),
		"update":  second(w.Update(ctx, bert, own.ID, Change{Active: &off})),
		"delete":  w.Delete(ctx, bert, own.ID),
		"reveal":  second(w.Reveal(ctx, bert, made.ID)),
		"ping":    second(w.Ping(ctx, bert, own.ID)),
		"log":     func() error { _, _, err := w.Deliveries(ctx, bert, own.ID, 1, 25); return err }(),
		"unknown": second(w.Get(ctx, anna, "hook_nope")),
	} {
		if !fault.Is(err, fault.NotFound) {
			t.Errorf("%s: %v, want NotFound", name, err)
		}
	}
	if list, _ := w.List(ctx, bert); len(list) != 0 {
		t.Errorf("bert has %v", list)
	}
	bad := "http://example.test"
	if _, err := w.Update(ctx, anna, own.ID, Change{URL: &bad}); !fault.Is(err, fault.Invalid) {
		t.Errorf("bad update: %v", err)
	}
	h, err := w.Update(ctx, anna, own.ID, Change{URL: &url, Events: []string{"ssl.failed"}, Active: &off})
	if again, _ := w.Get(
		ctx,
		anna,
		own.ID,
	); err != nil || h.URL != url || h.Active || len(h.Events) != 1 || again.URL != url || again.Events[0] != "ssl.failed" || again.Active {
		t.Errorf("Update = %+v, %v; stored %+v", h, err, again)
	}
	for i := 0; err == nil && i < 200; i++ {
		_, err = w.Create(ctx, anna, NewWebhook{URL: fmt.Sprintf("https://example.test/many/%d", i), Events: []string{"site.created"}})
	}
	if !fault.Is(err, fault.Payment) {
		t.Errorf("one too many: %v", err)
	}
}

func second[T any](_ T, err error) error { return err }

// Calls inside a caller's transaction roll back with it, and closing one owner doesn't affect another.
func TestTwinsJoinTheirTransaction(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	w := newWebhooks(t, d, nil, nil)
	ctx := t.Context()
	h, spare := create(t, w, "https://example.test/a", "site.deleted"), create(t, w, "https://example.test/b", "site.deleted")
	theirs, err := w.Create(ctx, bert, NewWebhook{URL: "https://example.test/c", Events: []string{"site.deleted"}})
	if err != nil {
		t.Fatal(err)
	}
	off, back := false, errors.New("taken back")
	for name, do := range map[string]func(tx *db.Tx) error{
		"update": func(tx *db.Tx) error { return second(w.UpdateTx(ctx, tx, anna, h.ID, Change{Active: &off})) },
		"delete": func(tx *db.Tx) error { return second(w.DeleteTx(ctx, tx, anna, h.ID)) },
		"all":    func(tx *db.Tx) error { return w.DeleteAllTx(ctx, tx, anna) },
	} {
		if err := d.Write(ctx, func(tx *db.Tx) error { return errors.Join(do(tx), back) }); !errors.Is(err, back) || fault.As(err) != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got, err := w.Get(ctx, anna, h.ID); err != nil || !got.Active {
			t.Errorf("%s was taken back, and the webhook is %+v, %v", name, got, err)
		}
	}
	if err := d.Write(ctx, func(tx *db.Tx) error {
		gone, err := w.DeleteTx(ctx, tx, anna, h.ID)
		if gone.URL != h.URL {
			t.Errorf("deleted %+v, want %s", gone, h.URL)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if err := d.Write(ctx, func(tx *db.Tx) error { return w.DeleteAllTx(ctx, tx, anna) }); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Get(ctx, anna, spare.ID); !fault.Is(err, fault.NotFound) {
		t.Errorf("after all of them: %v", err)
	}
	if _, err := w.Get(ctx, bert, theirs.ID); err != nil {
		t.Errorf("another owner's: %v", err)
	}
}

func TestDeleteStopsDeliveries(t *testing.T) {
	t.Parallel()
	r := receive(t, nil)
	w := newWebhooks(t, dbtest.New(t), r, nil)
	h := create(t, w, r.URL+"/deleted", "site.deleted")
	other := create(t, w, r.URL+"/kept", "site.deleted")
	emit(t, w, event.SiteDeleted(someSite))
	if err := w.Delete(t.Context(), anna, h.ID); err != nil {
		t.Fatal(err)
	}
	if err := w.Delete(t.Context(), anna, h.ID); !fault.Is(err, fault.NotFound) {
		t.Errorf("again: %v", err)
	}
	start(t, w)
	settle(t, w, other.ID, func(d Delivery) bool { return d.State == "succeeded" })
	if got := r.requests(); len(got) != 1 || got[0].path != "/kept" {
		t.Errorf("requests: %+v", got)
	}
	if err := w.purge(t.Context()); err != nil {
		t.Fatal(err)
	}
	for table, want := range map[string]int{"webhooks": 1, "webhook_deliveries": 1, "webhook_attempts": 1, "webhook_events": 1} {
		if n := count(t, w, table); n != want {
			t.Errorf("%s: %d rows, want %d", table, n, want)
		}
	}
	// Deliveries older than the retention are deleted, too.
	w.c.Keep = -time.Hour
	if err := w.purge(t.Context()); err != nil {
		t.Fatal(err)
	}
	for table, want := range map[string]int{"webhooks": 1, "webhook_deliveries": 0, "webhook_attempts": 0, "webhook_events": 0} {
		if n := count(t, w, table); n != want {
			t.Errorf("%s after the purge: %d rows, want %d", table, n, want)
		}
	}
}

func count(t testing.TB, w *Webhooks, table string) (n int) {
	t.Helper()
	if err := w.c.DB.QueryRow(context.Background(), `SELECT count(*) FROM `+table).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}
