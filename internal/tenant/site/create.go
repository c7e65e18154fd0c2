package site

import (
	"context"
	"encoding/json"
	"fmt"
	"path"
	"strings"
	"unicode"
	"unicode/utf8"

	"slipway/internal/git/fetch"
	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/job"
	"slipway/internal/platform/lazyregexp"
	"slipway/internal/platform/text"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/limits"
	"slipway/internal/tenant/webhook/event"
)

// Provision is the job that brings a new site to its first release. It is enqueued with the site and performed by the
// deploying service.
type Provision struct{ Site ID }

// Kind implements [job.Args].
func (Provision) Kind() string { return "site.provision" }

// NewSite is the input of [Sites.Create].
type NewSite struct {
	Name       string
	Type       string
	Source     string // git or upload. Optional: git for static.
	Repository string // any form that source.ParseRepository accepts; optional for wordpress
	Branch     string // Optional: the repository's default
	Framework  string // ID of a preset. Optional.
	Build      Build
	Run        Run
	Tags       []string
	Credential *fetch.Credential // for a private repository. Optional.

	Unprovisioned bool // the caller brings its first release
}

// Create creates a site with its slug, event and provisioning job.
func (s *Sites) Create(ctx context.Context, owner account.OwnerID, n NewSite) (site Site, err error) {
	err = s.c.DB.Write(ctx, func(tx *db.Tx) (err error) {
		site, err = s.CreateTx(ctx, tx, owner, n)
		return err
	})
	return site, err
}

// CreateTx is [Sites.Create] inside the caller's transaction.
func (s *Sites) CreateTx(ctx context.Context, tx *db.Tx, owner account.OwnerID, n NewSite) (Site, error) {
	site, err := check(n)
	if err != nil {
		return Site{}, err
	}
	site.ID, site.Owner, site.Status = db.ID[ID]("site"), owner, Pending
	site.CreatedAt = db.Now()
	site.UpdatedAt = site.CreatedAt
	if site.Type == WordPress {
		if err := s.c.Limits.RequireTx(ctx, tx, owner, limits.WordPress, 1); err != nil {
			return Site{}, err
		}
	}
	if err := s.requireRoom(ctx, tx, owner); err != nil {
		return Site{}, err
	}
	if site.Slug, err = claimSlug(ctx, tx, owner, site.ID, site.Name); err != nil {
		return Site{}, err
	}
	box, err := s.sealCredential(site.ID, n.Credential, site.Repository)
	if err != nil {
		return Site{}, err
	}
	build, err := json.Marshal(site.Build)
	if err != nil {
		return Site{}, err
	}
	run, err := json.Marshal(site.Run)
	if err != nil {
		return Site{}, err
	}
	bump(tx, site.Owner, site.ID)
	site.Credential = box != ""
	_, err = tx.Exec(
		ctx, `
		INSERT INTO sites (id, owner_id, name, slug, type, runtime, status, status_reason, repository, branch, framework, build,
			credential, needs_redeploy, live_deployment, live_release, live_version, created_at, updated_at, deleted_at, search, run, tags)
		VALUES ($1, $2, $3, $4, $5, $6, $7, '', $8, $9, $10, $11, $12, FALSE, '', '', 0, $13, $13, 0, $14, $15, $16)`,
		site.ID, owner, site.Name, site.Slug, site.Type, site.Runtime, site.Status, site.Repository, site.Branch,
		site.Framework, string(build), box, site.CreatedAt, site.searchable(), string(run), joinTags(site.Tags),
	)
	if err != nil {
		return Site{}, fmt.Errorf("insert site: %w", err)
	}
	if err := count(ctx, tx, owner, site.Type, site.Status, 1); err != nil {
		return Site{}, err
	}
	if !n.Unprovisioned && site.Source() != SourceUpload {
		if _, err := job.Enqueue(ctx, tx, Provision{site.ID}, job.Options{
			Unique: "provision/" + string(site.ID),
			Share:  string(owner),
		}); err != nil {
			return Site{}, err
		}
	}
	return site, s.c.Hooks.EmitTx(ctx, tx, owner, event.SiteCreated(s.Ref(site)))
}

// churn limits the sites that an owner may create within 30 days, as a multiple of the limit of sites. A build's user
// ID isn't reused for that long, and there are 65,536.
const churn = 2

// requireRoom enforces the limit of sites and counts one more.
func (s *Sites) requireRoom(ctx context.Context, tx *db.Tx, owner account.OwnerID) error {
	if err := s.c.Limits.RequireTx(ctx, tx, owner, limits.Sites, 1); err != nil { // which locks the owner
		return err
	}
	var ending bool
	if err := tx.QueryRow(ctx, `SELECT EXISTS (SELECT 1 FROM ending_owners WHERE owner_id = $1)`, owner).Scan(&ending); err != nil {
		return fmt.Errorf("find owner's end: %w", err)
	}
	if ending { // otherwise its deletion would never end
		return fault.New(fault.Conflict, "team_deleting", "This team is being deleted", "create the site in another account")
	}
	most, err := s.c.Limits.LimitOf(ctx, tx, owner, limits.Sites)
	if err != nil {
		return err
	}
	today := int64(db.Now()) / (24 * 60 * 60 * 1000)
	if _, err := tx.Exec(ctx, `
		INSERT INTO site_starts (owner_id, day, n) VALUES ($1, $2, 1)
		ON CONFLICT (owner_id, day) DO UPDATE SET n = site_starts.n + 1`, owner, today); err != nil {
		return fmt.Errorf("count new sites: %w", err)
	}
	if _, err := tx.Exec(ctx, `DELETE FROM site_starts WHERE owner_id = $1 AND day < $2`, owner, today-30); err != nil {
		return fmt.Errorf("count new sites: %w", err)
	}
	var made int64
	if err := tx.QueryRow(ctx, `SELECT SUM(n) FROM site_starts WHERE owner_id = $1`, owner).Scan(&made); err != nil {
		return fmt.Errorf("count new sites: %w", err)
	}
	if most < limits.Unlimited/churn && made > churn*most {
		return limits.Reached(limits.Sites, churn*most, made-1,
			fmt.Sprintf("this account created %d sites in the last 30 days, deleted ones included, and can create %d", made-1, churn*most))
	}
	return nil
}

// Ref returns the site as events show it.
func (s *Sites) Ref(x Site) event.Site {
	return event.Site{ID: x.ID, Name: x.Name, URL: s.URL(x.Slug)}
}

// check validates the input and returns the site.
func check(n NewSite) (Site, error) {
	name, err := checkName(n.Name)
	if err != nil {
		return Site{}, err
	}
	site := Site{Name: name, Type: Type(n.Type), Branch: n.Branch, Framework: n.Framework, Build: n.Build, Run: mergeRun(Run{}, n.Run)}
	if site.Tags, err = cleanTags(n.Tags); err != nil {
		return Site{}, err
	}
	switch site.Type {
	case Static, WordPress:
		site.Runtime = n.Type
	default:
		return Site{}, fault.New(fault.Invalid, "invalid_site_type", fmt.Sprintf("Invalid site type %q", text.Clip(n.Type, 200)),
			"type must be static or wordpress").Got(text.Clip(n.Type, 200))
	}
	switch {
	case n.Source != "" && n.Source != SourceGit && n.Source != SourceUpload:
		return Site{}, fault.New(fault.Invalid, "invalid_source", "Invalid source",
			"source must be git or upload").Got(text.Clip(n.Source, 200))
	case n.Source == SourceUpload && (n.Repository != "" || site.Type != Static):
		return Site{}, fault.New(fault.Invalid, "invalid_source", "Only a static site without a repository takes uploads",
			"omit repository, or omit source to deploy from it")
	case n.Source == SourceUpload:
	case n.Repository != "":
		repo, err := fetch.ParseRepository(n.Repository)
		if err != nil {
			return Site{}, err
		}
		site.Repository = repo.String()
	case site.Type == Static:
		return Site{}, fault.New(fault.Invalid, "repository_required", "A static site needs a repository",
			"repository is the location of a Git repository in host/owner/repo form; or set source to upload, and deploy a folder")
	}
	if n.Branch != "" {
		if err := fetch.CheckBranch(n.Branch); err != nil {
			return Site{}, err
		}
	}
	if utf8.RuneCountInString(n.Framework) > 64 {
		return Site{}, fault.New(fault.Invalid, "", "The framework's name is too long",
			"framework is the id of a preset, at most 64 characters")
	}
	if err := CheckRun(n.Run); err != nil {
		return Site{}, err
	}
	if err := site.checkInstances(); err != nil {
		return Site{}, err
	}
	return site, checkBuild(n.Build)
}

// checkName trims a display name and requires 1 to 100 printable characters.
func checkName(name string) (string, error) {
	name = strings.TrimSpace(name)
	bad := func(why string) (string, error) {
		return "", fault.New(fault.Invalid, "invalid_name", why,
			"name must have 1 to 100 characters, none of them control characters").Got(text.Clip(name, 200))
	}
	switch n := utf8.RuneCountInString(name); {
	case n == 0:
		return bad("The site needs a name")
	case n > 100:
		return bad("The site's name is too long")
	case !utf8.ValidString(name):
		return bad("The site's name is not valid UTF-8")
	}
	for _, r := range name {
		// Bidirectional overrides reorder the text around them (Unicode TR 36 §2.3.2).
		if unicode.IsControl(r) || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069 || r == 0x2028 || r == 0x2029 {
			return bad("The site's name contains a control character")
		}
	}
	if !account.Visible(name) {
		return bad("The site's name has no visible character")
	}
	return name, nil
}

var depth = lazyregexp.New(`^(?:[1-9][0-9]{0,3}|10000)$`)

// checkBuild limits the settings' lengths and requires folders to be inside the repository.
func checkBuild(b Build) error {
	if d := b.Depth; d != nil && *d != "" && *d != "full" && !depth.MatchString(*d) {
		return fault.New(fault.Invalid, "invalid_build", "build.depth must be a number of commits from 1 to 10000, or full",
			"builds see as many commits of the repository's history").Got(text.Clip(*d, 200))
	}
	for name, v := range map[string]*string{
		"command": b.Command,
		"install": b.Install,
		"node":    b.Node,
		"output":  b.Output,
		"root":    b.Root,
	} {
		if v == nil {
			continue
		}
		bad := func(why, details string) error {
			return fault.New(fault.Invalid, "invalid_build", why, details).Got(text.Clip(*v, 200))
		}
		if len(*v) > 4096 || strings.ContainsRune(*v, 0) {
			return bad("build."+name+" is too long or contains a NUL", "at most 4,096 bytes of text")
		}
		if name != "output" && name != "root" || *v == "" {
			continue
		}
		if strings.ContainsAny(*v, "\\\n\r") || path.IsAbs(*v) || !localPath(*v) {
			return bad("build."+name+" must be a folder inside the repository", "a relative path without .. , such as dist or apps/web")
		}
	}
	return nil
}

func localPath(p string) bool {
	p = path.Clean(p)
	return p != ".." && !strings.HasPrefix(p, "../") && !path.IsAbs(p)
}

// sealCredential seals the credential for the repository's host. It is never sent to another host.
func (s *Sites) sealCredential(id ID, c *fetch.Credential, repository string) (string, error) {
	if c == nil || *c == (fetch.Credential{}) {
		return "", nil
	}
	if repository == "" {
		return "", fault.New(fault.Invalid, "repository_required", "A credential needs a repository",
			"send repository together with credential")
	}
	sealed := *c
	sealed.Host = hostOf(repository)
	if len(c.Token) > 4096 || len(c.DeployKey) > 16384 || strings.ContainsAny(c.Token+c.User, "\x00\r\n") {
		return "", fault.New(fault.Invalid, "", "Invalid repository credential",
			"token is at most 4,096 characters on one line; deployKey is a private key in PEM form")
	}
	plain, err := json.Marshal(sealed)
	if err != nil {
		return "", err
	}
	return s.c.Seal.Seal(plain, credentialPurpose(id)), nil
}
