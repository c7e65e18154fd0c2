package wordpress

import (
	"context"
	"fmt"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/operation"
	"slipway/internal/tenant/site"
)

// Event is something that WordPress does by itself at a time.
type Event struct {
	Hook     string
	Schedule string        // empty: once
	Every    time.Duration // 0: once
	Next     time.Time
}

// Events asks the owner's WordPress for its scheduled events.
func (w *WordPress) Events(ctx context.Context, owner account.OwnerID, id site.ID) ([]Event, error) {
	var out struct {
		Events []struct {
			Hook        string
			Schedule    string
			Every, Next int64
		}
	}
	if err := w.ask(ctx, owner, id, "crons", &out); err != nil {
		return nil, err
	}
	list := make([]Event, len(out.Events))
	for i, e := range out.Events {
		list[i] = Event{e.Hook, e.Schedule, time.Duration(e.Every) * time.Second, time.Unix(e.Next, 0)}
	}
	return list, nil
}

// User is somebody who can log in to a WordPress.
type User struct {
	ID                 int64
	Login, Email, Name string
	Roles              []string
	Registered         time.Time
}

// Users asks the owner's WordPress who can log in, administrators first, and how many there
// are.
func (w *WordPress) Users(ctx context.Context, owner account.OwnerID, id site.ID) (list []User, total int, err error) {
	var out struct {
		Users []struct {
			ID                 int64
			Login, Email, Name string
			Roles              []string
			Registered         int64
		}
		Total int
	}
	if err := w.ask(ctx, owner, id, "users", &out); err != nil {
		return nil, 0, err
	}
	for _, u := range out.Users {
		list = append(list, User{u.ID, u.Login, u.Email, u.Name, u.Roles, time.Unix(u.Registered, 0)})
	}
	return list, max(out.Total, len(list)), nil
}

// ask runs a task in the owner's live WordPress.
func (w *WordPress) ask(ctx context.Context, owner account.OwnerID, id site.ID, task string, out any) error {
	s, err := w.c.Sites.Get(ctx, owner, id)
	if err == nil {
		err = w.live(s)
	}
	if err != nil {
		return err
	}
	return w.task(ctx, s, s.LiveDeployment, task, map[string]any{}, out)
}

// Operations returns the newest operations of the owner's site.
func (w *WordPress) Operations(ctx context.Context, owner account.OwnerID, id site.ID) ([]operation.Operation, error) {
	if w.c.Operations == nil {
		return nil, nil
	}
	list, _, err := w.c.Operations.List(ctx, owner, id, 1, 10)
	return list, err
}

// Others returns the owner's other WordPress sites that are live, which one can be pushed to: first
// the one that this one was cloned from, whose id is origin.
func (w *WordPress) Others(ctx context.Context, owner account.OwnerID, id site.ID) (list []site.Site, origin site.ID, err error) {
	rows, err := w.c.DB.Query(ctx, `
		SELECT o.site_id, CASE WHEN o.site_id = m.origin THEN 1 ELSE 0 END
		FROM wordpress_sites o JOIN wordpress_sites m ON m.site_id = $2
		WHERE o.owner_id = $1 AND o.site_id <> $2
		ORDER BY 2 DESC, o.created_at DESC LIMIT 100`, owner, id)
	type other struct {
		id     site.ID
		origin int
	}
	others, err := db.Collect(rows, err, func(s db.Scanner) (o other, err error) { return o, s.Scan(&o.id, &o.origin) })
	if err != nil {
		return nil, "", fmt.Errorf("list WordPress sites: %w", err)
	}
	for _, o := range others {
		s, err := w.c.Sites.Get(ctx, owner, o.id)
		if err != nil || w.live(s) != nil {
			continue
		}
		list = append(list, s)
		if o.origin == 1 {
			origin = o.id
		}
	}
	return list, origin, nil
}
