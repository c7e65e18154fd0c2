package certs

import (
	"fmt"
	"testing"
	"time"

	"slipway/internal/platform/id"
)

// One owner's orders can't use up the budget of other owners, nor what is reserved for renewals and for sites' own
// addresses.
func TestBudget(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	var orders []placed
	fill := func(c class, owner id.Owner, n int) (took int) {
		for range n {
			if admits(orders, c, owner) != fits {
				break
			}
			orders = append(orders, placed{c, owner, start.Add(time.Duration(len(orders)) * time.Second)})
			took++
		}
		return took
	}
	if n := fill(classCustom, "mallory", 295); n != ownerOrders {
		t.Errorf("one owner ordered for %d names", n)
	}
	if n := fill(classSite, "mallory", 295); n != 0 {
		t.Errorf("and for %d sites", n)
	}
	until, why := opening(orders, classCustom, "mallory")
	if why != ownerLimit || !until.Equal(start.Add(orderWindow)) {
		t.Errorf("the next at %v, %q", until, why)
	}
	if until, why := opening(orders, classCustom, "ada"); why != fits || !until.IsZero() {
		t.Errorf("another owner waits until %v, %q", until, why)
	}
	// Orders of many owners don't use up the reserves.
	for i := range 20 {
		fill(classCustom, id.Owner(fmt.Sprint("owner", i)), ownerOrders)
	}
	if n := len(orders); n != maxOrders-reserved[classRenewal]-reserved[classSite] {
		t.Errorf("%d orders for custom names", n)
	}
	if until, why := opening(orders, classCustom, "eve"); why != overallLimit || until.IsZero() {
		t.Errorf("one more: %v, %q", until, why)
	}
	if n := fill(classSite, "ada", 10); n != 10 {
		t.Errorf("sites' own addresses: %d of 10", n)
	}
	if n := fill(classSite, "", 10); n != 10 {
		t.Errorf("the control plane's: %d of 10", n)
	}
	if n := fill(classRenewal, "mallory", 300) + fill(classRenewal, "ada", 300); n != reserved[classRenewal] {
		t.Errorf("%d renewals, %d are reserved", n, reserved[classRenewal])
	}
	// Renewals don't use up the other reserves.
	orders = nil
	for i := range 20 {
		fill(classRenewal, id.Owner(fmt.Sprint("owner", i)), ownerRenewals)
	}
	if a, b := fill(classCustom, "ada", 10), fill(classSite, "ada", 10); a != 10 || b != 10 {
		t.Errorf("after the renewals: %d names, %d sites", a, b)
	}
	if len(orders) > maxOrders {
		t.Errorf("%d orders", len(orders))
	}
}
