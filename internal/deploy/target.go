package deploy

import (
	"context"
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"regexp"
	"strings"

	"slipway/internal/account"
	"slipway/internal/db"
	"slipway/internal/fault"
	"slipway/internal/site"
)

// Target is production or preview.
type Target string

// The targets.
const (
	Production Target = "production" // it becomes what the site serves
	Preview    Target = "preview"    // it is served at addresses of its own alone
)

// Targets are all there are.
var Targets = []Target{Production, Preview}

// maxPreviews is how many branches of a site have a preview address at a time. One more,
// and the address of the branch that was deployed longest ago ends.
const maxPreviews = 100

// dnsLabelMax is how many bytes a DNS label has at most (RFC 1035 §2.3.4).
const dnsLabelMax = 63

// targetOf decides what a deployment of the branch is for. Production changes only by the
// production branch, a promotion or a rollback: every other branch is a preview. While the
// repository's default branch is not known yet, and the site names none, any branch may
// be it.
func targetOf(s site.Site, branch string) Target {
	if branch == "" || s.Branch == "" || branch == s.Branch {
		return Production
	}
	return Preview
}

// chooseTarget is targetOf with what the caller asked for, which must agree with it where
// it says production.
func chooseTarget(s site.Site, t Trigger) (Target, error) {
	decided := targetOf(s, t.Branch)
	if t.Pull > 0 || t.Fork {
		if t.Target != "" && t.Target != Preview || t.Pull > maxPull {
			return "", fmt.Errorf("deploy pull request %d to %s", t.Pull, t.Target)
		}
		return Preview, nil
	}
	switch t.Target {
	case "", decided:
		return decided, nil
	case Preview:
		return Preview, nil
	case Production:
		return "", &fault.Error{Kind: fault.Conflict, Code: "not_production_branch",
			Message: fmt.Sprintf("%s is not the production branch", t.Branch),
			Details: fmt.Sprintf("production is deployed from %s: deploy a preview and promote it, or change the site's branch", s.Branch)}
	}
	return "", &fault.Error{Kind: fault.Invalid, Message: "Invalid deployment target", Details: "target must be production or preview",
		Received: string(t.Target), Code: "invalid_target"}
}

// retargetTx makes a preview of a production deployment whose branch is not the production
// branch any more, or was not known to be another one when it was asked for.
func (d *Deployments) retargetTx(ctx context.Context, tx *db.Tx, x *Deployment) error {
	if x.Target != Production {
		return nil
	}
	s, err := d.c.Sites.ByID(ctx, tx, x.Site)
	if err != nil || targetOf(s, x.Branch) == Production {
		return err
	}
	label, err := d.previewHostTx(ctx, tx, s, x.previewKey(), false)
	if err != nil {
		return err
	}
	x.Target, x.PreviewURL = Preview, d.c.Sites.DeploymentURL(label, s.Slug)
	if _, err := tx.Exec(ctx, `UPDATE deployments SET target = $2, preview_label = $3 WHERE id = $1`, x.ID, x.Target, label); err != nil {
		return fmt.Errorf("make deployment a preview: %w", err)
	}
	return nil
}

// maxPull is the greatest number of a pull request: its address fits beside every site's name.
const maxPull = 999_999_999

// pullKey stands for a pull request in preview_hosts, in place of a branch: no branch is
// called so.
func pullKey(pull int) string { return fmt.Sprintf(":%d", pull) }

// previewKey returns what the stable address of the deployment belongs to: its pull request,
// or else its branch.
func (x Deployment) previewKey() string {
	if x.Pull > 0 {
		return pullKey(x.Pull)
	}
	return x.Branch
}

// previewHostTx returns the label of the preview address of a branch or of a pull request
// (pullKey), which stays the same as long as it has one. Where the owner has as many as they
// may have, it refuses, or else ends the one that was deployed longest ago.
func (d *Deployments) previewHostTx(ctx context.Context, tx *db.Tx, s site.Site, branch string, refuse bool) (label string, err error) {
	now := db.Now()
	rows, err := tx.Query(ctx, `UPDATE preview_hosts SET used_at = $3 WHERE site_id = $1 AND branch = $2 RETURNING label`, s.ID, branch, now)
	have, err := db.Collect(rows, err, func(row db.Scanner) (l string, err error) { return l, row.Scan(&l) })
	if err != nil {
		return "", fmt.Errorf("find preview address: %w", err)
	}
	if len(have) > 0 {
		return have[0], nil
	}
	if err := d.makeRoomTx(ctx, tx, s, refuse); err != nil {
		return "", err
	}
	for _, label := range []string{previewLabel(branch, s.Slug, false), previewLabel(branch, s.Slug, true)} {
		n, err := tx.Exec(ctx, `
			INSERT INTO preview_hosts (site_id, branch, label, deployment_id, release, used_at) VALUES ($1, $2, $3, '', '', $4)
			ON CONFLICT DO NOTHING`, s.ID, branch, label, now)
		if err != nil {
			return "", fmt.Errorf("make preview address: %w", err)
		}
		if n == 1 {
			return label, d.trimPreviewsTx(ctx, tx, s.ID)
		}
	}
	return "", fmt.Errorf("make preview address of %s: both labels are taken", branch)
}

// makeRoomTx is nil when the owner may have one more preview address.
func (d *Deployments) makeRoomTx(ctx context.Context, tx *db.Tx, s site.Site, refuse bool) error {
	var n int
	if err := tx.QueryRow(ctx, `SELECT count(*) FROM preview_hosts WHERE site_id = $1`, s.ID).Scan(&n); err != nil {
		return fmt.Errorf("count preview addresses: %w", err)
	}
	if n >= maxPreviews {
		return nil // another one of this site ends for it
	}
	err := d.c.Limits.RequireTx(ctx, tx, s.Owner, account.LimitPreviews, 1)
	if refuse || !fault.Is(err, fault.Payment) {
		return err
	}
	_, err = tx.Exec(ctx, `
		DELETE FROM preview_hosts WHERE (site_id, branch) IN (
			SELECT p.site_id, p.branch FROM preview_hosts p JOIN open_sites s ON s.id = p.site_id
			WHERE s.owner_id = $1 ORDER BY p.used_at, p.branch LIMIT 1)`, s.Owner)
	if err != nil {
		return fmt.Errorf("end preview address: %w", err)
	}
	tx.Notify("previews")
	return nil
}

// trimPreviewsTx ends the preview addresses of a site over maxPreviews.
func (d *Deployments) trimPreviewsTx(ctx context.Context, tx *db.Tx, id site.ID) error {
	n, err := tx.Exec(ctx, `
		DELETE FROM preview_hosts WHERE site_id = $1 AND branch NOT IN (
			SELECT branch FROM preview_hosts WHERE site_id = $1 ORDER BY used_at DESC, branch LIMIT $2)`, id, maxPreviews)
	if err != nil {
		return fmt.Errorf("end preview addresses: %w", err)
	}
	if n > 0 {
		tx.Notify("previews")
	}
	return nil
}

// showPreviewTx makes a deployment what the preview addresses of its branch and of its pull
// request serve, unless a newer one is already. A fork's branch has no address: it may be
// called like one of the site's own.
func (d *Deployments) showPreviewTx(ctx context.Context, tx *db.Tx, x Deployment) error {
	keys := []string{x.Branch}
	switch {
	case x.Fork:
		keys = []string{pullKey(x.Pull)}
	case x.Pull > 0:
		keys = append(keys, pullKey(x.Pull))
	}
	for _, key := range keys {
		_, err := tx.Exec(ctx, `
			UPDATE preview_hosts SET deployment_id = $3, release = $4
			WHERE site_id = $1 AND branch = $2 AND deployment_id < $3`, x.Site, key, x.ID, x.Release)
		if err != nil {
			return fmt.Errorf("show preview: %w", err)
		}
	}
	tx.Notify("previews")
	return nil
}

var (
	pullLabel       = regexp.MustCompile(`^:([0-9]+)$`)
	likePull        = regexp.MustCompile(`^pr-[0-9]+$`)
	notLabel        = regexp.MustCompile(`[^a-z0-9]+`)
	deploymentLabel = regexp.MustCompile(`^[a-z0-9]{12}$`)
)

// previewLabel makes the DNS label of a branch, which together with the hyphens and the
// site's slug fits into one. It ends with a hash of the branch's name where the name does
// not fit, would look like a deployment's own label or a pull request's, or another branch
// has the label already (hashed). A pull request's label is pr- and its number.
func previewLabel(branch, slug string, hashed bool) string {
	pull := pullLabel.FindStringSubmatch(branch)
	if pull != nil && !hashed {
		return "pr-" + pull[1]
	}
	label := strings.Trim(notLabel.ReplaceAllString(strings.ToLower(branch), "-"), "-")
	room := dnsLabelMax - len("--") - len(slug)
	reserved := len(label) == 2 // "xn--" and its like (RFC 5890 §2.3.1)
	if !hashed && label != "" && !reserved && !likePull.MatchString(label) && len(label) <= room && !deploymentLabel.MatchString(label) {
		return label
	}
	sum := sha256.Sum256([]byte(branch))
	hash := strings.ToLower(base32.StdEncoding.EncodeToString(sum[:]))[:6]
	label = strings.TrimRight(label[:min(len(label), room-len(hash)-1)], "-")
	switch {
	case pull != nil:
		label = "pr"
	case label == "":
		label = "branch"
	}
	return label + "-" + hash
}
