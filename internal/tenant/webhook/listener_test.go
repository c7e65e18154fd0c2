package webhook

import (
	"net/http"
	"strconv"
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

func listen(t *testing.T, w *Webhooks, owner account.OwnerID, n NewListener) (l Listener, err error) {
	t.Helper()
	err = w.c.DB.Write(t.Context(), func(tx *db.Tx) error {
		l, err = w.ListenTx(t.Context(), tx, owner, n)
		return err
	})
	return l, err
}

// A listener fetches the events that a webhook would get, as often as it asks, and isn't listed with the webhooks.
func TestListener(t *testing.T) {
	t.Parallel()
	w := newWebhooks(t, dbtest.New(t), nil, nil)
	start(t, w)
	l, err := listen(t, w, anna, NewListener{Secret: secret, Events: []string{"site.created"}, Sites: []string{"site_1"}})
	if err != nil {
		t.Fatal(err)
	}
	wake, stop := w.Listen(l.ID)
	defer stop()
	emit(t, w, event.SiteCreated(someSite), event.SiteDeleted(someSite), event.SiteCreated(event.Site{ID: "site_2"}))
	select {
	case <-wake:
	case <-time.After(time.Minute):
		t.Fatal("no listener was woken")
	}
	got, err := w.Fetch(t.Context(), anna, l.ID, 0)
	if err != nil || len(got) != 1 || got[0].Event != "site.created" {
		t.Fatalf("%+v, %v", got, err)
	}
	o := got[0]
	at, _ := strconv.ParseInt(o.Header["Webhook-Timestamp"], 10, 64)
	if o.Header["X-Service-Signature"] != signature.Of(
		secret,
		[]byte(o.Body),
	) || o.Header["Webhook-Signature"] != signature.Standard(secret, o.EventID, time.Unix(at, 0), []byte(o.Body)) ||
		o.Header["X-Service-Hop"] != "1" || o.Header["X-Service-Delivery"] != string(o.ID) {
		t.Errorf("headers %v", o.Header)
	}
	if again, err := w.Fetch(t.Context(), anna, l.ID, 0); err != nil || len(again) != 1 || again[0].N != o.N || again[0].Body != o.Body {
		t.Errorf("once more: %+v, %v", again, err)
	}
	if rest, err := w.Fetch(t.Context(), anna, l.ID, o.N); err != nil || len(rest) != 0 {
		t.Errorf("after it: %+v, %v", rest, err)
	}
	for range 2*maxFetch + 3 {
		emit(t, w, event.SiteCreated(someSite))
	}
	n, after := 0, o.N
	for {
		list, err := w.Fetch(t.Context(), anna, l.ID, after)
		if err != nil {
			t.Fatal(err)
		}
		if len(list) == 0 {
			break
		}
		for _, x := range list {
			if x.N <= after {
				t.Errorf("number %d after %d", x.N, after)
			}
			after = x.N
			n++
		}
	}
	if n != 2*maxFetch+3 {
		t.Errorf("%d came, want %d", n, 2*maxFetch+3)
	}
	for what, err := range map[string]error{
		"another's":     second(w.Fetch(t.Context(), bert, l.ID, 0)),
		"as a webhook":  second(w.Get(t.Context(), anna, l.ID)),
		"reveal":        second(w.Reveal(t.Context(), anna, l.ID)),
		"update":        second(w.Update(t.Context(), anna, l.ID, Change{Active: ptr(false)})),
		"ping":          second(w.Ping(t.Context(), anna, l.ID)),
		"delete":        w.Delete(t.Context(), anna, l.ID),
		"another's end": w.c.DB.Write(t.Context(), func(tx *db.Tx) error { return w.StopListeningTx(t.Context(), tx, bert, l.ID) }),
	} {
		if !fault.Is(err, fault.NotFound) {
			t.Errorf("%s: %v, want not found", what, err)
		}
	}
	if list, _ := w.List(t.Context(), anna); len(list) != 0 {
		t.Errorf("it is among the webhooks: %+v", list)
	}
	if err := w.c.DB.Write(t.Context(), func(tx *db.Tx) error { return w.StopListeningTx(t.Context(), tx, anna, l.ID) }); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Fetch(t.Context(), anna, l.ID, 0); !fault.Is(err, fault.NotFound) {
		t.Errorf("after the end: %v", err)
	}
}

func TestListenerLimits(t *testing.T) {
	t.Parallel()
	w := newWebhooks(t, dbtest.New(t), nil, nil)
	for name, n := range map[string]NewListener{
		"no secret": {},
		"events":    {Secret: "s", Events: []string{"x"}},
		"sites":     {Secret: "s", Sites: []string{"x"}},
	} {
		if _, err := listen(t, w, anna, n); !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for i := range maxListeners {
		l, err := listen(t, w, anna, NewListener{Secret: "s"})
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 && (len(l.Events) != 27 || l.Events[0] != "deployment.started") {
			t.Errorf("all events: %v", l.Events)
		}
	}
	if _, err := listen(t, w, anna, NewListener{Secret: "s"}); !fault.Is(err, fault.Conflict) {
		t.Errorf("one too many: %v", err)
	}
	if _, err := listen(t, w, bert, NewListener{Secret: "s"}); err != nil {
		t.Errorf("another's first: %v", err)
	}
}

// A listener expires five minutes after its last fetch, with its events. Events that aren't fetched are deleted after
// an hour.
func TestListenerEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := timeless(t, func(*http.Request) (*http.Response, error) { return answer(200) })
		stop := start(t, w)
		defer stop()
		kept, err := listen(t, w, anna, NewListener{Secret: "s"})
		if err != nil {
			t.Fatal(err)
		}
		left, err := listen(t, w, anna, NewListener{Secret: "s"})
		if err != nil {
			t.Fatal(err)
		}
		emit(t, w, event.SiteCreated(someSite))
		first, err := w.Fetch(t.Context(), anna, kept.ID, 0)
		if err != nil || len(first) != 1 {
			t.Fatalf("%v, %v", first, err)
		}
		for range 100 {
			time.Sleep(4 * time.Minute)
			if _, err := w.Fetch(t.Context(), anna, kept.ID, first[0].N); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := w.Fetch(t.Context(), anna, left.ID, 0); !fault.Is(err, fault.NotFound) {
			t.Errorf("a listener without a fetch: %v", err)
		}
		synctest.Wait()
		if n := count(t, w, "webhook_deliveries"); n != 0 {
			t.Errorf("%d deliveries are left", n)
		}
		emit(t, w, event.SiteCreated(someSite))
		if next, err := w.Fetch(t.Context(), anna, kept.ID, first[0].N); err != nil || len(next) != 1 || next[0].N <= first[0].N {
			t.Errorf("after the numbers were forgotten: %+v, %v", next, err)
		}
		time.Sleep(20 * time.Minute)
		synctest.Wait()
		if n := count(t, w, "webhooks"); n != 0 {
			t.Errorf("%d listeners are left", n)
		}
	})
}

// Concurrent fetches from one listener see every event with the same number while events are emitted.
func TestListenerShared(t *testing.T) {
	t.Parallel()
	w := newWebhooks(t, dbtest.New(t), nil, nil)
	l, err := listen(t, w, anna, NewListener{Secret: "s"})
	if err != nil {
		t.Fatal(err)
	}
	const many = 60
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			for range many / 3 {
				emit(t, w, event.SiteCreated(someSite))
			}
		})
	}
	var mu sync.Mutex
	numbers := map[delivery.ID]int64{}
	for range 3 {
		all.Go(func() {
			wake, stop := w.Listen(l.ID)
			defer stop()
			seen, after, deadline := 0, int64(0), time.After(time.Minute)
			for seen < many {
				list, err := w.Fetch(t.Context(), anna, l.ID, after)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				for _, o := range list {
					if n := numbers[o.ID]; n != 0 && n != o.N {
						t.Errorf("%s has the numbers %d and %d", o.ID, n, o.N)
					}
					numbers[o.ID], after = o.N, o.N
					seen++
				}
				mu.Unlock()
				if len(list) > 0 {
					continue
				}
				select {
				case <-wake:
				case <-deadline:
					t.Errorf("%d of %d came", seen, many)
					return
				}
			}
		})
	}
	all.Wait()
	if len(numbers) != many {
		t.Errorf("%d deliveries, want %d", len(numbers), many)
	}
}
