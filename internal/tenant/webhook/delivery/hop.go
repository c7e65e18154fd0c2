package delivery

import (
	"strconv"

	"slipway/internal/platform/fault"
)

// HopHeader is the number of webhooks in the chain that caused a delivery. A deploy hook called with it passes the
// count on to its deployment's events.
const HopHeader = "X-Service-Hop"

// maxHops caps a chain of webhooks and deploy hooks.
const maxHops = 3

// CheckHop parses a call's HopHeader; empty means 0. It returns a Conflict fault if the chain is too long.
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
