package certs

import (
	"cmp"
	"slices"
	"time"

	"slipway/internal/platform/id"
)

// class is the purpose of an order. Each has orders that no other can use up.
type class string

const (
	classRenewal class = "renewal" // of a certificate that is still there
	classSite    class = "site"    // first one of a site's own address, or of the control plane
	classCustom  class = "custom"  // first one of a custom host
)

// The largest public authority takes 300 orders in three hours. Ten are left for those
// that are being placed on several nodes at once.
const (
	maxOrders   = 290
	orderWindow = 3 * time.Hour

	// One owner's orders of an orderWindow: new names, and renewals.
	ownerOrders   = 50
	ownerRenewals = 100
)

// reserved is the number of orders that each class has to itself; the rest of maxOrders is for whoever comes first.
var reserved = map[class]int{classRenewal: 100, classSite: 60, classCustom: 60}

// placed is one order of the past.
type placed struct {
	class class
	owner id.Owner
	at    time.Time
}

// refusal is why an order may not be placed now.
type refusal string

const (
	fits         refusal = ""
	ownerLimit   refusal = "owner"   // the owner has had its share
	overallLimit refusal = "overall" // the installation has
)

// admits reports whether one more order fits beside those of the last orderWindow.
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
		shared -= max(n, used[k]) // what is reserved, and what was taken beyond it
	}
	if shared <= 0 {
		return overallLimit
	}
	return fits
}

// opening returns when the next order fits, and why not earlier; the zero time for now.
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
