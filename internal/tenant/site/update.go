package site

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"unicode/utf8"

	"slipway/internal/git/fetch"
	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/webhook/event"
)

// Patch changes the fields that aren't nil.
type Patch struct {
	Name       *string
	Repository *string // empty: none; a static site is then deployed from uploads
	Branch     *string // empty: the repository's default
	Framework  *string
	Build      *Build            // nil fields stay; an empty string resets a field to detection
	Run        *Run              // nil fields stay
	BuildNulls []byte            // JSON object with null for each Build field to reset; may be empty
	RunNulls   []byte            // the same for Run
	EditRun    func(r *Run)      // changes fields, or sets them to nil for detection. It must replace pointers, not write through them.
	Tags       *[]string         // the complete list
	Credential *fetch.Credential // an empty one deletes the stored credential, as does a repository on another host
}

// Repoints reports whether a caller restricted to some sites points the site at another repository with a credential of
// its own. Without a credential it returns a Forbidden fault: the stored credential and connected account belong to
// other members and may open repositories that the caller can't read.
func (x Site) Repoints(by account.Caller, p Patch) (bool, error) {
	if p.Repository == nil || *p.Repository == "" || by.RequireAllSites() == nil {
		return false, nil
	}
	repo, err := fetch.ParseRepository(*p.Repository)
	if err != nil || repo.String() == x.Repository {
		return false, err
	}
	if c := p.Credential; c != nil && (c.Token != "" || c.DeployKey != "") {
		return true, nil
	}
	return false, fault.New(fault.Forbidden, "credential_required", "Another repository needs a credential of its own",
		"you have access to some sites only: send a credential for it in the same request, or ask a member with access to all sites")
}

// UpdateTx changes the owner's site. The slug stays, so that URLs don't change. A patch without changes writes nothing
// and emits no event.
func (s *Sites) UpdateTx(ctx context.Context, tx *db.Tx, owner account.OwnerID, id ID, p Patch) (Site, error) {
	site, err := s.LockTx(ctx, tx, owner, id)
	if err != nil {
		return Site{}, err
	}
	before := site
	if p.Name != nil {
		if site.Name, err = checkName(*p.Name); err != nil {
			return Site{}, err
		}
	}
	switch {
	case p.Repository == nil:
	case *p.Repository == "":
		site.Repository, site.Branch = "", "" // uploads and WordPress without a repository have no branch
	default:
		repo, err := fetch.ParseRepository(*p.Repository)
		if err != nil {
			return Site{}, err
		}
		site.Repository = repo.String()
	}
	if p.Branch != nil {
		if *p.Branch != "" {
			if err := fetch.CheckBranch(*p.Branch); err != nil {
				return Site{}, err
			}
		}
		site.Branch = *p.Branch
	}
	if p.Framework != nil {
		if utf8.RuneCountInString(*p.Framework) > 64 {
			return Site{}, fault.New(fault.Invalid, "", "The framework's name is too long",
				"framework is the id of a preset, at most 64 characters")
		}
		site.Framework = *p.Framework
	}
	if p.Build != nil {
		if err := checkBuild(*p.Build); err != nil {
			return Site{}, err
		}
		if site.Build, err = reset(merge(site.Build, *p.Build), p.BuildNulls); err != nil {
			return Site{}, err
		}
	}
	if p.Run != nil {
		if err := CheckRun(*p.Run); err != nil {
			return Site{}, err
		}
		if site.Run, err = reset(mergeRun(site.Run, *p.Run), p.RunNulls); err != nil {
			return Site{}, err
		}
	}
	if p.EditRun != nil {
		p.EditRun(&site.Run)
		if err := CheckRun(site.Run); err != nil {
			return Site{}, err
		}
	}
	if p.Run != nil || p.EditRun != nil {
		if err := site.checkInstances(); err != nil {
			return Site{}, err
		}
	}
	if p.Tags != nil {
		if site.Tags, err = cleanTags(*p.Tags); err != nil {
			return Site{}, err
		}
	}
	build, err := json.Marshal(site.Build)
	if err != nil {
		return Site{}, err
	}
	run, err := json.Marshal(site.Run)
	if err != nil {
		return Site{}, err
	}
	credential := p.Credential
	if credential == nil && site.Credential && hostOf(site.Repository) != hostOf(before.Repository) {
		credential = &fetch.Credential{} // the credential was for the other host
	}
	if s.hasCredential(before, credential, site.Repository) {
		credential, p.Credential = nil, nil
	}
	if credential != nil {
		box, err := s.sealCredential(id, credential, site.Repository)
		if err != nil {
			return Site{}, err
		}
		if _, err := tx.Exec(ctx, `UPDATE sites SET credential = $2 WHERE id = $1`, id, box); err != nil {
			return Site{}, fmt.Errorf("update credential: %w", err)
		}
	}
	changed := site.differs(before, p)
	if len(changed) == 0 {
		return s.GetTx(ctx, tx, owner, id)
	}
	redeploy := site.NeedsRedeploy || site.LiveDeployment != "" &&
		(site.Repository != before.Repository || site.Branch != before.Branch || site.Framework != before.Framework ||
			slices.Contains(changed, "build"))
	_, err = tx.Exec(ctx, `
		UPDATE sites SET name = $2, repository = $3, branch = $4, framework = $5, build = $6, needs_redeploy = $7, updated_at = $8,
		search = $9, run = $10, tags = $11
		WHERE id = $1`,
		id, site.Name, site.Repository, site.Branch, site.Framework, string(build), redeploy, db.Now(), site.searchable(),
		string(run), joinTags(site.Tags))
	if err != nil {
		return Site{}, fmt.Errorf("update site: %w", err)
	}
	if slices.Contains(changed, "run") {
		tx.Notify("live") // nodes that run it compare the settings
	}
	if err := s.c.Hooks.EmitTx(ctx, tx, owner, event.SiteUpdated(s.Ref(site), changed...)); err != nil {
		return Site{}, err
	}
	return s.GetTx(ctx, tx, owner, id)
}

// hasCredential reports whether a site already has this credential for this host. A stored one that can't be decrypted
// counts as different.
func (s *Sites) hasCredential(site Site, c *fetch.Credential, repository string) bool {
	have, err := s.ownCredential(site)
	if c == nil || have == nil || err != nil {
		return false
	}
	want := *c
	want.Host = hostOf(repository)
	return *have == want
}

// differs returns the API's names of the fields that a patch changed.
func (x Site) differs(before Site, p Patch) (changed []string) {
	note := func(field string, differs bool) {
		if differs {
			changed = append(changed, field)
		}
	}
	note("name", x.Name != before.Name)
	note("repository", x.Repository != before.Repository)
	note("branch", x.Branch != before.Branch)
	note("framework", x.Framework != before.Framework)
	note("build", !reflect.DeepEqual(x.Build, before.Build))
	note("run", !reflect.DeepEqual(x.Run, before.Run))
	note("tags", !slices.Equal(x.Tags, before.Tags))
	note("credential", p.Credential != nil && (before.Credential || *p.Credential != fetch.Credential{}))
	return changed
}

// reset clears the fields of have that are null in nulls, a JSON merge patch (RFC 7396).
func reset[T any](have T, nulls []byte) (T, error) {
	if len(nulls) == 0 {
		return have, nil
	}
	var fresh T // have's pointers must not be written through
	text, err := json.Marshal(have)
	if err == nil {
		err = json.Unmarshal(text, &fresh)
	}
	if err == nil {
		err = json.Unmarshal(nulls, &fresh)
	}
	return fresh, err
}

func merge(old, p Build) Build {
	set := func(dst **string, v *string) {
		switch {
		case v == nil:
		case *v == "":
			*dst = nil
		default:
			*dst = v
		}
	}
	set(&old.Command, p.Command)
	set(&old.Install, p.Install)
	set(&old.Output, p.Output)
	set(&old.Root, p.Root)
	set(&old.Node, p.Node)
	set(&old.Depth, p.Depth)
	return old
}
