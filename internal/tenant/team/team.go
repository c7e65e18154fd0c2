// Package team owns teams, their members with roles, invitations, and the transfer of sites between owners.
//
// A team is an owner like a personal account: its sites and domains have its OwnerID. Permissions of members are read from
// the view memberships at each request (account.CallerFor, account.Authenticate), so a change takes effect on the next
// request. The package doesn't check scopes, but it enforces roles: members can't assign, change or remove a role above
// their own, and every team keeps an owner.
package team

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"slipway/internal/platform/id"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/limits"
	"slipway/internal/tenant/operation"
	"slipway/internal/tenant/site"
	"slipway/internal/tenant/webhook"
)

// ID names a team: "team_" and 26 characters.
type ID = id.Team

// Team is a team as its members see it.
type Team struct {
	ID               ID
	Owner            account.OwnerID
	Name             string
	Slug             string
	RequireTwoFactor bool
	RequireSSO       bool
	Apps             string // which apps members may authorize for it: all, approved, none
	CreatedAt        db.Time
	Deleting         db.Time // since when it is being deleted with its sites; 0: it isn't
	Members          int
	Role             account.Role // of who asks; filled by List and Get
	EndedApps        []string     // names of apps whose access UpdateTx has ended
}

// Config names what teams stand on. All fields but Log are required.
type Config struct {
	DB         *db.DB
	Accounts   *account.Accounts
	Limits     *limits.Limits
	Sites      *site.Sites
	Hooks      *webhook.Webhooks
	Operations *operation.Operations
	Log        *slog.Logger // Optional.
}

// Teams is the service. It is safe for concurrent use.
type Teams struct {
	c     Config
	git   Hooks // what follows is set by Connect
	ties  Ties
	parts []NamedPart
}

// reservedFor is how long the slug of a deleted team can't be taken.
const reservedFor = 90 * 24 * time.Hour

// New returns Teams. It starts nothing.
func New(c Config) *Teams {
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	c.Limits.CountRows(limits.Teams, `
		SELECT count(*) FROM team_members m JOIN teams t ON t.owner_id = m.owner_id
		WHERE m.role = 'owner' AND t.deleted_at = 0 AND m.user_id = (SELECT id FROM people WHERE owner_id = $1)`)
	c.Limits.CountRows(limits.Members, `
		SELECT (SELECT count(*) FROM team_members WHERE owner_id = $1) + (SELECT count(*) FROM team_invitations WHERE owner_id = $1)`)
	return &Teams{c: c}
}

const columns = `t.id, t.owner_id, t.name, t.slug, t.require_2fa, t.require_sso, t.apps, t.created_at, t.deleting_at,
	(SELECT count(*) FROM team_members n WHERE n.owner_id = t.owner_id)`

func scan(row db.Scanner, more ...any) (t Team, err error) {
	err = row.Scan(append([]any{
		&t.ID, &t.Owner, &t.Name, &t.Slug, &t.RequireTwoFactor, &t.RequireSSO, &t.Apps, &t.CreatedAt, &t.Deleting, &t.Members,
	}, more...)...)
	if errors.Is(err, sql.ErrNoRows) {
		return t, fault.Missing("team")
	}
	if err != nil {
		return t, fmt.Errorf("read team: %w", err)
	}
	return t, nil
}

// List returns the teams that a user belongs to, by name.
func (s *Teams) List(ctx context.Context, user account.UserID) ([]Team, error) {
	rows, err := s.c.DB.Query(ctx, `
		SELECT `+columns+`, m.role FROM teams t JOIN team_members m ON m.owner_id = t.owner_id
		WHERE m.user_id = $1 AND t.deleted_at = 0 ORDER BY lower(t.name), t.id`, user)
	list, err := db.Collect(rows, err, func(r db.Scanner) (Team, error) {
		var role account.Role
		t, err := scan(r, &role)
		t.Role = role
		return t, err
	})
	if err != nil {
		return nil, fmt.Errorf("list teams: %w", err)
	}
	return list, nil
}

// Ref is a team as a list of choices names it.
type Ref struct{ Slug, Name string }

// Refs returns the teams of a user by name, for choosing one.
func (s *Teams) Refs(ctx context.Context, user account.UserID) ([]Ref, error) {
	rows, err := s.c.DB.Query(ctx, `
		SELECT t.slug, t.name FROM team_members m JOIN teams t ON t.owner_id = m.owner_id
		WHERE m.user_id = $1 AND t.deleted_at = 0 ORDER BY lower(t.name), t.id`, user)
	list, err := db.Collect(rows, err, func(r db.Scanner) (x Ref, err error) { return x, r.Scan(&x.Slug, &x.Name) })
	if err != nil {
		return nil, fmt.Errorf("list teams: %w", err)
	}
	return list, nil
}

// Find returns the team with this id or slug that a user belongs to, or a NotFound fault.
func (s *Teams) Find(ctx context.Context, r db.Reader, user account.UserID, name string) (Team, error) {
	var role account.Role
	t, err := scan(r.QueryRow(ctx, `
		SELECT `+columns+`, m.role FROM teams t JOIN team_members m ON m.owner_id = t.owner_id
		WHERE m.user_id = $1 AND t.deleted_at = 0 AND (t.id = $2 OR t.slug = $2)`, user, name), &role)
	t.Role = role
	return t, err
}

// Named returns the team with this id or slug, whoever belongs to it, or a NotFound fault.
func (s *Teams) Named(ctx context.Context, r db.Reader, name string) (Team, error) {
	return scan(r.QueryRow(ctx, `SELECT `+columns+` FROM teams t WHERE t.deleted_at = 0 AND (t.id = $1 OR t.slug = $1)`, name))
}

// Get returns the team that an owner is, or a NotFound fault.
func (s *Teams) Get(ctx context.Context, r db.Reader, owner account.OwnerID) (Team, error) {
	return scan(r.QueryRow(ctx, `SELECT `+columns+` FROM teams t WHERE t.owner_id = $1 AND t.deleted_at = 0`, owner))
}

// NewTeam holds what a team is made with.
type NewTeam struct {
	Name string // 1 to 100 characters
	Slug string // Optional: made from the name.
}

// CreateTx makes a team, whose owner the user is.
func (s *Teams) CreateTx(ctx context.Context, tx *db.Tx, by account.User, n NewTeam) (Team, error) {
	name, err := cleanName(n.Name)
	if err != nil {
		return Team{}, err
	}
	if err := s.c.Limits.RequireTx(ctx, tx, by.Owner, limits.Teams, 1); err != nil {
		return Team{}, err
	}
	owner, err := s.c.Accounts.OpenOwnerTx(ctx, tx, "team")
	if err != nil {
		return Team{}, err
	}
	slug, err := s.freeSlug(ctx, tx, name, n.Slug)
	if err != nil {
		return Team{}, err
	}
	now := db.Now()
	if _, err := tx.Exec(ctx, `
		INSERT INTO teams (id, owner_id, name, slug, require_2fa, require_sso, apps, created_at, created_by, suspended_at, deleting_at,
		deleted_at)
		VALUES ($1, $2, $3, $4, FALSE, FALSE, 'all', $5, $6, 0, 0, 0)`, db.NewID("team"), owner, name, slug, now, by.ID); err != nil {
		if db.Duplicate(err) {
			return Team{}, errSlugTaken(slug)
		}
		return Team{}, fmt.Errorf("create team: %w", err)
	}
	if err := insertMember(ctx, tx, owner, by.ID, account.RoleOwner, ""); err != nil {
		return Team{}, err
	}
	t, err := s.Get(ctx, tx, owner)
	t.Role = account.RoleOwner
	return t, err
}

// Patch changes a team. Nil fields stay as they are.
type Patch struct {
	Name             *string
	Slug             *string
	RequireTwoFactor *bool
	RequireSSO       *bool
	Apps             *string // all, approved or none
}

// UpdateTx changes a team. Requiring a second factor or single sign-on is the owners', who must come that way themselves.
func (s *Teams) UpdateTx(ctx context.Context, tx *db.Tx, by account.Caller, p Patch) (Team, error) {
	if err := account.LockOwnerTx(ctx, tx, by.Owner); err != nil {
		return Team{}, err
	}
	t, err := s.Get(ctx, tx, by.Owner)
	if err != nil {
		return t, err
	}
	if p.Name != nil {
		if t.Name, err = cleanName(*p.Name); err != nil {
			return t, err
		}
	}
	if p.Slug != nil && *p.Slug != t.Slug {
		if t.Slug, err = s.freeSlug(ctx, tx, t.Name, *p.Slug); err != nil {
			return t, err
		}
	}
	if p.RequireTwoFactor != nil && *p.RequireTwoFactor != t.RequireTwoFactor {
		if by.Role != account.RoleOwner {
			return t, fault.New(fault.Forbidden, "role_required",
				"Only owners can change whether two-factor authentication is required",
				"ask an owner of the team")
		}
		var has bool
		if err := tx.QueryRow(ctx, `SELECT two_factor FROM people WHERE id = $1`, by.User).Scan(&has); err != nil {
			return t, fmt.Errorf("find two-factor authentication: %w", err)
		}
		if !has && *p.RequireTwoFactor {
			return t, fault.New(fault.Conflict, "two_factor_missing", "You don't have two-factor authentication yourself",
				"add an authenticator app or a passkey first, or you would be blocked too")
		}
		if *p.RequireTwoFactor {
			if err := s.c.Accounts.MustBeStrong(ctx, tx, by); err != nil {
				return t, err
			}
		}
		t.RequireTwoFactor = *p.RequireTwoFactor
	}
	if p.RequireSSO != nil && *p.RequireSSO != t.RequireSSO {
		if by.Role != account.RoleOwner {
			return t, fault.New(fault.Forbidden, "role_required", "Only owners can change whether single sign-on is required",
				"ask an owner of the team")
		}
		if *p.RequireSSO {
			if err := s.mayRequireSSO(ctx, tx, by); err != nil {
				return t, err
			}
		}
		t.RequireSSO = *p.RequireSSO
	}
	if p.Apps != nil {
		if !slices.Contains([]string{"all", "approved", "none"}, *p.Apps) {
			return t, fault.New(fault.Invalid, "invalid_apps", "Invalid app policy",
				"apps must be all, approved or none").Got(*p.Apps)
		}
		t.Apps = *p.Apps
	}
	if _, err := tx.Exec(ctx, `UPDATE teams SET name = $2, slug = $3, require_2fa = $4, require_sso = $5, apps = $6 WHERE owner_id = $1`,
		by.Owner, t.Name, t.Slug, t.RequireTwoFactor, t.RequireSSO, t.Apps); err != nil {
		if db.Duplicate(err) {
			return t, errSlugTaken(t.Slug)
		}
		return t, fmt.Errorf("update team: %w", err)
	}
	if p.Apps != nil && s.ties.OAuth != nil {
		t.EndedApps, err = s.ties.OAuth.EndExcludedTx(ctx, tx, by.Owner)
	}
	return t, err
}

func cleanName(name string) (string, error) {
	name = strings.TrimSpace(name)
	if n := utf8.RuneCountInString(name); n < 1 || n > 100 || !utf8.ValidString(name) || !account.Visible(name) ||
		strings.ContainsFunc(name, unicode.IsControl) {
		return "", fault.New(fault.Invalid, "invalid_name", "Invalid team name", "a name has 1 to 100 characters")
	}
	return name, nil
}

// freeSlug returns the slug that was asked for, or one made from the name. Where that is taken it gets a number.
func (s *Teams) freeSlug(ctx context.Context, tx *db.Tx, name, asked string) (string, error) {
	slug := strings.ToLower(strings.TrimSpace(asked))
	if slug == "" {
		slug = site.Slug(name)
	} else if slug != site.Slug(slug) || len(slug) < 2 {
		return "", fault.New(fault.Invalid, "invalid_slug", "Invalid team slug",
			"a slug has 2 to 48 lower-case letters, digits and single hyphens, such as "+site.Slug(asked)).Got(asked)
	}
	// Slugs of teams that were deleted long ago are free again.
	if _, err := tx.Exec(ctx, `UPDATE teams SET slug = id WHERE slug = $1 AND deleted_at > 0 AND deleted_at < $2`,
		slug, db.Now().Add(-reservedFor)); err != nil {
		return "", fmt.Errorf("free slug: %w", err)
	}
	for n, try := 1, slug; ; n++ {
		var taken bool
		if err := tx.QueryRow(ctx, `SELECT EXISTS (SELECT 1 FROM teams WHERE slug = $1)`, try).Scan(&taken); err != nil {
			return "", fmt.Errorf("find slug: %w", err)
		}
		if !taken {
			return try, nil
		}
		if asked != "" || n > 50 {
			return "", errSlugTaken(slug)
		}
		try = fmt.Sprintf("%.44s-%d", slug, n+1)
	}
}

func errSlugTaken(slug string) error {
	return fault.New(fault.Conflict, "slug_taken", "This slug is already in use",
		"choose another one; slugs of deleted teams stay reserved for 90 days").Got(slug)
}
