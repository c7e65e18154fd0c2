// Package deployment owns the type of a deployment and reading deployments: one by its id, a site's in pages, and the
// positions of queued ones.
//
// It writes nothing: package deploy does.
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

// ID identifies a deployment: "dep_" and 26 characters.
type ID = id.Deployment

// ParseID accepts both spellings of a deployment's id, dep_… and dpl_….
func ParseID(s string) ID {
	if rest, ok := strings.CutPrefix(s, "dpl_"); ok {
		return ID("dep_" + rest)
	}
	return ID(s)
}

// Status is the state of a deployment.
type Status string

// The states. Pending becomes building, then deploying, then one of the last three, which are final.
const (
	Pending   Status = "pending"
	Building  Status = "building"
	Deploying Status = "deploying"
	Success   Status = "success"
	Failed    Status = "failed"
	Canceled  Status = "canceled"
)

// Statuses lists all states.
var Statuses = []Status{Pending, Building, Deploying, Success, Failed, Canceled}

// Ended reports whether the state is final.
func (s Status) Ended() bool { return s == Success || s == Failed || s == Canceled }

// Cause names what triggered a deployment.
type Cause string

// The triggers.
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

// Causes lists all causes.
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
	Pull          int    // number of its pull request; 0: none
	Fork          bool   // the commit is from a fork: its build sees no variables, no credential and no cache
	LimitedEnv    bool   // the user who triggered it may not read variables: it gets only those that exist for previews alone
	Repository    string // from which the commit was fetched; empty if not recorded
	Forge         forge.Provider
	Title         string
	ClearCache    bool
	CommitHash    string
	Pinned        bool // whether the trigger named the commit; else it is the branch's newest
	CommitMessage string
	CommitAuthor  string
	Framework     string
	Plan          json.RawMessage // what is built and why; nil until known
	Release       release.ID      // empty if there is none, or it isn't kept any more
	Runtime       string
	Bundle        bundle.ID // what its program runs from; empty if it has none, or it isn't kept any more
	ReleaseOf     ID        // for a rollback or a promotion, the deployment whose release it made live
	Error         string
	Stages        []journal.Stage
	CreatedAt     db.Time
	StartedAt     db.Time
	CompletedAt   db.Time

	Upload id.Upload // the upload it was made from; empty for a commit
	Source *Source   // what the upload contained; nil for a commit

	Hops     int    // number of webhooks and deploy hooks that led to it
	HookBody string // sealed body of the deploy hook's call
	SiteName string // at the time of reading; empty if not known

	URL          string // its immutable address
	PreviewURL   string // the stable address of its branch; empty for production
	PreviewLabel string // of PreviewURL
	Current      bool   // whether the site serves it
	Queue        *Queue // position of a pending one that waits to begin or for a build slot
}

// Source describes the upload that a deployment was made from.
type Source struct {
	Kind   string `json:"kind"` // output or source
	Files  int64  `json:"files"`
	Bytes  int64  `json:"bytes"`
	Digest string `json:"digest"` // of the manifest
	Dirty  bool   `json:"dirty"`  // there were uncommitted changes
}

// Queue is the position of a waiting deployment, and the reason for waiting.
type Queue struct {
	Position int    // 1 is next
	Reason   string // site_busy: another deployment of the site runs; workers_busy: all workers are busy
}

// Target is production or preview.
type Target string

// The targets.
const (
	Production Target = "production" // served at the site's own addresses
	Preview    Target = "preview"    // served only at preview addresses
)

// Targets lists all targets.
var Targets = []Target{Production, Preview}

// webhookWord returns the status as webhook payloads spell it.
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

// Event returns the webhook payload of a deployment.
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

// CommitURL returns the URL of the commit's page on the Git provider; empty if it isn't known.
func (x Deployment) CommitURL() string { return x.Forge.CommitURL(x.Repository, x.CommitHash) }

// BranchURL returns the URL of the branch's page on the Git provider; empty if it isn't known, and for forks, whose
// branches are in other repositories.
func (x Deployment) BranchURL() string {
	if x.Fork {
		return ""
	}
	return x.Forge.BranchURL(x.Repository, x.Branch)
}

// PullURL returns the URL of the pull request's page on the Git provider; empty without one.
func (x Deployment) PullURL() string { return x.Forge.PullURL(x.Repository, x.Pull) }
