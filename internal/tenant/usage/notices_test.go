package usage

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/dbtest"
	"slipway/internal/platform/seal"
	"slipway/internal/tenant/limits"
	"slipway/internal/tenant/notify"
	"slipway/internal/tenant/webhook"
)

func moment(y int, m time.Month, d, h int) db.Time {
	return db.At(time.Date(y, m, d, h, 0, 0, 0, time.UTC))
}

// When a share of a limit is reached, the webhook event is queued in the transaction that detects it.
func TestUsageEvent(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	sealer, err := seal.Load(filepath.Join(t.TempDir(), "secrets.key"))
	if err != nil {
		t.Fatal(err)
	}
	hooks := webhook.New(webhook.Config{DB: d, Seal: sealer})
	u := Notices{notify.New(notify.Config{DB: d}), hooks}
	if err := d.Write(t.Context(), func(tx *db.Tx) error {
		_, err := hooks.CreateTx(t.Context(), tx, "own_ada", webhook.NewWebhook{URL: "https://ada.test/", Events: []string{"usage.threshold"}})
		return errors.Join(err, u.TellUsageTx(t.Context(), tx, "own_ada", Warning{
			Name: limits.Bandwidth, Percent: 75, Used: 80, Limit: 100, Window: limits.Window{From: moment(2027, 3, 1, 0), To: moment(2027, 4, 1, 0)},
		}), u.TellUsageTx(t.Context(), tx, "own_eve", Warning{Name: limits.Bandwidth, Percent: 50, Used: 80, Limit: 100, Window: limits.Window{From: moment(2027, 3, 1, 0), To: moment(2027, 4, 1, 0)}}))
	}); err != nil {
		t.Fatal(err)
	}
	rows, err := d.Query(t.Context(), `SELECT e.body FROM webhook_events e JOIN webhook_deliveries d ON d.event_id = e.id`)
	bodies, err := db.Collect(rows, err, func(s db.Scanner) (body string, err error) { return body, s.Scan(&body) })
	want := `"usage":{"limit":"bandwidth.bytes","month":"2027-03","percent":75,"used":80,"allowed":100,"periodStart":"2027-03-01T00:00:00.000Z","periodEnd":"2027-04-01T00:00:00.000Z"}`
	if err != nil || len(bodies) != 1 || !strings.Contains(bodies[0], want) {
		t.Errorf("%v: %q, want one with %s", err, bodies, want)
	}
}
