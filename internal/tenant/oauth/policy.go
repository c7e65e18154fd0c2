package oauth

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/account"
)

// Approval is an app that members of a team may authorize for it, or that one of them asked for.
type Approval struct {
	App       App
	Requested string // the address of who asked
	Approved  bool
	CreatedAt db.Time
}

// errNotAllowed is for apps that a team's policy keeps out. Members ask an admin.
var errNotAllowed = fault.New(fault.Forbidden, "app_not_allowed", "This team doesn't allow this app",
	"its admins decide which apps members can authorize")

// allowed is nil where an app may act for an owner. Accounts of single people have no policy, and the installation's own
// command line is no stranger's app. It is asked at each request, so a team that closes itself to apps does so at once.
func (s *Server) allowed(ctx context.Context, r db.Reader, owner account.OwnerID, app AppID) error {
	if app == CLI {
		return nil
	}
	var policy string
	var approved bool
	err := r.QueryRow(ctx, `
		SELECT p.apps, EXISTS (SELECT 1 FROM oauth_approvals a WHERE a.owner_id = p.owner_id AND a.app_id = $2 AND a.approved_by <> '')
		FROM app_policies p WHERE p.owner_id = $1`, owner, app).Scan(&policy, &approved)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read app policy: %w", err)
	}
	return permits(policy, approved, app)
}

// permits is nil where a policy lets an app act; empty is none.
func permits(policy string, approved bool, app AppID) error {
	if app == CLI || policy == "" || policy == "all" || policy == "approved" && approved {
		return nil
	}
	return errNotAllowed
}

// excluded is the condition of grants whose app a team's policy keeps out, as permits has it.
const excluded = `app_id <> '` + string(CLI) + `' AND EXISTS (SELECT 1 FROM app_policies p WHERE p.owner_id = oauth_grants.owner_id AND (
	p.apps = 'none' OR p.apps = 'approved' AND NOT EXISTS (SELECT 1 FROM oauth_approvals y
		WHERE y.owner_id = p.owner_id AND y.app_id = oauth_grants.app_id AND y.approved_by <> '')))`

// EndExcludedTx ends the grants of apps that an owner's policy keeps out, with what the apps created. It returns the apps' names.
func (s *Server) EndExcludedTx(ctx context.Context, tx *db.Tx, owner account.OwnerID) ([]string, error) {
	const where = `owner_id = $1 AND ` + excluded
	rows, err := tx.Query(ctx, `SELECT name FROM oauth_apps WHERE id IN (SELECT app_id FROM oauth_grants WHERE `+where+`) ORDER BY lower(name), id`, owner)
	names, err := db.Collect(rows, err, func(r db.Scanner) (name string, err error) { return name, r.Scan(&name) })
	if err != nil {
		return nil, fmt.Errorf("find excluded apps: %w", err)
	}
	return names, s.endAccessTx(ctx, tx, where, owner)
}

// Allowed returns nil where an app may be authorized for the caller's owner, else a Forbidden fault.
func (s *Server) Allowed(ctx context.Context, by account.Caller, app AppID) error {
	return s.allowed(ctx, s.c.DB, by.Owner, app)
}

// RequestApprovalTx asks the admins of the caller's team for an app.
func (s *Server) RequestApprovalTx(ctx context.Context, tx *db.Tx, by account.Caller, app AppID) error {
	var n int
	if err := tx.QueryRow(ctx, `SELECT count(*) FROM oauth_approvals WHERE owner_id = $1`, by.Owner).Scan(&n); err != nil {
		return fmt.Errorf("count approvals: %w", err)
	}
	if n >= maxApprovals {
		return fault.New(fault.Conflict, "too_many_approvals", "Too many apps are approved or requested", "remove some first")
	}
	_, err := tx.Exec(ctx, `
		INSERT INTO oauth_approvals (owner_id, app_id, requested_by, approved_by, created_at) VALUES ($1, $2, $3, '', $4)
		ON CONFLICT (owner_id, app_id) DO NOTHING`, by.Owner, app, by.User, db.Now())
	if err != nil {
		return fmt.Errorf("request approval: %w", err)
	}
	return nil
}

// maxApprovals is how many apps a team can have on its list.
const maxApprovals = 200

// ApproveAppTx lets the members of the caller's team authorize an app that one of them asked for.
func (s *Server) ApproveAppTx(ctx context.Context, tx *db.Tx, by account.Caller, app AppID) error {
	n, err := tx.Exec(ctx, `UPDATE oauth_approvals SET approved_by = $3 WHERE owner_id = $1 AND app_id = $2`, by.Owner, app, by.User)
	return oneApproval(n, err)
}

// RemoveApprovalTx takes an app off the team's list. With the policy "approved" its grants end.
func (s *Server) RemoveApprovalTx(ctx context.Context, tx *db.Tx, by account.Caller, app AppID) error {
	n, err := tx.Exec(ctx, `DELETE FROM oauth_approvals WHERE owner_id = $1 AND app_id = $2`, by.Owner, app)
	if err = oneApproval(n, err); err == nil {
		_, err = s.EndExcludedTx(ctx, tx, by.Owner)
	}
	return err
}

func oneApproval(n int64, err error) error {
	if err != nil {
		return fmt.Errorf("change approval: %w", err)
	}
	if n == 0 {
		return fault.Missing("app")
	}
	return nil
}

// Approvals lists the apps of a team that are approved or asked for, requests first.
func (s *Server) Approvals(ctx context.Context, owner account.OwnerID) ([]Approval, error) {
	rows, err := s.c.DB.Query(ctx, `
		SELECT a.id, a.name, a.website, COALESCE((SELECT u.email FROM people u WHERE u.id = p.requested_by), ''), p.approved_by <> '',
		p.created_at
		FROM oauth_approvals p JOIN oauth_apps a ON a.id = p.app_id
		WHERE p.owner_id = $1 ORDER BY 5, lower(a.name), a.id`, owner)
	list, err := db.Collect(rows, err, func(r db.Scanner) (a Approval, err error) {
		return a, r.Scan(&a.App.ID, &a.App.Name, &a.App.Website, &a.Requested, &a.Approved, &a.CreatedAt)
	})
	if err != nil {
		return nil, fmt.Errorf("list approvals: %w", err)
	}
	return list, nil
}
