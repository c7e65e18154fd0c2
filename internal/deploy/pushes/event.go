package pushes

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"slipway/internal/deploy/deploy"
	"slipway/internal/deploy/deployment"
	"slipway/internal/git/fetch"
	"slipway/internal/git/forge"
	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/text"
	"slipway/internal/tenant/site"
)

// keepDeliveries is how many calls of a site are remembered at least.
const keepDeliveries = 1000

// trims reports whether this call should also delete old rows: one of 16 does.
func trims() bool { return rand.IntN(16) == 0 }

// Outcome is the outcome of an event.
type Outcome struct {
	Message     string
	Reason      string                  // why nothing is deployed; empty if something is
	Deployments []deployment.Deployment // the deployments that it triggered
}

// HandleTx handles a call of a site's hook, once. set must be the settings that ByHook returned and that verified the
// call; e is the parsed event. It is a NotFound fault if the hook was replaced meanwhile.
func (g *Pushes) HandleTx(ctx context.Context, tx *db.Tx, set Settings, e forge.Event, h http.Header, body []byte) (Outcome, error) {
	s, err := g.c.Sites.LockTx(ctx, tx, set.Owner, set.Site)
	if err != nil {
		return Outcome{}, err
	}
	if e.Kind == forge.Push || e.Kind == forge.PullRequest {
		if !same(s.Repository, e) {
			return Outcome{}, fault.New(fault.Forbidden, "wrong_repository", "The event is of another repository",
				"this hook is for "+s.Repository)
		}
	}
	return g.handleTx(ctx, tx, set, s, incoming{e, string(e.Provider)}, h, body)
}

// incoming is an event and how it arrived: a provider's name, ViaApp or ViaPoll.
type incoming struct {
	forge.Event
	via string
}

// The ways in which an event arrives other than by the site's own hook.
const (
	ViaApp  = "github_app" // webhook of a GitHub App
	ViaPoll = "poll"
)

// handleTx handles a verified event of a site's repository, once.
func (g *Pushes) handleTx(
	ctx context.Context,
	tx *db.Tx,
	set Settings,
	s site.Site,
	e incoming,
	h http.Header,
	body []byte,
) (Outcome, error) {
	again, err := seenTx(ctx, tx, s.ID, e.Provider, h, body)
	if err != nil {
		return Outcome{}, err
	}
	if again {
		return skipped("This delivery was handled before"), nil
	}
	out, err := g.act(ctx, tx, set, s, e)
	if err != nil {
		return Outcome{}, err
	}
	said := out.Message
	if out.Reason != "" {
		said = out.Reason
	}
	if err := noteEventTx(ctx, tx, s.ID, e, out, said); err != nil {
		return Outcome{}, err
	}
	hook := ""
	if e.via != ViaApp {
		hook = set.Hook.Digest()
	}
	n, err := tx.Exec(ctx,
		`UPDATE git_settings SET provider = $2, last_event = $3, last_event_at = $4 WHERE site_id = $1 AND ($5 = '' OR hook_digest = $5)`,
		s.ID, e.Provider, text.Line(e.Name+": "+said, 500), db.Now(), hook)
	if err != nil {
		return Outcome{}, fmt.Errorf("note git event: %w", err)
	}
	if n == 0 { // the hook was replaced since the settings were read
		return Outcome{}, fault.Missing("git hook")
	}
	tx.Notify(s.Owner.Topic())
	return out, nil
}

// Verify returns an Unauthorized fault for a call that isn't signed with the hook's secret.
func (s Settings) Verify(h http.Header, body []byte) error {
	return forge.Verify(h, body, s.secret, time.Now())
}

func skipped(why string) Outcome { return Outcome{Message: "Nothing to deploy", Reason: why} }

func (g *Pushes) act(ctx context.Context, tx *db.Tx, set Settings, s site.Site, e incoming) (Outcome, error) {
	switch e.Kind {
	case forge.Ping:
		return Outcome{Message: "The Git hook works", Reason: "A ping doesn't trigger a deployment"}, nil
	case forge.Push:
		out := skipped("The push changed no branch")
		for _, c := range e.Changes {
			one, err := g.push(ctx, tx, set, s, e, c)
			if err != nil {
				return Outcome{}, err
			}
			one.Deployments = append(out.Deployments, one.Deployments...)
			if len(out.Deployments) > 0 { // a skipped branch's reason isn't the reason of the whole push
				one.Message, one.Reason = out.Message, ""
			}
			out = one
		}
		return out, nil
	case forge.PullRequest:
		return g.pull(ctx, tx, set, s, e)
	}
	return skipped("Events of this kind don't trigger deployments"), nil
}

// push handles one change of a push.
func (g *Pushes) push(ctx context.Context, tx *db.Tx, set Settings, s site.Site, e incoming, c forge.Change) (Outcome, error) {
	main := s.Branch
	if main == "" {
		main = e.DefaultBranch
	}
	if c.Tag != "" {
		return g.tag(ctx, tx, set, s, e, c)
	}
	switch {
	case c.Branch == "":
		return skipped("The push changed no branch"), nil
	case fetch.CheckBranch(c.Branch) != nil:
		return skipped("The branch's name has characters that are not supported"), nil
	case c.Deleted && c.Branch == main:
		return skipped("The production branch was deleted; the site keeps its release"), nil
	case c.Deleted && set.DeletedBranches == Keep:
		return skipped("The branch was deleted; its preview stays, as the settings say"), nil
	case c.Deleted:
		had, err := g.c.Deployments.EndPreviewTx(ctx, tx, s.Owner, s.ID, c.Branch)
		if !had {
			return skipped("The branch was deleted"), err
		}
		return skipped("The branch was deleted; its preview was removed"), err
	}
	target := deployment.Preview
	if c.Branch == main {
		target = deployment.Production
	}
	if target == deployment.Preview { // records of these would fill the list of deployments
		switch set.Previews {
		case Off:
			return skipped("Previews are off, and " + c.Branch + " is not the production branch"), nil
		case PullRequests:
			return skipped("Only branches with a pull request have previews"), nil
		}
	}
	why, err := g.unwanted(ctx, tx, set, s, c)
	if err != nil {
		return Outcome{}, err
	}
	pull := 0
	if target == deployment.Preview && set.Previews == All {
		if pull, err = pullOf(ctx, tx, s.ID, c.Branch); err != nil {
			return Outcome{}, err
		}
	}
	return g.deploy(ctx, tx, s, e, deploy.Trigger{Target: target, Branch: c.Branch, Commit: c.Commit, Attach: pull}, c, why)
}

// tag handles a pushed tag: it is ignored, or gets a preview named like the tag.
func (g *Pushes) tag(ctx context.Context, tx *db.Tx, set Settings, s site.Site, e incoming, c forge.Change) (Outcome, error) {
	switch {
	case set.Tags != TagPreviews:
		return skipped("Tags don't trigger deployments, as the settings say"), nil
	case fetch.CheckBranch(c.Tag) != nil:
		return skipped("The tag's name has characters that are not supported"), nil
	case c.Tag == s.Branch:
		return skipped("The tag is called like the production branch"), nil
	case c.Deleted:
		had, err := g.c.Deployments.EndPreviewTx(ctx, tx, s.Owner, s.ID, c.Tag)
		if !had {
			return skipped("The tag was deleted"), err
		}
		return skipped("The tag was deleted; its preview was removed"), err
	}
	c.Branch, c.All = c.Tag, false // a tag is deployed regardless of the changed files
	why, err := g.unwanted(ctx, tx, set, s, c)
	if err != nil {
		return Outcome{}, err
	}
	return g.deploy(ctx, tx, s, e, deploy.Trigger{Target: deployment.Preview, Branch: c.Tag, Commit: c.Commit}, c, why)
}

// deploy triggers a deployment, or records why there is none.
func (g *Pushes) deploy(
	ctx context.Context,
	tx *db.Tx,
	s site.Site,
	e incoming,
	t deploy.Trigger,
	c forge.Change,
	why string,
) (Outcome, error) {
	ref := t.Branch
	if e.Pull != nil {
		ref = pullRef(t.Pull)
	}
	before, err := triggeredTx(ctx, tx, s.ID, e.via, ref, t.Commit)
	if err != nil {
		return Outcome{}, err
	}
	if before != "" {
		return skipped("Deployment " + string(before) + " of this commit was triggered already"), nil
	}
	if why != "" {
		_, err := g.c.Deployments.SkipTx(ctx, tx, s.Owner, s.ID, deploy.Skipped{
			Branch:  t.Branch,
			Commit:  t.Commit,
			Target:  t.Target,
			Pull:    t.Pull,
			Message: text.Line(c.Message, 500),
			Author:  text.Line(c.Author, 200),
			Reason:  deployment.SkippedFor(why),
		})
		return skipped(why), err
	}
	x, err := g.c.Deployments.PushTx(ctx, tx, s, t)
	return Outcome{Message: "Deployment triggered", Deployments: []deployment.Deployment{x}}, err
}

var skipWord = regexp.MustCompile(`(?i)\[(skip ci|ci skip|no ci|skip deploy|deploy skip)\]`)

// unwanted returns why a pushed commit must not be deployed; empty if it must.
func (g *Pushes) unwanted(ctx context.Context, r db.Reader, set Settings, s site.Site, c forge.Change) (string, error) {
	word := skipWord.FindString(c.Message)
	switch {
	case !set.AutoDeploy:
		return deployment.WhyOff, nil
	case s.Status == site.Stopped:
		return deployment.WhyStopped, nil
	case word != "":
		return "the commit message says " + strings.ToLower(word), nil
	case !c.All:
		return "", nil // without a complete list of files, nothing can be excluded
	}
	watch := set.Watch
	var uses []string
	if len(watch) == 0 {
		var err error
		if watch, uses, err = g.c.Deployments.WatchOf(ctx, r, s); err != nil {
			return "", err
		}
		if slices.ContainsFunc(c.Files, func(f string) bool { return path.Base(f) == "slipway.toml" }) {
			return "", nil // the patterns themselves may have changed
		}
	}
	switch {
	case len(watch) > 0 && !watched(watch, c.Files):
		return "no watched file changed", nil
	case len(watch) == 0 && s.Build.Root != nil && !concerns(*s.Build.Root, uses, c.Files):
		return "nothing changed below " + *s.Build.Root, nil
	}
	return "", nil
}

// seenTx reports whether a call was handled before, and records it. Only Standard Webhooks signs the delivery's id. For
// other signatures, which cover only the body, the body identifies the call as well.
func seenTx(ctx context.Context, tx *db.Tx, id site.ID, p forge.Provider, h http.Header, body []byte) (bool, error) {
	var names []string
	if d := forge.Delivery(h); d != "" {
		names = append(names, "delivery "+d)
	}
	if p != forge.GitLab || len(names) == 0 {
		names = append(names, "body "+string(body))
	}
	values, args := "($1, $2, $3)", []any{id}
	for i, name := range names {
		if i == 1 {
			values += ", ($1, $4, $5)"
		}
		sum := sha256.Sum256([]byte(name))
		args = append(args, hex.EncodeToString(sum[:]), db.NewID("gdl"))
	}
	n, err := tx.Exec(ctx, `INSERT INTO git_deliveries (site_id, digest, seq) VALUES `+values+` ON CONFLICT DO NOTHING`, args...)
	if err != nil {
		return false, fmt.Errorf("note delivery: %w", err)
	}
	if n < int64(len(names)) {
		return true, nil
	}
	if !trims() {
		return false, nil
	}
	_, err = tx.Exec(ctx, `
		DELETE FROM git_deliveries WHERE site_id = $1 AND seq < (
			SELECT MIN(seq) FROM (SELECT seq FROM git_deliveries WHERE site_id = $1 ORDER BY seq DESC LIMIT $2) AS kept)`, id, keepDeliveries)
	if err != nil {
		return false, fmt.Errorf("forget deliveries: %w", err)
	}
	return false, nil
}

// same reports whether one of the event's repository addresses is the site's repository. It ignores letter case, and
// the port if only one side has one.
func same(repository string, e forge.Event) bool {
	want, addresses := strings.ToLower(repository), e.Repository
	if len(addresses) == 0 && e.Path != "" {
		_, path, _ := strings.Cut(want, "/")
		return strings.TrimPrefix(path, "scm/") == strings.TrimPrefix(strings.ToLower(e.Path), "scm/")
	}
	return want != "" && slices.ContainsFunc(addresses, func(a string) bool {
		if !strings.Contains(a, "://") { // git@host:owner/repo.git
			a = "ssh://" + strings.Replace(a, ":", "/", 1)
		}
		u, err := url.Parse(a)
		if err != nil {
			return false
		}
		path := "/" + strings.TrimSuffix(strings.Trim(u.Path, "/"), ".git")
		return strings.ToLower(u.Host+path) == want || strings.ToLower(u.Hostname()+path) == want
	})
}
