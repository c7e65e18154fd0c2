package pushes

import (
	"context"
	"fmt"
	"strings"
	"unicode"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/text"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/site"
)

// maxWorkflowName caps the bytes of a repository's, branch's or environment's name. GitHub's are shorter.
const maxWorkflowName = 255

// AllowTx sets which workflows may deploy the owner's site; none without a repository. It revokes the keys of runs that
// are no longer allowed.
func (g *Pushes) AllowTx(ctx context.Context, tx *db.Tx, owner account.OwnerID, id site.ID, w Workflows) error {
	if w.Repository == "" {
		w = Workflows{}
	} else if err := w.check(); err != nil {
		return err
	}
	before, err := g.lockTx(ctx, tx, owner, id)
	if err != nil {
		return err
	}
	if had := before.Workflows; had.Repository != w.Repository || had.Branch != w.Branch || had.Environment != w.Environment {
		if err := account.EndRunKeysTx(ctx, tx, id); err != nil {
			return err
		}
	}
	_, err = tx.Exec(ctx, `
		UPDATE git_settings SET actions_repository = $2, actions_branch = $3, actions_environment = $4, actions_by = $5,
			actions_repository_id = CASE WHEN actions_repository = $2 THEN actions_repository_id ELSE '' END
		WHERE site_id = $1`, id, w.Repository, w.Branch, w.Environment, w.By)
	if err != nil {
		return fmt.Errorf("allow workflows: %w", err)
	}
	return nil
}

// PinTx records the id of the repository of the first run, so that a repository that takes over the name later isn't
// accepted.
func (g *Pushes) PinTx(ctx context.Context, tx *db.Tx, id site.ID, repository string) error {
	_, err := tx.Exec(ctx, `
		UPDATE git_settings SET actions_repository_id = $2 WHERE site_id = $1 AND actions_repository_id = ''`, id, repository)
	if err != nil {
		return fmt.Errorf("note repository of workflows: %w", err)
	}
	return nil
}

func (w Workflows) check() error {
	owner, name, ok := strings.Cut(w.Repository, "/")
	named := func(s string) bool {
		return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
			return r > unicode.MaxASCII || !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("-_.", r)
		})
	}
	if !ok || !named(owner) || !named(name) || len(w.Repository) > maxWorkflowName {
		return fault.New(fault.Invalid, "invalid_workflows", "Invalid repository of workflows",
			"a repository looks like acme/site").Got(text.Line(w.Repository, 100))
	}
	for what, v := range map[string]string{"branch": w.Branch, "environment": w.Environment} {
		if len(v) > maxWorkflowName || strings.ContainsFunc(v, unicode.IsControl) || what == "branch" && v == "" {
			return fault.New(fault.Invalid, "invalid_workflows", "Invalid "+what+" of workflows",
				"a name has 1 to 255 bytes").Got(text.Line(v, 100))
		}
	}
	return nil
}
