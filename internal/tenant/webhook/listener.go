package webhook

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/webhook/delivery"
)

// Limits of listeners, which serve local development.
const (
	maxListeners  = 5               // per owner
	listenFor     = 5 * time.Minute // a listener's lifetime after the last fetch
	listenKeep    = time.Hour       // retention of deliveries that aren't fetched
	extendEvery   = time.Minute     // minimum interval of writes by fetches without new deliveries
	maxFetch      = 100             // deliveries per fetch
	listenerState = `('offered', 'fetched')`
)

// Listener is a subscription without a URL. Its deliveries are signed and wait to be fetched.
type Listener struct {
	ID        ID
	Events    []string
	SiteIDs   []string
	CreatedAt db.Time
	ExpiresAt db.Time // extended by fetching
}

// NewListener is the input of ListenTx.
type NewListener struct {
	Events []string // empty: all
	Secret string   // 1 to 256 characters
	Sites  []string // empty: all
}

// Offer is a delivery to a listener. Deliveries are fetched in the order of their numbers.
type Offer struct {
	N       int64
	ID      delivery.ID
	EventID string
	Event   string
	Header  map[string]string // as for a URL, without Content-Length
	Body    string            // exact bytes
}

// ListenTx starts a listener, in the caller's transaction.
func (w *Webhooks) ListenTx(ctx context.Context, tx *db.Tx, owner account.OwnerID, n NewListener) (Listener, error) {
	if len(n.Events) == 0 {
		for _, e := range w.Catalogue() {
			if e.SameAs == "" || !slices.Contains(n.Events, e.SameAs) { // only one name per event
				n.Events = append(n.Events, e.Name)
			}
		}
	}
	events, err := w.checkEvents(n.Events)
	if err != nil {
		return Listener{}, err
	}
	secret, err := checkSecret(&n.Secret)
	if err != nil {
		return Listener{}, err
	}
	sites, err := checkSites(n.Sites)
	if err != nil {
		return Listener{}, err
	}
	now := db.Now()
	var open int
	if err := tx.QueryRow(ctx,
		`SELECT count(*) FROM webhooks WHERE owner_id = $1 AND deleted_at = 0 AND expires_at > $2`, owner,
		now).Scan(&open); err != nil {
		return Listener{}, fmt.Errorf("count listeners: %w", err)
	}
	if open >= maxListeners {
		return Listener{}, fault.New(fault.Conflict, "too_many_listeners", "Too many listeners",
			fmt.Sprintf("at most %d at once; stop one, or wait %d minutes after it was last used", maxListeners,
				int(listenFor.Minutes())))
	}
	l := Listener{ID: db.ID[ID]("hook"), Events: events, SiteIDs: sites, CreatedAt: now, ExpiresAt: now.Add(listenFor)}
	_, err = tx.Exec(ctx, `
		INSERT INTO webhooks (id, owner_id, url, url_key, host, events, site_ids, secret, generated, active, reason, turn_at, created_at,
		updated_at, expires_at)
		VALUES ($1, $2, '', '', '', $3, $4, $5, FALSE, TRUE, '', $6, $7, $7, $8)`,
		l.ID, owner, strings.Join(events,
			" "), strings.Join(sites, " "), w.c.Seal.Seal([]byte(secret), sealPurpose+string(l.ID)), never, now, l.ExpiresAt)
	if err != nil {
		return Listener{}, fmt.Errorf("start listener: %w", err)
	}
	return l, nil
}

// StopListeningTx ends a listener in the caller's transaction.
func (w *Webhooks) StopListeningTx(ctx context.Context, tx *db.Tx, owner account.OwnerID, id ID) error {
	n, err := tx.Exec(ctx, remove+` AND id = $3 AND expires_at > $2`, owner, db.Now(), id)
	if err != nil {
		return fmt.Errorf("stop listener: %w", err)
	}
	if n == 0 {
		return fault.Missing("listener")
	}
	return nil
}

// Listen returns a channel that signals when there may be new deliveries to fetch.
func (w *Webhooks) Listen(id ID) (wake <-chan struct{}, stop func()) {
	return w.c.DB.Listen(listenerTopic(id))
}

func listenerTopic(id ID) string { return topic + " " + string(id) }

// Fetch returns the deliveries after the given number, oldest first. Fetching after the same number again returns the
// same deliveries, so a lost response loses nothing.
func (w *Webhooks) Fetch(ctx context.Context, owner account.OwnerID, id ID, after int64) ([]Offer, error) {
	now := db.Now()
	var expires db.Time
	var sealed string
	var news bool
	err := w.c.DB.QueryRow(ctx, `
		SELECT expires_at, secret, EXISTS (SELECT 1 FROM webhook_deliveries d WHERE d.hook_id = webhooks.id AND d.state = 'offered')
		FROM webhooks WHERE id = $1 AND owner_id = $2 AND deleted_at = 0 AND expires_at > $3`, id, owner, now).Scan(
		&expires, &sealed, &news,
	)
	if err != nil {
		return nil, listenerFault(err)
	}
	if news || expires.Sub(now) < listenFor-extendEvery {
		if err := w.c.DB.Write(ctx, func(tx *db.Tx) error { return number(ctx, tx, owner, id, now) }); err != nil {
			return nil, err
		}
	}
	key, err := w.c.Seal.Open(sealed, sealPurpose+string(id))
	if err != nil {
		return nil, fmt.Errorf("open secret of listener: %w", err)
	}
	rows, err := w.c.DB.Query(ctx, `
		SELECT d.claims, d.id, d.event_id, e.name, e.body, e.hops FROM webhook_deliveries d JOIN webhook_events e ON e.id = d.event_id
		WHERE d.hook_id = $1 AND d.state = 'fetched' AND d.claims > $2 ORDER BY d.claims LIMIT $3`, id, after, maxFetch)
	list, err := db.Collect(rows, err, func(r db.Scanner) (o Offer, err error) {
		var hops int
		err = r.Scan(&o.N, &o.ID, &o.EventID, &o.Event, &o.Body, &hops)
		o.Header = map[string]string{}
		for name, values := range delivery.Header(delivery.Request{
			Id:     o.ID,
			Event:  o.EventID,
			Name:   o.Event,
			Body:   []byte(o.Body),
			Hops:   hops,
			Number: 1,
		}, []string{string(key)}, now.Time()) {
			o.Header[name] = values[0]
		}
		return o, err
	})
	if err != nil {
		return nil, fmt.Errorf("fetch deliveries: %w", err)
	}
	return list, nil
}

// number assigns numbers to new deliveries and extends the listener's lifetime. It locks the listener's row first, so
// that numbers are consecutive.
func number(ctx context.Context, tx *db.Tx, owner account.OwnerID, id ID, now db.Time) error {
	n, err := tx.Exec(ctx,
		`UPDATE webhooks SET expires_at = $3 WHERE id = $1 AND owner_id = $2 AND deleted_at = 0 AND expires_at > $4`,
		id, owner, now.Add(listenFor), now)
	if err != nil {
		return fmt.Errorf("extend listener: %w", err)
	}
	if n == 0 {
		return fault.Missing("listener")
	}
	rows, err := tx.Query(ctx,
		`SELECT id FROM webhook_deliveries WHERE hook_id = $1 AND state = 'offered' ORDER BY id LIMIT $2`, id, maxFetch)
	ids, err := db.Collect(rows, err, func(r db.Scanner) (d delivery.ID, err error) { return d, r.Scan(&d) })
	if err != nil {
		return fmt.Errorf("find offered deliveries: %w", err)
	}
	if len(ids) == 0 {
		return nil
	}
	var last int64
	if err := tx.QueryRow(ctx,
		`SELECT COALESCE(max(claims), 0) FROM webhook_deliveries WHERE hook_id = $1 AND state = 'fetched'`,
		id).Scan(&last); err != nil {
		return fmt.Errorf("number deliveries: %w", err)
	}
	last = max(last, int64(now)) // increasing even if earlier deliveries are deleted
	for _, d := range ids {
		last++
		if _, err := tx.Exec(ctx, `UPDATE webhook_deliveries SET state = 'fetched', claims = $2 WHERE id = $1`, d, last); err != nil {
			return fmt.Errorf("number deliveries: %w", err)
		}
	}
	return nil
}

// purgeListeners deletes ended listeners and deliveries not fetched for an hour.
func (w *Webhooks) purgeListeners(ctx context.Context) error {
	now := db.Now()
	for more := true; more; {
		err := w.c.DB.Write(ctx, func(tx *db.Tx) error {
			_, err := tx.Exec(ctx,
				`UPDATE webhooks SET deleted_at = $1, active = FALSE, secret = '' WHERE expires_at > 0 AND expires_at <= $1 AND deleted_at = 0`,
				now)
			if err != nil {
				return err
			}
			n, err := tx.Exec(ctx, `
				DELETE FROM webhook_deliveries WHERE id IN (SELECT d.id FROM webhooks h JOIN webhook_deliveries d ON d.hook_id = h.id
					WHERE h.expires_at > 0 AND d.state IN `+listenerState+` AND d.created_at < $1 LIMIT $2)`, now.Add(-listenKeep), batch)
			more = n == batch
			return err
		})
		if err != nil {
			return fmt.Errorf("purge listeners: %w", err)
		}
	}
	return nil
}

func listenerFault(err error) error {
	if errors.Is(err, sql.ErrNoRows) {
		return fault.Missing("listener")
	}
	return fmt.Errorf("read listener: %w", err)
}
