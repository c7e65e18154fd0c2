package database_test

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"testing"

	"slipway/internal/program/database"
	"slipway/internal/tenant/account"
)

// A site that was given to another owner keeps its database: closing the socket of the owner before, which ends when the last
// connection does, leaves the new owner's socket alone. So does closing all of a site's sockets.
func TestSocketAfterTransfer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.site(anna, "one")
	open := func(owner account.OwnerID) string {
		path, done, err := w.Socket(t.Context(), database.Client{Owner: owner, Site: id})
		ok(t, err)
		t.Cleanup(done)
		return path
	}
	check := func(path, before string) {
		t.Helper()
		w.until("the socket of the owner before is gone", func() bool {
			_, err := os.Stat(before)
			return errors.Is(err, fs.ErrNotExist)
		})
		c, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal("the new owner's programs don't reach their database:", err)
		}
		c.Close()
	}
	first := open(anna)
	held, err := net.Dial("unix", first)
	ok(t, err)
	defer held.Close()
	second := open(ben)
	check(second, first)
	third := open(anna)
	check(third, second)
	closed := make(chan struct{})
	go func() { defer close(closed); w.CloseSocket(id) }()
	w.until("the socket is closed", func() bool { return open(anna) != third })
	<-closed
	check(open(anna), third)
}
