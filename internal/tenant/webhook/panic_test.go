package webhook

import (
	"testing"

	"slipway/internal/tenant/webhook/delivery"
)

// A delivery that panics is a failed attempt: its schedule goes on, and so do the deliveries of others.
func TestDeliveryThatPanics(t *testing.T) {
	t.Parallel()
	o := (&Webhooks{}).send(t.Context(), flight{secret: "without anything that opens it"})
	if o.Result.Err != delivery.ReasonInternal || o.Result.Started == 0 || o.secret == "" {
		t.Errorf("got %+v", o)
	}
}
