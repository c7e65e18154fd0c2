package requestinfo

import (
	"fmt"
	"net/netip"
	"testing"

	"slipway/internal/tenant/account"
)

// Streams are limited per network and per user, so that other users still get one.
func TestStreamsAreShared(t *testing.T) {
	t.Parallel()
	s := NewStreams(100, 5, 20)
	here, there := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	var held []func()
	take := func(user int, to netip.Addr) bool {
		done, ok := s.Begin(account.UserID(fmt.Sprint("usr_", user)), to)
		if ok {
			held = append(held, done)
		}
		return ok
	}
	for i := range 1000 {
		take(i/10, here)
	}
	if len(held) != 20 {
		t.Errorf("one network has %d places, want 20", len(held))
	}
	for range 10 { // also from many addresses
		take(500, there)
	}
	if len(held) != 25 {
		t.Errorf("one user has %d places, want 5", len(held)-20)
	}
	if !take(501, there) {
		t.Error("another user of another network finds no place")
	}
	for _, done := range held {
		done()
	}
	held = nil
	for i := range 20 {
		if !take(i, here) {
			t.Fatalf("after all have ended, place %d isn't free", i)
		}
	}
}

// The total number of streams is limited over all users.
func TestStreamsAreBounded(t *testing.T) {
	t.Parallel()
	s := NewStreams(3, 2, 3)
	begin := func(u account.UserID, last byte) (func(), bool) {
		return s.Begin(u, netip.AddrFrom4([4]byte{192, 0, 2, last}))
	}
	first, ok := begin("a", 1)
	if _, ok2 := begin("a", 1); !ok || !ok2 {
		t.Fatal("two of one user were refused")
	}
	if _, ok := begin("b", 2); !ok {
		t.Fatal("another user was refused")
	}
	if _, ok := begin("c", 3); ok {
		t.Fatal("a fourth of all was let in")
	}
	first()
	if _, ok := begin("c", 3); !ok {
		t.Fatal("a place that was given back is lost")
	}
}
