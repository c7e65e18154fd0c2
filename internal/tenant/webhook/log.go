package webhook

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/webhook/delivery"
)

// Delivery is an event delivered, or to be delivered, to a webhook.
type Delivery struct {
	ID         delivery.ID
	EventID    string      // also the webhook-id header, for deduplication
	Event      string      // the name used
	State      string      // pending, sending, succeeded, failed, skipped
	Body       string      // exact bytes
	Repeats    delivery.ID // the delivery that this one repeats, or empty
	CreatedAt  db.Time
	NextAt     db.Time // next attempt; 0: none
	FinishedAt db.Time
	Attempts   []Attempt // oldest first
}

// Attempt is one request.
type Attempt struct {
	N         int // from 1; may have gaps after a crash
	StartedAt db.Time
	Duration  int    // milliseconds
	Status    int    // 0: no response
	Error     string // a key of Reasons; empty: none
	Request   string // request head with the signatures
	Response  string // response head, at most 4 KiB
	Answer    string // response body, at most 4 KiB, as UTF-8
	Late      bool   // the result arrived after another worker had taken over the delivery
}

// Deliveries returns a page (from 1) of a webhook's deliveries, newest first, and their total number.
func (w *Webhooks) Deliveries(ctx context.Context, owner account.OwnerID, hook ID, page, limit int) ([]Delivery, int, error) {
	return w.Search(ctx, owner, hook, Filter{}, page, limit)
}

// Search is [Webhooks.Deliveries] with a filter. Event names are searched among the newest 10,000 deliveries that match
// the rest of the filter, and at most 100,000 are counted.
func (w *Webhooks) Search(
	ctx context.Context, owner account.OwnerID, hook ID, f Filter, page, limit int,
) (list []Delivery, total int, err error) {
	if _, err := w.Get(ctx, owner, hook); err != nil {
		return nil, 0, err
	}
	// One snapshot, so that deliveries and attempts agree.
	err = w.c.DB.Snapshot(ctx, func(r db.Reader) error {
		list, total, err = deliveries(ctx, r, hook, f, page, limit)
		return err
	})
	return list, total, err
}

// Delivery returns one of the webhook's deliveries with all attempts, or a NotFound fault.
func (w *Webhooks) Delivery(ctx context.Context, owner account.OwnerID, hook ID, id delivery.ID) (d Delivery, err error) {
	if _, err := w.Get(ctx, owner, hook); err != nil {
		return d, err
	}
	err = w.c.DB.Snapshot(ctx, func(r db.Reader) error {
		d, err = scanDelivery(r.QueryRow(ctx, selectDelivery+" WHERE d.id = $1 AND d.hook_id = $2", id, hook))
		if errors.Is(err, sql.ErrNoRows) {
			return fault.Missing("delivery")
		}
		if err != nil {
			return fmt.Errorf("read delivery: %w", err)
		}
		list := []Delivery{d}
		err := attempts(ctx, r, list)
		d = list[0]
		return err
	})
	return d, err
}

const selectDelivery = `SELECT d.id, d.event_id, e.name, d.state, e.body, d.redelivery_of, d.created_at, d.next_at, d.finished_at
	FROM webhook_deliveries d JOIN webhook_events e ON e.id = d.event_id`

func scanDelivery(s db.Scanner) (d Delivery, err error) {
	err = s.Scan(&d.ID, &d.EventID, &d.Event, &d.State, &d.Body, &d.Repeats, &d.CreatedAt, &d.NextAt, &d.FinishedAt)
	switch d.State {
	case "leased":
		d.State, d.NextAt = "sending", 0
	case "succeeded", "failed", "skipped":
		d.NextAt = 0
	}
	return d, err
}

func deliveries(ctx context.Context, r db.Reader, hook ID, f Filter, page, limit int) ([]Delivery, int, error) {
	chosen, args, err := f.chosen(hook)
	if err != nil {
		return nil, 0, err
	}
	paged := slices.Clone(args)
	rows, err := r.Query(ctx, selectDelivery+`
		WHERE d.id IN (`+chosen+` ORDER BY found DESC LIMIT `+paged.Add(limit)+` OFFSET `+paged.Add((page-1)*limit)+`)
		ORDER BY d.id DESC`, paged...)
	list, err := db.Collect(rows, err, scanDelivery)
	if err != nil {
		return nil, 0, fmt.Errorf("list deliveries: %w", err)
	}
	if err := attempts(ctx, r, list); err != nil {
		return nil, 0, err
	}
	if got, before := len(list), (page-1)*limit; got < limit && (got > 0 || before == 0) {
		return list, before + got, nil // the last page implies the total
	}
	var total int
	if err := r.QueryRow(ctx, `SELECT count(*) FROM (`+chosen+` LIMIT `+strconv.Itoa(counted)+`) AS n`, args...).Scan(&total); err != nil {
		return nil, 0, fmt.Errorf("count deliveries: %w", err)
	}
	return list, total, nil
}

// attempts sets the attempts of each delivery in list.
func attempts(ctx context.Context, r db.Reader, list []Delivery) error {
	if len(list) == 0 {
		return nil
	}
	place, ids := map[delivery.ID]int{}, make([]delivery.ID, len(list))
	for i, d := range list {
		list[i].Attempts = []Attempt{}
		place[d.ID], ids[i] = i, d.ID
	}
	var args db.Args
	rows, err := r.Query(ctx, `
		SELECT delivery_id, n, started_at, duration, status, error, request, response, answer, late FROM webhook_attempts
		WHERE delivery_id IN (`+db.AddList(&args, ids)+`) ORDER BY delivery_id, n`, args...)
	_, err = db.Collect(rows, err, func(s db.Scanner) (struct{}, error) {
		var of delivery.ID
		var a Attempt
		err := s.Scan(&of, &a.N, &a.StartedAt, &a.Duration, &a.Status, &a.Error, &a.Request, &a.Response, &a.Answer, &a.Late)
		i := place[of]
		list[i].Attempts = append(list[i].Attempts, a)
		return struct{}{}, err
	})
	if err != nil {
		return fmt.Errorf("list attempts: %w", err)
	}
	return nil
}
