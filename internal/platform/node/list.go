package node

import (
	"context"
	"fmt"
	"strings"
	"time"

	"slipway/internal/platform/db"
)

// Node is a process that serves an installation, or did.
type Node struct {
	ID         string
	Name       string // the host's
	Address    string // empty: other nodes don't reach it
	Version    string
	Roles      []string
	Blobs      string
	SiteDomain string
	Storage    string        // the mark of the storage that all nodes mount; empty: in its data directory
	Ahead      time.Duration // how far its clock is ahead of the database's
	State      string
	StartedAt  db.Time
	SeenAt     db.Time
}

// List returns all nodes, those that run first.
func List(ctx context.Context, d *db.DB) ([]Node, error) {
	if _, err := d.Sync(ctx); err != nil {
		return nil, err
	}
	return listOf(ctx, d, d.Now())
}

func listOf(ctx context.Context, r db.Reader, now db.Time) ([]Node, error) {
	rows, err := r.Query(ctx, `
		SELECT id, name, address, version, roles, blobs, site_domain, ahead_ms, CASE WHEN lease_until > $1 THEN state
		ELSE 'down' END AS now, started_at, seen_at, storage
		FROM nodes ORDER BY CASE WHEN lease_until > $1 THEN 0 ELSE 1 END, name, id LIMIT 1000`, now)
	all, err := db.Collect(rows, err, func(s db.Scanner) (n Node, err error) {
		var roles string
		var ahead int64
		err = s.Scan(&n.ID, &n.Name, &n.Address, &n.Version, &roles, &n.Blobs, &n.SiteDomain, &ahead, &n.State, &n.StartedAt, &n.SeenAt,
			&n.Storage)
		n.Roles, n.Ahead = strings.Split(roles, ","), time.Duration(ahead)*time.Millisecond
		return n, err
	})
	if err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	return all, nil
}

// Find returns a node by its id, or by a name that no other one has. Of several with a name the one that runs is meant.
func Find(ctx context.Context, d *db.DB, name string) (Node, error) {
	list, err := List(ctx, d)
	if err != nil {
		return Node{}, err
	}
	var up, down []Node
	for _, n := range list {
		switch {
		case n.ID == name:
			return n, nil
		case n.Name != name:
		case n.State == Down:
			down = append(down, n)
		default:
			up = append(up, n)
		}
	}
	if len(up) == 0 {
		up = down
	}
	switch len(up) {
	case 0:
		return Node{}, fmt.Errorf("there is no node %q: slipway node list shows them", name)
	case 1:
		return up[0], nil
	}
	return Node{}, fmt.Errorf("%d nodes have the name %s: give the id that slipway node list shows", len(up), name)
}

// DeleteTx takes a node off the list.
func DeleteTx(ctx context.Context, tx *db.Tx, id string) error {
	tx.Notify(Topic)
	if _, err := tx.Exec(ctx, `DELETE FROM nodes WHERE id = $1`, id); err != nil {
		return fmt.Errorf("delete node: %w", err)
	}
	return nil
}

// ForgetTx takes a node off the list for good: it is refused if it returns.
func ForgetTx(ctx context.Context, tx *db.Tx, id string) error {
	_, err := tx.Exec(ctx, `INSERT INTO forgotten_nodes (id, forgotten_at) VALUES ($1, $2) ON CONFLICT (id) DO NOTHING`, id, tx.Now())
	if err != nil {
		return fmt.Errorf("forget node: %w", err)
	}
	return DeleteTx(ctx, tx, id)
}

// Set makes a node that runs, named by its id or a name that no other has, drain or take programs again. It knows within seconds.
func Set(ctx context.Context, d *db.DB, name, state string) (Node, error) {
	n, err := Find(ctx, d, name)
	if err != nil {
		return Node{}, err
	}
	if n.State == Down {
		return Node{}, fmt.Errorf("the node %s is down", n.Name)
	}
	err = d.Write(ctx, func(tx *db.Tx) error {
		tx.Notify(Topic)
		_, err := tx.Exec(ctx, `UPDATE nodes SET state = $2 WHERE id = $1 AND state <> 'down'`, n.ID, state)
		return err
	})
	if err != nil {
		return Node{}, fmt.Errorf("change state of node: %w", err)
	}
	n.State = state
	return n, nil
}

// Problems returns what of a list somebody should look into, in sentences.
func Problems(list []Node) (out []string) {
	versions := map[string]bool{}
	for _, n := range list {
		switch {
		case n.State == Down:
			out = append(out, fmt.Sprintf("%s is down since %s", n.Name, n.SeenAt))
			continue
		case n.Ahead.Abs() > tolerable:
			out = append(out, fmt.Sprintf("the clock of %s is %s", n.Name, n.Clock()))
		}
		versions[n.Version] = true
	}
	if len(versions) > 1 {
		out = append(out, "nodes of different versions run, as during an upgrade")
	}
	return out
}

// Clock says in words how far the node's clock is from the database's.
func (n Node) Clock() string {
	switch ahead := n.Ahead.Round(100 * time.Millisecond); {
	case ahead > 0:
		return ahead.String() + " fast"
	case ahead < 0:
		return (-ahead).String() + " slow"
	}
	return "in sync"
}
