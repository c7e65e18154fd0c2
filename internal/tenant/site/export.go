package site

import (
	"context"
	"encoding/json"
	"fmt"

	"slipway/internal/git/fetch"
	"slipway/internal/platform/db"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/webhook/event"
)

// Export is a site's configuration as stored in a backup. It contains secrets.
type Export struct {
	Name       string            `json:"name"`
	Type       Type              `json:"type"`
	Runtime    string            `json:"runtime"`
	Repository string            `json:"repository,omitempty"`
	Branch     string            `json:"branch,omitempty"`
	Framework  string            `json:"framework,omitempty"`
	Build      Build             `json:"build"`
	Run        Run               `json:"run"`
	Tags       []string          `json:"tags,omitempty"`
	Serving    Serving           `json:"serving"`
	Credential *fetch.Credential `json:"credential,omitempty"`
	Env        []NewVar          `json:"env,omitempty"`
}

// Export returns a site's settings and variables, whoever owns it.
func (s *Sites) Export(ctx context.Context, id ID) (Export, error) {
	var e Export
	var x Site
	err := s.c.DB.Snapshot(ctx, func(r db.Reader) (err error) {
		if x, err = s.ByID(ctx, r, id); err != nil {
			return err
		}
		e = Export{
			Name:       x.Name,
			Type:       x.Type,
			Runtime:    x.Runtime,
			Repository: x.Repository,
			Branch:     x.Branch,
			Framework:  x.Framework,
			Build:      x.Build,
			Run:        x.Run,
			Tags:       x.Tags,
		}
		if e.Serving, err = s.ServingOf(ctx, r, id); err != nil {
			return err
		}
		vars, err := s.vars(ctx, r, id, true)
		for _, v := range vars {
			e.Env = append(e.Env, NewVar{Key: v.Key, Value: v.Value, Secret: v.Secret, Target: v.Target, Branch: v.Branch})
		}
		return err
	})
	if err != nil {
		return Export{}, err
	}
	e.Credential, err = s.ownCredential(x) // not a connected account's, which isn't the site's
	return e, err
}

// NewSite returns the input that creates a site like the exported one.
func (e Export) NewSite() NewSite {
	return NewSite{
		Name:       e.Name,
		Type:       string(e.Type),
		Source:     Site{Type: e.Type, Repository: e.Repository}.Source(),
		Repository: e.Repository,
		Branch:     e.Branch,
		Framework:  e.Framework,
		Build:      e.Build,
		Run:        e.Run,
		Tags:       e.Tags,
		Credential: e.Credential,
	}
}

// ImportTx replaces the settings and variables of the owner's site with the exported ones. SealEnv has sealed vars for
// the site; the zero SealedVars means no variables. The site's name, type, repository and addresses stay.
func (s *Sites) ImportTx(ctx context.Context, tx *db.Tx, owner account.OwnerID, id ID, e Export, vars SealedVars) error {
	site, err := s.LockTx(ctx, tx, owner, id)
	if err != nil {
		return err
	}
	build, err := json.Marshal(e.Build)
	if err != nil {
		return err
	}
	run, err := json.Marshal(e.Run)
	if err != nil {
		return err
	}
	serving, err := json.Marshal(e.Serving)
	if err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, `UPDATE sites SET branch = $2, framework = $3, build = $4, run = $5, updated_at = $6 WHERE id = $1`,
		id, e.Branch, e.Framework, string(build), string(run), db.Now()); err != nil {
		return fmt.Errorf("import settings: %w", err)
	}
	if _, err := tx.Exec(ctx, `
		INSERT INTO site_serving (site_id, settings) VALUES ($1, $2)
		ON CONFLICT (site_id) DO UPDATE SET settings = excluded.settings`, id, string(serving)); err != nil {
		return fmt.Errorf("import serving settings: %w", err)
	}
	if _, err := tx.Exec(ctx, `DELETE FROM env WHERE site_id = $1`, id); err != nil {
		return fmt.Errorf("import env: %w", err)
	}
	if len(vars.vars) > 0 {
		if _, err := s.SetSealedEnvTx(ctx, tx, owner, id, vars); err != nil {
			return err
		}
	}
	tx.Notify("live") // nodes that run it compare the settings
	return s.c.Hooks.EmitTx(ctx, tx, owner, event.SiteUpdated(s.Ref(site), "branch", "framework", "build", "run", "env"))
}
