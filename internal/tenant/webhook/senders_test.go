package webhook

import (
	"context"
	"testing"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/dbtest"
	"slipway/internal/tenant/webhook/event"
)

// A delivery whose event can't be read isn't sent. It is returned to the queue and not retried at once.
func TestUnreadEventGoesBack(t *testing.T) {
	t.Parallel()
	r := receive(t, nil)
	w := newWebhooks(t, dbtest.New(t), r, nil)
	h := create(t, w, r.URL, "site.created")
	emit(t, w, event.SiteCreated(someSite))
	flights, _, err := w.turn(t.Context(), nil, 10)
	if err != nil || len(flights) != 1 {
		t.Fatalf("%v, %v", flights, err)
	}
	results := make(chan outcome, 1)
	s := newSenders(w, results)
	defer s.end()
	broken, cancel := context.WithCancel(t.Context())
	cancel()
	s.launch(broken, flights)
	before := db.Now()
	if _, _, err := w.turn(t.Context(), []outcome{<-results}, 0); err != nil {
		t.Fatal(err)
	}
	list, _, err := w.Deliveries(t.Context(), anna, h.ID, 1, 1)
	if err != nil || list[0].State != "pending" || len(list[0].Attempts) != 0 || list[0].NextAt < before.Add(time.Second/2) {
		t.Errorf("%+v, %v", list, err)
	}
	if n := r.count(); n != 0 {
		t.Errorf("%d requests were made", n)
	}
}
