package deployment

import (
	"context"
	"fmt"
	"slices"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/site"
)

// Filter narrows a list of deployments. Zero fields don't filter.
type Filter struct {
	Branch string
	Target Target
	Status Status
	Author string // of the commit, exactly
	Pull   int    // number of its pull request
	Page   int    // from 1
	Limit  int
}

// where returns the filter as SQL; id is the site's.
func (f Filter) where(id site.ID) (string, []any, error) {
	text, args := "site_id = $1", []any{id}
	and := func(column, v string) {
		if v != "" {
			args = append(args, v)
			text += fmt.Sprintf(" AND %s = $%d", column, len(args))
		}
	}
	if f.Target != "" && !slices.Contains(Targets, f.Target) {
		return "", nil, fault.New(fault.Invalid, "invalid_target", "Invalid deployment target",
			"target must be production or preview").Got(string(f.Target))
	}
	if f.Status != "" && !slices.Contains(Statuses, f.Status) {
		return "", nil, fault.New(fault.Invalid, "invalid_status", "Invalid deployment status",
			"status must be pending, building, deploying, success, failed or canceled").Got(string(f.Status))
	}
	and("branch", f.Branch)
	and("target", string(f.Target))
	and("status", string(f.Status))
	and("commit_author", f.Author)
	if f.Pull > 0 {
		args = append(args, f.Pull)
		text += fmt.Sprintf(" AND pull_request = $%d", len(args))
	}
	return text, args, nil
}

// List returns one page of the deployments of the owner's site, newest first, and the total.
func (d *Deployments) List(ctx context.Context, owner account.OwnerID, id site.ID, f Filter) ([]Deployment, int, error) {
	where, args, err := f.where(id)
	if err != nil {
		return nil, 0, err
	}
	if _, err := d.c.Sites.Get(ctx, owner, id); err != nil {
		return nil, 0, err
	}
	limit := f.Limit
	// The page is found with the index alone, so that rows before it aren't read. The + 0 keeps SQLite from planning
	// the statement again each time: it would look at the value of a bare limit.
	offset := (f.Page - 1) * limit
	n := len(args)
	rows, err := d.c.DB.Query(ctx, fmt.Sprintf(`
		SELECT `+columns+from+`
		WHERE d.owner_id = $%d AND d.id IN (SELECT id FROM deployments WHERE %s ORDER BY id DESC LIMIT $%d + 0 OFFSET $%d)
		ORDER BY d.id DESC`, n+1, where, n+2, n+3), append(slices.Clone(args), owner, limit, offset)...)
	list, err := db.Collect(rows, err, d.scan)
	if err != nil {
		return nil, 0, fmt.Errorf("list deployments: %w", err)
	}
	if err := d.queue(ctx, list); err != nil {
		return nil, 0, err
	}
	if n := len(list); n < limit && (n > 0 || offset == 0) {
		return list, offset + n, nil // the last page implies the total
	}
	var total int
	if err := d.c.DB.QueryRow(ctx, `SELECT count(*) FROM deployments WHERE `+where, args...).Scan(&total); err != nil {
		return nil, 0, fmt.Errorf("count deployments: %w", err)
	}
	return list, total, nil
}

// Latest returns the newest deployment of each site, without its place in the queue. The caller must check access to
// the sites.
func (d *Deployments) Latest(ctx context.Context, r db.Reader, sites []site.ID) (map[site.ID]Deployment, error) {
	out := make(map[site.ID]Deployment, len(sites))
	if len(sites) == 0 {
		return out, nil
	}
	var args db.Args
	marks := db.AddList(&args, sites)
	rows, err := r.Query(ctx, `
		SELECT `+columns+`
		FROM open_sites s JOIN deployments d ON d.id = (SELECT id FROM deployments WHERE site_id = s.id ORDER BY id DESC LIMIT 1)
		LEFT JOIN site_forges f ON f.site_id = s.id
		WHERE s.id IN (`+marks+`)`, args...)
	list, err := db.Collect(rows, err, d.scan)
	if err != nil {
		return nil, fmt.Errorf("find latest deployments: %w", err)
	}
	for _, x := range list {
		out[x.Site] = x
	}
	return out, nil
}

// Several returns the owner's deployments with these ids, without their places in the queue.
func (d *Deployments) Several(ctx context.Context, owner account.OwnerID, ids []ID) (map[ID]Deployment, error) {
	out := make(map[ID]Deployment, len(ids))
	if len(ids) == 0 {
		return out, nil
	}
	args := db.Args{owner}
	rows, err := d.c.DB.Query(ctx, `SELECT `+columns+from+`WHERE d.owner_id = $1 AND d.id IN (`+db.AddList(&args, ids)+`)`, args...)
	list, err := db.Collect(rows, err, d.scan)
	if err != nil {
		return nil, fmt.Errorf("find deployments: %w", err)
	}
	for _, x := range list {
		out[x.ID] = x
	}
	return out, nil
}

// queue fills in the positions of pending deployments. Those that wait for a build slot come first, in the order of
// their turns, then those that haven't begun, in the order of their triggers.
func (d *Deployments) queue(ctx context.Context, list []Deployment) error {
	var ids []ID
	for _, x := range list {
		if x.Status == Pending {
			ids = append(ids, x.ID)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	var args db.Args
	marks := db.AddList(&args, ids)
	rows, err := d.c.DB.Query(ctx, `
		SELECT id, place, ahead FROM (
			SELECT id, CASE WHEN place > 0 THEN place
					ELSE (SELECT count(*) FROM deployments WHERE place > 0 AND status = 'pending' AND status IN `+Open+`) +
						count(*) FILTER (WHERE status = 'pending' AND place = 0) OVER (ORDER BY id) END AS place,
				count(*) OVER (PARTITION BY site_id ORDER BY id) - 1 AS ahead
			FROM deployments WHERE status IN `+Open+`) AS line
		WHERE id IN (`+marks+`)`, args...)
	places := map[ID]*Queue{}
	_, err = db.Collect(rows, err, func(row db.Scanner) (struct{}, error) {
		var id ID
		var ahead int
		q := &Queue{Reason: "workers_busy"}
		err := row.Scan(&id, &q.Position, &ahead)
		if ahead > 0 {
			q.Reason = "site_busy"
		}
		places[id] = q
		return struct{}{}, err
	})
	if err != nil {
		return fmt.Errorf("find places in the queue: %w", err)
	}
	for i, x := range list {
		list[i].Queue = places[x.ID] // nil if it has begun meanwhile
	}
	return nil
}

// PendingTotal returns the number of waiting deployments of all owners.
func PendingTotal(ctx context.Context, r db.Reader) (int, error) {
	return total(ctx, r, "status = 'pending'")
}

// RunningTotal returns the number of running deployments of all owners.
func RunningTotal(ctx context.Context, r db.Reader) (int, error) {
	return total(ctx, r, "status IN ('building', 'deploying')")
}

func total(ctx context.Context, r db.Reader, which string) (n int, err error) {
	if err := r.QueryRow(ctx, `SELECT count(*) FROM deployments WHERE status IN `+Open+` AND `+which).Scan(&n); err != nil {
		return 0, fmt.Errorf("count deployments: %w", err)
	}
	return n, nil
}
