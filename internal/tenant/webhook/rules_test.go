package webhook

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/dbtest"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/signature"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/webhook/delivery"
	"slipway/internal/tenant/webhook/event"
)

// A host that refuses the deliveries of a user's hundred webhooks soon gets few requests. Other users and other hosts
// don't wait.
func TestHostThatRefuses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		now, most, got := 0, 0, map[string]int{}
		w := timeless(t, func(r *http.Request) (*http.Response, error) {
			mu.Lock()
			now++
			most = max(most, now)
			got[r.URL.Host+"/"+strings.Split(r.URL.Path, "/")[1]]++
			mu.Unlock()
			time.Sleep(20 * time.Millisecond)
			mu.Lock()
			defer mu.Unlock()
			now--
			if r.URL.Host == "victim.test" && strings.HasPrefix(r.URL.Path, "/anna") {
				return answer(404)
			}
			return answer(200)
		})
		for i := range 98 {
			create(t, w, fmt.Sprintf("https://victim.test/anna/%d", i), "site.updated")
		}
		create(t, w, "https://other.test/anna", "site.updated")
		if _, err := w.Create(t.Context(), bert, NewWebhook{
			URL:    "https://victim.test/bert",
			Events: []string{"site.updated"},
		}); err != nil {
			t.Fatal(err)
		}
		stop := start(t, w)
		for range 20 {
			emit(t, w, event.SiteUpdated(someSite, "name"))
		}
		if err := w.c.DB.Write(t.Context(), func(tx *db.Tx) error {
			return w.EmitTx(t.Context(), tx, bert, event.SiteUpdated(someSite, "name"))
		}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		mu.Lock()
		if got["other.test/anna"] != 20 || got["victim.test/bert"] != 1 {
			t.Errorf("other hosts or users wait: %v", got)
		}
		mu.Unlock()
		time.Sleep(time.Minute)
		synctest.Wait()
		stop()
		if n := got["victim.test/anna"]; n < 100 || n > 300 {
			t.Errorf("%d requests within a minute at a host that refuses them all", n)
		}
		if most > 200+5 {
			t.Errorf("%d requests at once", most)
		}
	})
}

// A host that answers successfully gets its deliveries as fast as it answers.
func TestHostThatAnswers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		n := 0
		w := timeless(t, func(*http.Request) (*http.Response, error) {
			mu.Lock()
			n++
			mu.Unlock()
			time.Sleep(time.Millisecond)
			return answer(200)
		})
		for i := range 50 {
			create(t, w, fmt.Sprintf("https://example.test/%d", i), "site.updated")
		}
		for range 100 {
			emit(t, w, event.SiteUpdated(someSite, "name"))
		}
		stop := start(t, w)
		time.Sleep(3 * time.Second)
		synctest.Wait()
		stop()
		if n != 5000 {
			t.Errorf("%d of 5000 sent within 3 s", n)
		}
	})
}

// After five attempts without an answer, one probe per minute is sent, and waiting deliveries keep their attempts.
func TestBreaker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var at []time.Time
		healthy := false
		var mu sync.Mutex
		w := timeless(t, func(r *http.Request) (*http.Response, error) {
			mu.Lock()
			at = append(at, time.Now())
			ok := healthy
			mu.Unlock()
			if ok {
				return answer(200)
			}
			<-r.Context().Done()
			return nil, r.Context().Err()
		})
		h := create(t, w, "https://example.test/", "site.created")
		stop := start(t, w)
		for range 30 {
			emit(t, w, event.SiteCreated(someSite))
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		mu.Lock()
		n := len(at)
		for i := 6; i < n; i++ {
			if gap := at[i].Sub(at[i-1]); gap < time.Minute {
				t.Errorf("probe %d came %s after the one before", i, gap)
			}
		}
		if n < 40 || n > 60 {
			t.Errorf("%d attempts within an hour, want about one a minute", n)
		}
		healthy = true
		mu.Unlock()
		list, _, err := w.Deliveries(t.Context(), anna, h.ID, 1, 100)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range list {
			if d.State != "pending" && d.State != "sending" {
				t.Errorf("%s gave up after %d attempts", d.ID, len(d.Attempts))
			}
		}
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		stop()
		list, _, _ = w.Deliveries(t.Context(), anna, h.ID, 1, 100)
		for _, d := range list {
			if d.State != "succeeded" {
				t.Errorf("%s is %s two hours after the endpoint came back", d.ID, d.State)
			}
		}
	})
}

// A webhook is disabled after five days of only failures. Its owner gets an email after one day and at the end.
// Restarts and other owners' failures don't change that.
func TestDisabledAfterFiveDays(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var told []string
		var mu sync.Mutex
		began := time.Now()
		w := timeless(t, func(r *http.Request) (*http.Response, error) {
			if r.URL.Host == "well.test" {
				return answer(200)
			}
			return answer(500)
		})
		w.c.Mail = mails(func(owner account.OwnerID, subject, text, path string) {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, fmt.Sprintf("%s %s after %dh, %s: %s", owner, subject, int(time.Since(began).Hours()), path, text))
		})
		h := create(t, w, "https://ill.test/", "site.created")
		well := create(t, w, "https://well.test/", "site.created")
		stop := start(t, w)
		emit(t, w, event.SiteCreated(someSite))
		time.Sleep(2 * 24 * time.Hour)
		synctest.Wait()
		stop() // a restart doesn't reset the clock
		w = &Webhooks{w.c, w.metrics, delivery.NewHosts()}
		stop = start(t, w)
		time.Sleep(2*24*time.Hour + 23*time.Hour)
		synctest.Wait()
		if now, _ := w.Get(t.Context(), anna, h.ID); !now.Active {
			t.Error("disabled before five days were over")
		}
		emit(t, w, event.SiteCreated(someSite)) // pending when the webhook is disabled
		time.Sleep(3 * time.Hour)
		synctest.Wait()
		stop()
		now, err := w.Get(t.Context(), anna, h.ID)
		if err != nil || now.Active || now.Reason != failing {
			t.Errorf("after five days: %+v, %v", now, err)
		}
		if now, _ := w.Get(t.Context(), anna, well.ID); !now.Active {
			t.Error("the healthy one was disabled")
		}
		if list, _, _ := w.Deliveries(t.Context(), anna, h.ID, 1, 1); list[0].State != "skipped" {
			t.Errorf("what waited is %s", list[0].State)
		}
		mu.Lock()
		defer mu.Unlock()
		if len(told) != 2 || !strings.HasPrefix(
			told[0],
			"usr_anna A webhook is failing after 2",
		) || !strings.HasPrefix(told[1], "usr_anna A webhook was disabled after 120") {
			t.Errorf("told %q", told)
		}
		for _, mail := range told {
			if !strings.Contains(mail, ", /webhooks/"+string(h.ID)+": ") || !strings.Contains(mail, "https://ill.test/") {
				t.Errorf("told %q", mail)
			}
		}
	})
}

// mails implements account.Mailer.
type mails func(owner account.OwnerID, subject, text, path string)

// TellOwnerTx implements account.Mailer.
func (m mails) TellOwnerTx(_ context.Context, _ *db.Tx, owner account.OwnerID, subject, text, path string) error {
	m(owner, subject, text, path)
	return nil
}

// Mails implements account.Mailer.
func (m mails) Mails() bool { return true }

// The emails about failing and disabled webhooks state since when and why.
func TestWords(t *testing.T) {
	t.Parallel()
	hook := Webhook{URL: "https://example.test/in", FailingSince: db.At(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))}
	gone := hook
	gone.Reason = "gone"
	for want, got := range map[string]string{
		"have failed since 2026-01-02T03:04:05.000Z":  textOf(hook, false),
		"all deliveries to it have failed for 5 days": textOf(hook, true),
		"its endpoint answered 410 Gone":              textOf(gone, true),
	} {
		if !strings.Contains(got, want) || !strings.Contains(got, hook.URL) {
			t.Errorf("%q doesn't say %q", got, want)
		}
	}
}

func textOf(hook Webhook, disabled bool) string {
	_, text := mailText(hook, disabled)
	return text
}

// A webhook restricted to sites gets only their events.
func TestSiteFilter(t *testing.T) {
	t.Parallel()
	r := receive(t, nil)
	w := newWebhooks(t, dbtest.New(t), r, nil)
	if _, err := w.Create(t.Context(), anna, NewWebhook{
		URL:    r.URL + "/one",
		Events: []string{"site.created"},
		Sites:  []string{"site_2", "site_2"},
	}); err != nil {
		t.Fatal(err)
	}
	create(t, w, r.URL+"/all", "site.created")
	start(t, w)
	emit(t, w, event.SiteCreated(someSite), event.SiteCreated(event.Site{ID: "site_2", Name: "two"}))
	var got []string
	for _, q := range r.wait(t, 3) {
		got = append(got, q.path+strconv.FormatBool(strings.Contains(q.body, "site_2")))
	}
	slices.Sort(got)
	if !slices.Equal(got, []string{"/allfalse", "/alltrue", "/onetrue"}) {
		t.Errorf("requests: %v", got)
	}
}

// A deleted site is removed from webhooks restricted to several sites. A webhook restricted to it alone gets no events
// from then on, instead of all.
func TestForgetSite(t *testing.T) {
	t.Parallel()
	w := newWebhooks(t, dbtest.New(t), nil, nil)
	var hooks []Webhook
	for i, sites := range [][]string{{"site_1", "site_2"}, {"site_1"}, {"site_11"}, nil} {
		h, err := w.Create(t.Context(), anna, NewWebhook{
			URL:    fmt.Sprintf("https://example.test/%d", i),
			Events: []string{"site.created"},
			Sites:  sites,
		})
		if err != nil {
			t.Fatal(err)
		}
		hooks = append(hooks, h)
	}
	for range 2 { // repeated after a crash
		if err := w.c.DB.Write(t.Context(), func(tx *db.Tx) error { return w.ForgetSiteTx(t.Context(), tx, "site_1") }); err != nil {
			t.Fatal(err)
		}
	}
	for i, want := range []string{"site_2", "site_1", "site_11", ""} {
		if h, err := w.Get(t.Context(), anna, hooks[i].ID); err != nil || strings.Join(h.SiteIDs, " ") != want {
			t.Errorf("webhook %d is restricted to %v, want %q (%v)", i, h.SiteIDs, want, err)
		}
	}
	emit(t, w, event.SiteCreated(event.Site{ID: "site_3"}))
	if n := count(t, w, "webhook_deliveries"); n != 1 {
		t.Errorf("%d deliveries of another site's event, want the one of the webhook for all sites", n)
	}
}

func TestOneURLOnce(t *testing.T) {
	t.Parallel()
	w := newWebhooks(t, dbtest.New(t), nil, nil)
	h := create(t, w, "https://example.test", "site.created")
	second := create(t, w, "https://example.test/2", "site.created")
	for _, url := range []string{"https://example.test/", "https://EXAMPLE.test:443", "https://example.test/?"} {
		if _, err := w.Create(t.Context(), anna, NewWebhook{URL: url, Events: []string{"site.deleted"}}); !fault.Is(err, fault.Conflict) {
			t.Errorf("%s: %v, want a conflict", url, err)
		}
		if _, err := w.Update(t.Context(), anna, second.ID, Change{URL: &url}); !fault.Is(err, fault.Conflict) {
			t.Errorf("changed to %s: %v, want a conflict", url, err)
		}
	}
	if _, err := w.Create(t.Context(), bert, NewWebhook{URL: h.URL, Events: []string{"site.deleted"}}); err != nil {
		t.Errorf("another user's: %v", err)
	}
	if err := w.Delete(t.Context(), anna, h.ID); err != nil {
		t.Fatal(err)
	}
	create(t, w, h.URL, "site.created")
}

func TestUpdateThatChangesNothing(t *testing.T) {
	t.Parallel()
	w := newWebhooks(t, dbtest.New(t), nil, nil)
	h := create(t, w, "https://example.test/", "site.created", "site.deleted")
	time.Sleep(2 * time.Millisecond)
	again, err := w.Update(t.Context(), anna, h.ID, Change{
		URL:    &h.URL,
		Events: []string{"site.created", "site.deleted"},
		Active: ptr(true),
		Sites:  []string{},
	})
	if err != nil || again.UpdatedAt != h.UpdatedAt {
		t.Errorf("%+v, %v; was %+v", again, err, h)
	}
}

// During a rotation, receivers with the old secret, the new one or both accept every delivery, and the rotation ends by
// itself. Without an overlap the old secret ends at once.
func TestRotation(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var last *http.Request
		var body []byte
		w := timeless(t, func(r *http.Request) (*http.Response, error) {
			last, body = r, make([]byte, r.ContentLength)
			r.Body.Read(body)
			return answer(200)
		})
		h := create(t, w, "https://example.test/", "site.created")
		stop := start(t, w)
		rotate := func(s string, overlap time.Duration) (x Webhook, err error) {
			err = w.c.DB.Write(t.Context(), func(tx *db.Tx) error {
				x, err = w.RotateTx(t.Context(), tx, anna, h.ID, &s, overlap)
				return err
			})
			return x, err
		}
		check := func(when, main, next string, standard ...string) {
			t.Helper()
			emit(t, w, event.SiteCreated(someSite))
			synctest.Wait()
			if got := last.Header.Get("X-Service-Signature"); got != signature.Of(main, body) {
				t.Errorf("%s: X-Service-Signature is not keyed with %q", when, main)
			}
			want := ""
			if next != "" {
				want = signature.Of(next, body)
			}
			if got := last.Header.Get("X-Service-Signature-Next"); got != want {
				t.Errorf("%s: X-Service-Signature-Next is %q, want %q", when, got, want)
			}
			sec, _ := strconv.ParseInt(last.Header.Get("Webhook-Timestamp"), 10, 64)
			var sigs []string
			for _, s := range standard {
				sigs = append(sigs, signature.Standard(s, last.Header.Get("Webhook-Id"), time.Unix(sec, 0), body))
			}
			if got := last.Header.Get("Webhook-Signature"); got != strings.Join(sigs, " ") {
				t.Errorf("%s: webhook-signature %q is not keyed with %q", when, got, standard)
			}
		}
		check("before", secret, "", secret)
		x, err := rotate("the new secret", Overlap)
		if err != nil || x.OverlapEnds == 0 || x.Generated {
			t.Fatalf("%+v, %v", x, err)
		}
		check("during", secret, "the new secret", "the new secret", secret)
		if _, err := rotate("a third one", Overlap); !fault.Is(err, fault.Conflict) {
			t.Errorf("a rotation within a rotation: %v", err)
		}
		if _, err := rotate("the new secret", 0); !fault.Is(err, fault.Invalid) {
			t.Errorf("the same secret: %v", err)
		}
		time.Sleep(25 * time.Hour)
		check("after", "the new secret", "", "the new secret")
		if _, err := rotate("a third one", 10*time.Minute); err != nil {
			t.Fatal(err)
		}
		if x, err := rotate("the last one", 0); err != nil || x.OverlapEnds != 0 {
			t.Fatalf("at once: %+v, %v", x, err)
		}
		check("at once", "the last one", "", "the last one")
		stop()
	})
}
