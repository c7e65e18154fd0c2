package webhook

import (
	"testing"

	"slipway/internal/tenant/webhook/delivery"
)

// A delivery that panics counts as a failed attempt and is retried, and other deliveries continue.
func TestDeliveryThatPanics(t *testing.T) {
	t.Parallel()
	o := (&Webhooks{}).send(t.Context(), flight{secret: "without anything that opens it"})
	if o.Result.Err != delivery.ReasonInternal || o.Result.Started == 0 || o.secret == "" {
		t.Errorf("got %+v", o)
	}
}
