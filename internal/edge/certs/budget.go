package certs

import (
	"cmp"
	"slices"
	"time"

	"slipway/internal/platform/id"
)

// class is the purpose of an order. Each class has a quota that others can't use.
type class string

const (
	classRenewal class = "renewal" // renewal of an existing certificate
	classSite    class = "site"    // first certificate of a site's own address or of the control plane
	classCustom  class = "custom"  // first certificate of a custom host
)

// Let's Encrypt takes 300 orders in three hours. Ten are left for orders that several nodes place at the same moment.
const (
	maxOrders   = 290
	orderWindow = 3 * time.Hour

	// Orders of one owner per orderWindow: new names, and renewals.
	ownerOrders   = 50
	ownerRenewals = 100
)

// reserved is the quota of each class. Any class may use the rest of maxOrders.
var reserved = map[class]int{classRenewal: 100, classSite: 60, classCustom: 60}

// placed is an order in the ledger.
type placed struct {
	class class
	owner id.Owner
	at    time.Time
}

// refusal says why an order must wait.
type refusal string

const (
	fits         refusal = ""
	ownerLimit   refusal = "owner"   // the owner's quota is used
	overallLimit refusal = "overall" // the installation's quota is used
)

// admits returns why one more order doesn't fit beside those of the last orderWindow, or "" if it fits.
func admits(orders []placed, c class, owner id.Owner) refusal {
	used, mine := map[class]int{}, 0
	for _, o := range orders {
		used[cmp.Or(o.class, classCustom)]++
		if owner != "" && o.owner == owner && (o.class == classRenewal) == (c == classRenewal) {
			mine++
		}
	}
	quota := ownerOrders
	if c == classRenewal {
		quota = ownerRenewals
	}
	if mine >= quota {
		return ownerLimit
	}
	if len(orders) >= maxOrders {
		return overallLimit
	}
	if used[c] < reserved[c] {
		return fits
	}
	shared := maxOrders
	for k, n := range reserved {
		shared -= max(n, used[k]) // subtract each class's quota, and what it used beyond it
	}
	if shared <= 0 {
		return overallLimit
	}
	return fits
}

// opening returns when the next order fits, and why not earlier. The zero time means now.
func opening(orders []placed, c class, owner id.Owner) (time.Time, refusal) {
	orders = slices.SortedFunc(slices.Values(orders), func(a, b placed) int { return a.at.Compare(b.at) })
	why := admits(orders, c, owner)
	if why == fits {
		return time.Time{}, fits
	}
	for len(orders) > 0 {
		oldest := orders[0].at
		orders = orders[1:]
		if admits(orders, c, owner) == fits {
			return oldest.Add(orderWindow), why
		}
	}
	return time.Time{}, fits
}
