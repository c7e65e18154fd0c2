// Package preview owns the stable addresses of previews: the label of each branch or pull request, the deployment that
// it serves, and when it ends.
//
// A branch keeps its label as long as the address exists. The number of addresses is limited per site and per owner.
// Package deploy decides what is deployed there.
package preview

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"slipway/internal/platform/id"

	"slipway/internal/build/release"
	"slipway/internal/platform/db"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/limits"
	"slipway/internal/tenant/site"
)

// Config holds what Previews needs.
type Config struct {
	DB     *db.DB
	Sites  *site.Sites
	Limits *limits.Limits
}

// Previews owns all preview addresses.
type Previews struct{ c Config }

// New returns Previews.
func New(c Config) *Previews {
	c.Limits.CountRows(limits.Previews,
		`SELECT count(*) FROM preview_hosts WHERE site_id IN (SELECT id FROM open_sites WHERE owner_id = $1)`)
	return &Previews{c}
}

// MaxPull is the largest pull request number for which a preview's host name is short enough.
const MaxPull = 999_999_999

// PullKey is the key of a pull request in preview_hosts, in place of a branch. No branch can have that name.
func PullKey(pull int) string { return fmt.Sprintf(":%d", pull) }

// KeyOf returns the key of the preview for a deployment's branch and pull request (0: none): the branch's name or its
// PullKey. It is empty if the preview has ended.
func (p *Previews) KeyOf(ctx context.Context, id site.ID, branch string, pull int) (string, error) {
	rows, err := p.c.DB.Query(ctx, `SELECT branch FROM preview_hosts WHERE site_id = $1 AND branch IN ($2, $3)`, id, branch, PullKey(pull))
	keys, err := db.Collect(rows, err, func(s db.Scanner) (k string, err error) { return k, s.Scan(&k) })
	switch {
	case err != nil:
		return "", fmt.Errorf("find preview: %w", err)
	case len(keys) == 0:
		return "", nil
	}
	for _, key := range keys {
		if key == branch { // the branch's preview comes before the pull request's
			return key, nil
		}
	}
	return keys[0], nil
}

// Keys returns the keys of a site's previews.
func (p *Previews) Keys(ctx context.Context, id site.ID) ([]string, error) {
	rows, err := p.c.DB.Query(ctx, `SELECT branch FROM preview_hosts WHERE site_id = $1`, id)
	keys, err := db.Collect(rows, err, func(s db.Scanner) (k string, err error) { return k, s.Scan(&k) })
	if err != nil {
		return nil, fmt.Errorf("list previews: %w", err)
	}
	return keys, nil
}

// Store returns the name of a preview's storage, by its key.
func Store(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:8])
}

// Shown is the deployment that preview addresses will serve.
type Shown struct {
	Site       site.ID
	Deployment id.Deployment
	Release    release.ID
	Branch     string
	Pull       int
	Fork       bool
}

// ShowTx makes the preview addresses of a deployment's branch and pull request serve it, unless they serve a newer one.
// A fork's branch gets no address, because it may have the name of one of the site's own.
func ShowTx(ctx context.Context, tx *db.Tx, x Shown) error {
	keys := []string{x.Branch}
	switch {
	case x.Fork:
		keys = []string{PullKey(x.Pull)}
	case x.Pull > 0:
		keys = append(keys, PullKey(x.Pull))
	}
	for _, key := range keys {
		_, err := tx.Exec(ctx, `
			UPDATE preview_hosts SET deployment_id = $3, release = $4
			WHERE site_id = $1 AND branch = $2 AND deployment_id < $3`, x.Site, key, x.Deployment, x.Release)
		if err != nil {
			return fmt.Errorf("show preview: %w", err)
		}
	}
	tx.Notify("previews")
	return nil
}

// EndTx ends the address of a branch or a pull request (PullKey), and returns its label, or "" if there was none.
func EndTx(ctx context.Context, tx *db.Tx, id site.ID, key string) (label string, err error) {
	rows, err := tx.Query(ctx, `DELETE FROM preview_hosts WHERE site_id = $1 AND branch = $2 RETURNING label`, id, key)
	labels, err := db.Collect(rows, err, func(s db.Scanner) (l string, err error) { return l, s.Scan(&l) })
	if err != nil {
		return "", fmt.Errorf("end preview address: %w", err)
	}
	tx.Notify("previews")
	if len(labels) == 0 {
		return "", nil
	}
	return labels[0], nil
}

// EndUnusedTx ends the preview addresses of sites without a deployment since then, and returns their number.
func EndUnusedTx(ctx context.Context, tx *db.Tx, sites []site.ID, since db.Time) (int64, error) {
	args := db.Args{since}
	n, err := tx.Exec(ctx, `DELETE FROM preview_hosts WHERE used_at < $1 AND site_id IN (`+db.AddList(&args, sites)+`)`, args...)
	if err != nil {
		return 0, fmt.Errorf("end unused preview addresses: %w", err)
	}
	if n > 0 {
		tx.Notify("previews")
	}
	return n, nil
}

// PurgeTx deletes the addresses of a deleted site.
func PurgeTx(ctx context.Context, tx *db.Tx, id site.ID) error {
	if _, err := tx.Exec(ctx, `DELETE FROM preview_hosts WHERE site_id = $1`, id); err != nil {
		return fmt.Errorf("forget preview addresses: %w", err)
	}
	return nil
}

// Address is the stable address of a branch or a pull request.
type Address struct {
	Branch     string // empty for a pull request
	Pull       int    // 0 for a branch
	URL        string
	Deployment id.Deployment // that it serves; empty until one has succeeded
	UsedAt     db.Time
}

// List returns the preview addresses of the owner's site, last used first.
func (p *Previews) List(ctx context.Context, owner account.OwnerID, id site.ID) ([]Address, error) {
	s, err := p.c.Sites.Get(ctx, owner, id)
	if err != nil {
		return nil, err
	}
	rows, err := p.c.DB.Query(
		ctx,
		`
		SELECT branch, label, deployment_id, used_at FROM preview_hosts WHERE site_id = $1 ORDER BY used_at DESC, branch LIMIT $2`,
		id,
		MaxOfSite,
	)
	list, err := db.Collect(rows, err, func(r db.Scanner) (a Address, err error) {
		var label string
		if err := r.Scan(&a.Branch, &label, &a.Deployment, &a.UsedAt); err != nil {
			return a, err
		}
		if m := pullLabel.FindStringSubmatch(a.Branch); m != nil {
			a.Branch = ""
			if _, err := fmt.Sscan(m[1], &a.Pull); err != nil {
				return a, err
			}
		}
		a.URL = p.c.Sites.DeploymentURL(label, s.Slug)
		return a, nil
	})
	if err != nil {
		return nil, fmt.Errorf("list preview addresses: %w", err)
	}
	return list, nil
}
