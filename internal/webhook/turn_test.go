package webhook

import (
	"context"
	"net/http"
	"testing"
	"time"

	"slipway/internal/db"
	"slipway/internal/dbtest"
)

// What causes an event does not wait for a dispatcher that has locked the webhook, and the
// event is sent all the same.
func TestEventsDoNotWaitForTurns(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	if d.Single() {
		t.Skip("SQLite has one writer, who waits for nobody")
	}
	r := receive(t, func(w http.ResponseWriter, r *http.Request) {})
	w := redelivering(t, d, r)
	h := create(t, w, r.URL+"/here", "site.created")
	locked, release, ended := make(chan struct{}), make(chan struct{}), make(chan error)
	go func() {
		ended <- d.Write(t.Context(), func(tx *db.Tx) error {
			_, err := tx.Exec(t.Context(), `UPDATE webhooks SET id = id WHERE id = $1`, h.ID)
			close(locked)
			<-release
			return err
		})
	}()
	<-locked
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err := d.Write(ctx, func(tx *db.Tx) error { return w.EmitTx(ctx, tx, anna, SiteCreated(someSite)) })
	close(release)
	if err != nil {
		t.Errorf("it waited: %v", err)
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	start(t, w)
	settle(t, w, h.ID, tried(1))
}
