package webhook

import (
	"reflect"
	"testing"

	"slipway/internal/platform/dbtest"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/webhook/event"
)

// Delivery returns the same as the list, only for the owner and while the webhook exists.
func TestOneDelivery(t *testing.T) {
	t.Parallel()
	r := receive(t, nil)
	w := newWebhooks(t, dbtest.New(t), r, nil)
	start(t, w)
	h, other := create(t, w, r.URL+"/a", "site.created"), create(t, w, r.URL+"/b", "site.deleted")
	emit(t, w, event.SiteCreated(someSite))
	listed := settle(t, w, h.ID, func(d Delivery) bool { return d.State == "succeeded" })
	one, err := w.Delivery(t.Context(), anna, h.ID, listed.ID)
	if err != nil || !reflect.DeepEqual(one, listed) {
		t.Errorf("%+v, %v; the list has %+v", one, err, listed)
	}
	for name, ask := range map[string]func() (Delivery, error){
		"a stranger":      func() (Delivery, error) { return w.Delivery(t.Context(), bert, h.ID, listed.ID) },
		"another webhook": func() (Delivery, error) { return w.Delivery(t.Context(), anna, other.ID, listed.ID) },
		"no such id":      func() (Delivery, error) { return w.Delivery(t.Context(), anna, h.ID, "dlv_none") },
	} {
		if _, err := ask(); !fault.Is(err, fault.NotFound) {
			t.Errorf("%s: %v, want not found", name, err)
		}
	}
	if err := w.Delete(t.Context(), anna, h.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Delivery(t.Context(), anna, h.ID, listed.ID); !fault.Is(err, fault.NotFound) {
		t.Errorf("of a deleted webhook: %v, want not found", err)
	}
}
