package usage

import (
	"context"
	"testing"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/id"
)

// Outstanding loans plus usage never exceed the limit. The loan of a node that stops reporting counts for 90 seconds.
func TestLend(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	const most = 1 << 30
	w.serve(most)
	edge := NewSource("edge/1")
	edge.Add(w.clock, ada, Bandwidth, "site_1", 1)
	ok(t, w.Write(t.Context(), edge)) // which arms it
	var owners int
	ok(t, w.c.DB.QueryRow(t.Context(), `SELECT count(*) FROM capped_owners WHERE begins <= $1 AND ends > $1`, w.clock).Scan(&owners))
	if owners != 1 {
		t.Fatalf("%d owners need loans", owners)
	}
	one, two := Lender{w.Usage, "one"}, Lender{w.Usage, "two"}
	lend := func(l Lender, outstanding int64, more bool) int64 {
		t.Helper()
		n, err := l.Lend(t.Context(), id.Owner(string(ada)), outstanding, more)
		ok(t, err)
		return n
	}
	a := lend(one, 0, true)
	b := lend(two, 0, true)
	if a <= 0 || b <= 0 || a+b >= most {
		t.Fatalf("%d and %d are lent", a, b)
	}
	for {
		n, m := lend(one, a, true), lend(two, b, true)
		a, b = a+n, b+m
		if n+m == 0 {
			break
		}
	}
	if a+b != most-1 {
		t.Errorf("%d are lent in all, want %d", a+b, most-1)
	}
	// A returned loan can be lent again.
	lend(two, b-100, false)
	if n := lend(one, a, true); n != 100 {
		t.Errorf("%d are lent of the 100 that were handed back", n)
	}
	// The loan of a node that stopped reporting is lent again, but only after it has expired.
	w.clock = w.clock.Add(loanEnds - time.Second)
	if n := lend(one, a+100, true); n != 0 {
		t.Errorf("%d are lent although the other node may still use them", n)
	}
	w.clock = w.clock.Add(2 * time.Second)
	if n := lend(one, a+100, true); n <= 0 {
		t.Error("nothing is lent of what a dead node had")
	}
}

type told []int64

func (x *told) TellUsageTx(_ context.Context, tx *db.Tx, _ id.Owner, w Warning) error {
	tx.AfterCommit(func() { *x = append(*x, w.Percent) })
	return nil
}

// Owners get one notice per month for each share of their limit, and again after the limit has changed.
func TestWarnings(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.serve(1000)
	var list told
	w.Connect(&list)
	edge := NewSource("edge/1")
	send := func(n int64, want ...int64) {
		t.Helper()
		edge.Add(w.clock, ada, Bandwidth, "site_1", n)
		ok(t, w.Write(t.Context(), edge))
		if len(list) != len(want) {
			t.Fatalf("told of %v, want %v", list, want)
		}
		for i := range want {
			if list[i] != want[i] {
				t.Fatalf("told of %v, want %v", list, want)
			}
		}
	}
	send(499)
	send(1, 50)
	send(200, 50)
	send(220, 50, 90) // passes 75 as well, which isn't reported then
	send(1, 50, 90)
	send(500, 50, 90, 100)
	send(500, 50, 90, 100)
	w.serve(4000)
	w.Connect(&list)
	send(1, 50, 90, 100)
	send(100, 50, 90, 100, 50)
	w.clock = w.clock.Add(31 * day)
	send(1, 50, 90, 100, 50)
	send(2000, 50, 90, 100, 50, 50)
}
