package team

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/job"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/operation"
	"slipway/internal/tenant/site"
)

// Delete is the job that deletes a team with its sites.
type Delete struct {
	Owner     account.OwnerID
	Operation operation.ID
}

// Kind names the job.
func (Delete) Kind() string { return "team.delete" }

// DeleteTx deletes a team that has no sites at once. One that has is a Conflict fault, or with sites an operation that
// deletes them first. confirm is the team's slug, typed by a person.
func (s *Teams) DeleteTx(
	ctx context.Context, tx *db.Tx, by account.Caller, confirm string, sites bool,
) (Team, *operation.Operation, error) {
	if by.Role != account.RoleOwner {
		return Team{}, nil, fault.New(fault.Forbidden, "role_required", "Only owners can delete a team", "ask an owner of the team")
	}
	if err := account.LockOwnerTx(ctx, tx, by.Owner); err != nil {
		return Team{}, nil, err
	}
	t, err := s.Get(ctx, tx, by.Owner)
	if err != nil {
		return t, nil, err
	}
	if strings.TrimSpace(confirm) != t.Slug {
		return t, nil, fault.New(fault.Invalid, "invalid_confirm", "The slug doesn't match",
			"confirm must be the team's slug: "+t.Slug)
	}
	n, err := s.siteCount(ctx, tx, by.Owner)
	if err != nil {
		return t, nil, err
	}
	if n == 0 {
		return t, nil, s.closeTx(ctx, tx, t)
	}
	if !sites {
		return t, nil, fault.New(fault.Conflict, "team_has_sites", "This team still has sites",
			fmt.Sprintf("there are %d: transfer or delete them first, or delete them with the team (?sites=delete)", n))
	}
	if _, err := tx.Exec(ctx, `UPDATE teams SET deleting_at = $2 WHERE owner_id = $1`, by.Owner, db.Now()); err != nil {
		return t, nil, fmt.Errorf("delete team: %w", err)
	}
	o, err := s.c.Operations.OpenTx(ctx, tx, by.Owner, operation.NewOperation{Kind: "team.delete", Unique: "team.delete/" + string(by.Owner)})
	if err != nil {
		return t, nil, err
	}
	_, err = job.Enqueue(ctx, tx, Delete{by.Owner, o.ID}, job.Options{Unique: "team.delete/" + string(by.Owner), Share: string(by.Owner)})
	return t, &o, err
}

func (s *Teams) siteCount(ctx context.Context, r db.Reader, owner account.OwnerID) (n int, err error) {
	if err := r.QueryRow(ctx, `SELECT count(*) FROM open_sites WHERE owner_id = $1`, owner).Scan(&n); err != nil {
		return 0, fmt.Errorf("count sites of team: %w", err)
	}
	return n, nil
}

// Work registers this service's jobs.
func (s *Teams) Work(j *job.Jobs) {
	job.Handle(j, job.Policy{GivenUp: s.deleteGivenUp}, s.delete)
}

// delete deletes a team's sites one after the other, and then the team. It may run again: what is deleted is not found.
func (s *Teams) delete(ctx context.Context, d Delete, _ int64) error {
	for done := 0; ; done++ {
		list, total, err := s.c.Sites.List(ctx, d.Owner, site.Filter{Page: 1, Limit: 1})
		if err != nil {
			return err
		}
		if len(list) == 0 {
			break
		}
		err = s.c.DB.Write(ctx, func(tx *db.Tx) error {
			if err := s.c.Sites.DeleteTx(ctx, tx, d.Owner, list[0].ID); err != nil && !fault.Is(err, fault.NotFound) {
				return err
			}
			return s.c.Operations.AdvanceTx(ctx, tx, d.Operation, float64(done)/float64(done+total), "", "Deleting "+list[0].Name)
		})
		if err != nil {
			return err
		}
	}
	return s.c.DB.Write(ctx, func(tx *db.Tx) error {
		if err := account.LockOwnerTx(ctx, tx, d.Owner); err != nil {
			return err
		}
		t, err := s.Get(ctx, tx, d.Owner)
		if fault.Is(err, fault.NotFound) { // an owner was faster, once the sites were gone
			return s.c.Operations.EndTx(ctx, tx, d.Operation, "Team deleted", "", nil)
		}
		if err != nil {
			return err
		}
		if n, err := s.siteCount(ctx, tx, d.Owner); err != nil || n > 0 {
			if err == nil {
				err = fmt.Errorf("delete team: %d sites were created meanwhile", n)
			}
			return err
		}
		if err := s.c.Operations.EndTx(ctx, tx, d.Operation, "Team deleted", "", nil); err != nil {
			return err
		}
		return s.closeTx(ctx, tx, t)
	})
}

func (s *Teams) deleteGivenUp(ctx context.Context, args []byte, why error) error {
	var d Delete
	if err := json.Unmarshal(args, &d); err != nil {
		return fmt.Errorf("read job arguments: %w", err)
	}
	return s.c.DB.Write(ctx, func(tx *db.Tx) error {
		if _, err := tx.Exec(ctx, `UPDATE teams SET deleting_at = 0 WHERE owner_id = $1`, d.Owner); err != nil {
			return err
		}
		return s.c.Operations.EndTx(ctx, tx, d.Operation, "", "The team could not be deleted: "+why.Error(), nil)
	})
}

// closeTx removes a team without sites: members, invitations, webhooks and keys go, its name stays reserved.
func (s *Teams) closeTx(ctx context.Context, tx *db.Tx, t Team) error {
	for _, q := range []string{
		`DELETE FROM site_members WHERE owner_id = $1`,
		`DELETE FROM team_members WHERE owner_id = $1`,
		`DELETE FROM team_invitations WHERE owner_id = $1`,
	} {
		if _, err := tx.Exec(ctx, q, t.Owner); err != nil {
			return fmt.Errorf("delete team: %w", err)
		}
	}
	if _, err := tx.Exec(ctx, `UPDATE teams SET deleted_at = $2 WHERE owner_id = $1`, t.Owner, db.Now()); err != nil {
		return fmt.Errorf("delete team: %w", err)
	}
	if err := s.closeOwnerTx(ctx, tx, t.Owner); err != nil {
		return err
	}
	return s.c.Accounts.CloseOwnerTx(ctx, tx, t.Owner)
}

// closeOwnerTx deletes the secrets and rights of an owner who goes, for teams and for personal accounts.
func (s *Teams) closeOwnerTx(ctx context.Context, tx *db.Tx, owner account.OwnerID) error {
	if _, err := tx.Exec(ctx, `DELETE FROM site_transfers WHERE from_owner = $1 OR to_owner = $1`, owner); err != nil {
		return fmt.Errorf("delete transfers: %w", err)
	}
	if s.ties.OAuth == nil {
		return s.c.Hooks.DeleteAllTx(ctx, tx, owner)
	}
	return s.ties.closeTx(ctx, tx, owner)
}
