package delivery

import (
	"strconv"

	"slipway/internal/platform/fault"
)

// HopHeader counts, in each delivery, the webhooks that followed from one another to
// cause it: a deploy hook that is called with it passes the count on to the events of
// its deployment.
const HopHeader = "X-Service-Hop"

// maxHops is where a chain of webhooks and deploy hooks is cut.
const maxHops = 3

// CheckHop reads a HopHeader that came with a call; empty means 0. A chain that is too
// long is a Conflict.
func CheckHop(v string) (int, error) {
	if v == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(v, 10, 16)
	if err != nil {
		return 0, fault.New(fault.Invalid, "invalid_hop", "Invalid "+HopHeader,
			HopHeader+" is a small number that webhook deliveries carry; leave it out otherwise")
	}
	if n >= maxHops {
		return 0, fault.New(fault.Conflict, "webhook_loop", "Webhooks and deploy hooks call each other in a loop",
			"this call was caused by a webhook that a deploy hook caused, "+strconv.Itoa(maxHops)+
				" times over: point the webhook elsewhere")
	}
	return int(n), nil
}
