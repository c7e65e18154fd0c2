// Package deployment owns the type of a deployment, and reading deployments: one by its id,
// those of a site in pages, and the positions of queued ones.
//
// It changes nothing: package deploy writes what is read here.
package deployment

import (
	"encoding/json"
	"strings"

	"slipway/internal/platform/id"

	"slipway/internal/build/bundle"
	"slipway/internal/build/release"
	"slipway/internal/deploy/journal"
	"slipway/internal/git/forge"
	"slipway/internal/platform/db"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/site"
	"slipway/internal/tenant/webhook/event"
)

// ID names a deployment: "dep_" and 26 characters.
type ID = id.Deployment

// ParseID takes a deployment's id in either spelling, dep_… or dpl_….
func ParseID(s string) ID {
	if rest, ok := strings.CutPrefix(s, "dpl_"); ok {
		return ID("dep_" + rest)
	}
	return ID(s)
}

// Status is where a deployment stands.
type Status string

// The states. Pending becomes building, then deploying, then one of the last three,
// which are for ever.
const (
	Pending   Status = "pending"
	Building  Status = "building"
	Deploying Status = "deploying"
	Success   Status = "success"
	Failed    Status = "failed"
	Canceled  Status = "canceled"
)

// Statuses are all there are.
var Statuses = []Status{Pending, Building, Deploying, Success, Failed, Canceled}

// Ended reports whether nothing will change any more.
func (s Status) Ended() bool { return s == Success || s == Failed || s == Canceled }

// Cause names what triggered a deployment.
type Cause string

// The causes.
const (
	ByProvision Cause = "provision"
	ByAPI       Cause = "api"
	ByHook      Cause = "hook"
	ByDashboard Cause = "dashboard"
	ByPush      Cause = "push"
	ByRollback  Cause = "rollback"
	ByPromote   Cause = "promote"
	ByRestore   Cause = "restore" // of a backup
)

// Causes are all there are.
var Causes = []Cause{ByProvision, ByAPI, ByHook, ByDashboard, ByPush, ByRollback, ByPromote, ByRestore}

// Deployment is one deployment as the site's owner sees it.
type Deployment struct {
	ID            ID
	Site          site.ID
	Owner         account.OwnerID
	Status        Status
	Cause         Cause
	Target        Target
	Branch        string // empty until the repository's default is known
	Pull          int    // the pull request that it is for; 0: none
	Fork          bool   // the commit is from a fork: its build sees no variables, no credential and no cache
	LimitedEnv    bool   // whoever asked for it may not read variables: it sees those for previews alone
	Repository    string // that the commit was fetched from; empty where that was not noted
	Forge         forge.Provider
	Title         string
	ClearCache    bool
	CommitHash    string
	Pinned        bool // whether the commit was asked for; else it is the branch's newest
	CommitMessage string
	CommitAuthor  string
	Framework     string
	Plan          json.RawMessage // what was done and why; nil until it is known
	Release       release.ID      // empty: none, or no longer kept
	Runtime       string
	Bundle        bundle.ID // what its program runs from; empty: it has none, or it is no longer stored
	ReleaseOf     ID        // the deployment whose release a rollback or a promotion made live
	Error         string
	Stages        []journal.Stage
	CreatedAt     db.Time
	StartedAt     db.Time
	CompletedAt   db.Time

	Upload id.Upload // what was uploaded for it; empty: it is of a commit
	Source *Source   // what that held; nil: it is of a commit

	Hops     int    // webhooks and deploy hooks that led to it
	HookBody string // sealed: what the deploy hook's caller sent
	SiteName string // as it was when the deployment was read; empty where that is not known

	URL          string // its immutable address
	PreviewURL   string // the stable address of its branch; empty for production
	PreviewLabel string // of PreviewURL
	Current      bool   // whether the site serves it
	Queue        *Queue // for a pending one, whether it has not begun or waits for a build slot
}

// Source holds what a deployment was made of that is not of a commit.
type Source struct {
	Kind   string `json:"kind"` // output or source
	Files  int64  `json:"files"`
	Bytes  int64  `json:"bytes"`
	Digest string `json:"digest"` // of the list of its files
	Dirty  bool   `json:"dirty"`  // there were changes beside the commit
}

// Queue holds the position of a waiting deployment, and why it waits.
type Queue struct {
	Position int    // 1 is next
	Reason   string // site_busy: another deployment of the site runs; workers_busy: all are taken
}

// Target is production or preview.
type Target string

// The targets.
const (
	Production Target = "production" // it becomes what the site serves
	Preview    Target = "preview"    // it is served at addresses of its own alone
)

// Targets are all there are.
var Targets = []Target{Production, Preview}

// webhookWord is the status in the words of webhook payloads.
func (s Status) webhookWord() string {
	switch s {
	case Success:
		return "ready"
	case Failed:
		return "error"
	case Deploying:
		return "building"
	}
	return string(s)
}

// Event returns what webhooks say of a deployment.
func (x Deployment) Event() event.Deployment {
	return event.Deployment{
		ID:            x.ID,
		URL:           x.URL,
		Status:        x.Status.webhookWord(),
		Branch:        x.Branch,
		CommitHash:    x.CommitHash,
		CommitMessage: x.CommitMessage,
		CommitAuthor:  x.CommitAuthor,
		Trigger:       string(x.Cause),
		Target:        string(x.Target),
		Error:         x.Error,
		Hops:          x.Hops,
		CreatedAt:     x.CreatedAt,
		StartedAt:     x.StartedAt,
		CompletedAt:   x.CompletedAt,
	}
}

// CommitURL is the page of the commit at the forge; empty where the forge or the commit is
// not known.
func (x Deployment) CommitURL() string { return x.Forge.CommitURL(x.Repository, x.CommitHash) }

// BranchURL is the page of the branch at the forge; empty where it is not known, and for a
// fork's, which lies elsewhere.
func (x Deployment) BranchURL() string {
	if x.Fork {
		return ""
	}
	return x.Forge.BranchURL(x.Repository, x.Branch)
}

// PullURL is the page of the pull request at the forge; empty without one.
func (x Deployment) PullURL() string { return x.Forge.PullURL(x.Repository, x.Pull) }
