package deployments

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/netip"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"slipway/internal/platform/id"

	"slipway/internal/deploy/deploy"
	"slipway/internal/deploy/pushes"
	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/lazyregexp"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/audit"
	"slipway/internal/tenant/oauth"
	"slipway/internal/tenant/site"
	"slipway/internal/tenant/webhook/delivery"
	"slipway/internal/web/api/contract"
)

type hookBody struct {
	ID              string   `json:"id" doc:"Id of the hook. A secret: anyone who has it can deploy the site."`
	SiteID          site.ID  `json:"siteId"`
	Name            string   `json:"name"`
	URL             string   `json:"url" doc:"Send a POST request here to deploy. It contains the secret."`
	Branch          *string  `json:"branch" doc:"The branch that it deploys. Null: the site's branch."`
	AnyBranch       bool     `json:"anyBranch" doc:"Whether callers may name another branch."`
	Title           *string  `json:"title" doc:"Default title of its deployments."`
	ClearCache      bool     `json:"clearCache" doc:"Whether it always builds without the cache."`
	Signed          bool     `json:"signed" doc:"Whether callers must sign the body with the hook's secret."`
	Addresses       []string `json:"addresses" doc:"Addresses and ranges that may call it. Empty: any."`
	ExpiresAt       *string  `json:"expiresAt" format:"date-time"`
	PerMinute       *int     `json:"perMinute" doc:"Calls per minute. Null: the installation's rate limit."`
	PerDay          int      `json:"perDay" doc:"Calls per day (UTC)."`
	Active          bool     `json:"active"`
	LastTriggeredAt *string  `json:"lastTriggeredAt" format:"date-time"`
	TriggerCount    int      `json:"triggerCount"`
	LastDeployment  *string  `json:"lastDeploymentId"`
	CreatedAt       string   `json:"createdAt" format:"date-time"`
}

func (a *API) hookRoutes() {
	a.AddHook(calls{a})
	r := func(path, id, summary, doc string, s account.Scope) contract.Route {
		return contract.Route{Path: path, ID: id, Tag: "Deploy hooks", Summary: summary, Doc: doc, Scope: s, Noun: "deploy hook", Private: true}
	}
	contract.Get(a.API,
		r("/sites/{id}/hooks", "listHooks", "List deploy hooks",
			"With their URLs, which are secrets. Apps list only the hooks that they created.", account.DeploymentsWrite),
		a.listHooks)
	create := r("/sites/{id}/hooks", "createHook", "Create a deploy hook",
		"A POST to its `url` deploys the site without an API key.", account.DeploymentsWrite)
	create.Limited = true
	create.Status = 201
	contract.Post(a.API, create, a.createHook)
	contract.Change(a.API, "PATCH",
		r("/hooks/{id}", "updateHook", "Change a deploy hook",
			"Changes its name, branch, restrictions or status. With `rotate` it gets a new URL, and the old one stops working.",
			account.DeploymentsWrite),
		a.updateHook)
	contract.Change(a.API, "DELETE", r("/hooks/{id}", "deleteHook", "Delete a deploy hook", "", account.DeploymentsWrite), a.deleteHook)

	call := contract.Route{
		Path:    "/hooks/deploy/{hook}",
		ID:      "callHook",
		Tag:     "Deploy hooks",
		Summary: "Deploy by hook",
		Noun:    "deploy hook",
		Hook:    true,
		Doc: "Needs no API key: the URL is the credential. The build gets a body of up to 32 KiB as `SLIPWAY_HOOK_BODY` and the " +
			"title as `SLIPWAY_HOOK_TITLE`. Only POST deploys, so link previews and crawlers don't. " +
			"If a hook or push has already queued a deployment of the same branch, the call is merged into it and the response has " +
			"`deduplicated`; calls with a body are never merged. " +
			"Calls of Git providers are recognized by their headers: pings and events other than pushes to the hook's branch are " +
			"answered with `skipped` and the reason. Provider signatures are not checked; use a Git hook for that.",
	}
	contract.PostHook(a.API, call, reflect.TypeFor[calledHook](), a.answerHook)
}

func (a *API) listHooks(ctx context.Context, c account.Caller, in *contract.PartOf[site.ID]) (contract.Data[hookBody], error) {
	if _, err := a.Site(ctx, c, in.ID); err != nil {
		return contract.Data[hookBody]{}, err
	}
	hooks, err := a.Sites.Hooks(ctx, c.Owner, in.ID)
	if err != nil {
		return contract.Data[hookBody]{}, err
	}
	// A hook's URL outlives the access of an app that reads it, so apps only read their own hooks.
	made, err := a.OAuth.Made(ctx, a.DB, c, oauth.DeployHook)
	if err != nil {
		return contract.Data[hookBody]{}, err
	}
	hooks = slices.DeleteFunc(hooks, func(h site.Hook) bool { return !made(h.ID.Ref()) })
	return contract.Part(in.PartIn, contract.Each(hooks, a.showHook), err)
}

type createHookIn struct {
	contract.ByID[site.ID]
	Body struct {
		Name       string   `json:"name" doc:"1 to 100 characters."`
		Branch     string   `json:"branch,omitempty" doc:"The branch to deploy. Default: the site's branch."`
		AnyBranch  bool     `json:"anyBranch,omitempty" doc:"Allow callers to name another branch."`
		Title      string   `json:"title,omitempty" doc:"Default title of its deployments, at most 200 characters."`
		ClearCache bool     `json:"clearCache,omitempty" doc:"Always build without the cache."`
		Secret     string   `json:"secret,omitempty" doc:"Signing secret, at most 256 characters, never returned. Callers must send X-Hub-Signature-256: sha256= and the hex HMAC-SHA256 of the body with this key."`
		Addresses  []string `json:"addresses,omitempty" doc:"Addresses or CIDR ranges that may call it. Default: any." example:"[\"203.0.113.0/24\"]"`
		ExpiresAt  *string  `json:"expiresAt,omitempty" format:"date-time" doc:"When it expires. Default: never."`
		PerMinute  int      `json:"perMinute,omitempty" minimum:"0" maximum:"1000" doc:"Calls per minute. 0: the installation's rate limit."`
		PerDay     int      `json:"perDay,omitempty" minimum:"0" maximum:"10000" doc:"Calls per day (UTC). 0: 1,000."`
	}
}

func (a *API) createHook(ctx context.Context, tx *db.Tx, c account.Caller, in *createHookIn) (_ hookBody, did audit.Event, _ error) {
	if err := a.Allowed(ctx, tx, c, in.ID); err != nil {
		return hookBody{}, did, err
	}
	b := in.Body
	n := site.NewHook{
		Name:       b.Name,
		Branch:     b.Branch,
		AnyBranch:  b.AnyBranch,
		Title:      b.Title,
		ClearCache: b.ClearCache,
		Rules:      site.HookRules{Secret: b.Secret, PerMinute: b.PerMinute, PerDay: b.PerDay},
	}
	var err error
	if n.Rules.Addresses, err = networks(b.Addresses); err != nil {
		return hookBody{}, did, err
	}
	if b.ExpiresAt != nil {
		if n.Rules.ExpiresAt, err = expiry(*b.ExpiresAt); err != nil {
			return hookBody{}, did, err
		}
	}
	h, err := a.Sites.CreateHookTx(ctx, tx, c.Owner, in.ID, n)
	if err == nil {
		err = a.OAuth.MadeTx(ctx, tx, c, oauth.DeployHook, h.ID.Ref())
	}
	did = audit.Event{Action: "hook.created", Subject: string(in.ID), Detail: h.Name}
	return a.showHook(h), did, err
}

type updateHookIn struct {
	contract.ByID[string]
	Body struct {
		Name       *string  `json:"name,omitempty"`
		Branch     *string  `json:"branch,omitempty" doc:"Empty: the site's branch."`
		AnyBranch  *bool    `json:"anyBranch,omitempty"`
		Title      *string  `json:"title,omitempty"`
		ClearCache *bool    `json:"clearCache,omitempty"`
		Secret     *string  `json:"secret,omitempty" doc:"Empty: remove it."`
		Addresses  []string `json:"addresses,omitempty" doc:"An empty list: any."`
		ExpiresAt  *string  `json:"expiresAt,omitempty" format:"date-time" doc:"Null: never."`
		PerMinute  *int     `json:"perMinute,omitempty" minimum:"0" maximum:"1000"`
		PerDay     *int     `json:"perDay,omitempty" minimum:"0" maximum:"10000"`
		Active     *bool    `json:"active,omitempty"`
		Rotate     bool     `json:"rotate,omitempty" doc:"Replace its URL."`
	}
}

func (a *API) updateHook(ctx context.Context, tx *db.Tx, c account.Caller, in *updateHookIn) (_ hookBody, did audit.Event, _ error) {
	if err := a.allowedHook(ctx, c, in.ID); err != nil {
		return hookBody{}, did, err
	}
	b := in.Body
	p := site.PatchHook{
		Name:      b.Name,
		Branch:    b.Branch,
		AnyBranch: b.AnyBranch,
		Title:     b.Title,
		Clear:     b.ClearCache,
		Secret:    b.Secret,
		PerMinute: b.PerMinute,
		PerDay:    b.PerDay,
		Active:    b.Active,
		Rotate:    b.Rotate,
	}
	now, err := a.Sites.OwnHook(ctx, tx, c.Owner, site.HookID(in.ID))
	if err == nil {
		err = a.OAuth.Changes(ctx, tx, c, oauth.DeployHook, now.ID.Ref())
	}
	if err != nil {
		return hookBody{}, did, err
	}
	err = contract.CheckPatch(ctx, "deploy hook", []string{
		"name", "branch", "anyBranch", "title", "clearCache", "secret", "addresses", "perMinute", "perDay", "active",
		"rotate", "expiresAt",
	}, a.showHook(now), nil)
	if err == nil && b.Addresses != nil {
		p.Addresses, err = networks(b.Addresses)
	}
	if err == nil && (b.ExpiresAt != nil || contract.IsNull(ctx, "expiresAt")) {
		var at db.Time
		if b.ExpiresAt != nil {
			at, err = expiry(*b.ExpiresAt)
		}
		p.ExpiresAt = &at
	}
	if err != nil {
		return hookBody{}, did, err
	}
	h, err := a.Sites.UpdateHookTx(ctx, tx, c.Owner, site.HookID(in.ID), p)
	if err == nil && p.Rotate {
		err = a.OAuth.RenamedTx(ctx, tx, oauth.DeployHook, now.ID.Ref(), h.ID.Ref())
	}
	did = audit.Event{Action: "hook.updated", Subject: string(h.Site), Detail: h.Name}
	if in.Body.Rotate {
		did.Action = "hook.rotated"
	}
	return a.showHook(h), did, err
}

func (a *API) deleteHook(
	ctx context.Context, tx *db.Tx, c account.Caller, in *contract.ByID[string],
) (_ contract.Message, did audit.Event, _ error) {
	s, err := a.Sites.HookSite(ctx, c.Owner, site.HookID(in.ID))
	if err == nil {
		err = c.RequireSite(s)
	}
	if err == nil {
		err = a.OAuth.Changes(ctx, tx, c, oauth.DeployHook, site.HookID(in.ID).Ref())
	}
	if err != nil {
		return contract.Message{}, did, err
	}
	did = audit.Event{Action: "hook.deleted", Subject: string(s)}
	return contract.Message{Message: "Deploy hook deleted"}, did, a.Sites.DeleteHookTx(ctx, tx, c.Owner, site.HookID(in.ID))
}

func (a *API) allowedHook(ctx context.Context, c account.Caller, id string) error {
	if len(c.Sites) == 0 {
		return nil
	}
	s, err := a.Sites.HookSite(ctx, c.Owner, site.HookID(id))
	if err != nil {
		return err
	}
	return c.RequireSite(s)
}

// networks parses addresses and ranges; the result is never nil.
func networks(list []string) ([]netip.Prefix, error) {
	out := []netip.Prefix{}
	for _, s := range list {
		p, err := account.ParseNet(s)
		if err != nil {
			return nil, err
		}
		out = append(out, p)
	}
	return out, nil
}

// expiry parses a time in the future.
func expiry(s string) (db.Time, error) {
	t, err := time.Parse(time.RFC3339, s)
	if err != nil || !t.After(time.Now()) {
		return 0, fault.New(fault.Invalid, "invalid_expires_at", "Invalid deploy hook expiresAt",
			"expiresAt must be a timestamp in the future such as 2027-01-31T12:00:00Z").Got(s)
	}
	return db.At(t), nil
}

func (a *API) showHook(h site.Hook) hookBody {
	b := hookBody{
		ID:              h.ID.Reveal(),
		SiteID:          h.Site,
		Name:            h.Name,
		URL:             a.APIURL + "/hooks/deploy/" + url.PathEscape(h.ID.Reveal()),
		Branch:          contract.Some(h.Branch),
		AnyBranch:       h.AnyBranch,
		Title:           contract.Some(h.Title),
		ClearCache:      h.ClearCache,
		Signed:          h.Rules.Secret != "",
		Addresses:       []string{},
		ExpiresAt:       contract.When(h.Rules.ExpiresAt),
		PerDay:          h.Rules.Daily(),
		Active:          h.Active,
		LastTriggeredAt: contract.When(h.TriggeredAt),
		TriggerCount:    h.Triggered,
		LastDeployment:  contract.Some(h.LastDeployment),
		CreatedAt:       h.CreatedAt.String(),
	}
	for _, p := range h.Rules.Addresses {
		b.Addresses = append(b.Addresses, p.String())
	}
	if h.Rules.PerMinute > 0 {
		b.PerMinute = &h.Rules.PerMinute
	}
	return b
}

type callHookIn struct {
	Hook          string `path:"hook"`
	Branch        string `query:"branch" doc:"Only if the hook allows it."`
	Title         string `query:"title" doc:"Title of the deployment."`
	ClearCache    string `query:"clear_cache" enum:"true,false" doc:"Build without the cache."`
	TriggerBranch string `query:"trigger_branch" doc:"Alias of branch."`
	TriggerTitle  string `query:"trigger_title" doc:"Alias of title."`
	Signature     string `header:"X-Hub-Signature-256" doc:"If the hook has a secret: sha256= and the hex HMAC-SHA256 of the body."`
	Hop           string `header:"X-Service-Hop" doc:"Sent with webhook deliveries, to stop loops of webhooks and deploy hooks."`
}

type calledHook struct {
	Message      string        `json:"message"`
	DeploymentID id.Deployment `json:"deploymentId,omitempty" example:"dep_25o5kzh3mc7yw4tn6pqd2xlfae"`
	Status       string        `json:"status,omitempty" example:"pending"`
	Skipped      bool          `json:"skipped,omitempty" doc:"True if the event was ignored."`
	Reason       string        `json:"reason,omitempty" doc:"Why it was skipped."`
	Deduplicated bool          `json:"deduplicated,omitempty" doc:"True if the call was merged into a queued deployment."`
	BodyIgnored  bool          `json:"bodyIgnored,omitempty" doc:"True if the body is over 32 KiB or not UTF-8 text. The build doesn't get it."`
}

// admitHook returns the called hook, if this caller may call it now.
func (a *API) admitHook(ctx context.Context, r db.Reader, in *callHookIn) (site.Hook, error) {
	hook, err := a.Sites.Hook(ctx, r, site.HookID(in.Hook))
	if err == nil {
		err = a.Accounts.Stands(ctx, r, hook.Owner)
	}
	if err != nil {
		return site.Hook{}, err
	}
	body := contract.From(ctx).Body
	if hook.Rules.Secret != "" && len(body) > contract.MaxBody { // its signature can't be checked
		return site.Hook{}, contract.ErrTooLarge
	}
	return hook, hook.Admit(contract.From(ctx).Addr, body, in.Signature)
}

// answerHook handles a hook's call, once per Idempotency-Key.
func (a *API) answerHook(ctx context.Context, r contract.Route, in *callHookIn) (*contract.Reply, error) {
	hook, err := a.admitHook(ctx, a.DB, in) // even if there is a stored answer
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(db.WithShare(ctx, string(hook.Owner)), contract.HandlerTimeout)
	defer cancel()
	k, print, err := r.Once(ctx, account.Caller{Owner: hook.Owner})
	if err != nil {
		return nil, err
	}
	// The path contains a secret, so its digest is stored.
	k.Scope, k.Path = "hook/"+hookDigest(in.Hook), "/hooks/deploy"
	kept, replayed, err := a.Answers.Once(ctx, k, print, func(tx *db.Tx) ([]byte, error) {
		out, err := a.callHook(ctx, tx, in)
		if err != nil {
			return nil, err
		}
		return r.Keep(out)
	})
	return contract.Unkeep(kept, replayed, err)
}

func (a *API) callHook(ctx context.Context, tx *db.Tx, in *callHookIn) (calledHook, error) {
	call := deploy.HookCall{Branch: in.Branch, Title: in.Title}
	if call.Branch == "" {
		call.Branch = in.TriggerBranch
	}
	if call.Title == "" {
		call.Title = in.TriggerTitle
	}
	switch strings.ToLower(in.ClearCache) {
	case "", "false", "0", "no":
	case "true", "1", "yes":
		call.ClearCache = true
	default:
		return calledHook{}, fault.New(fault.Invalid, "invalid_clear_cache", "Invalid clear_cache",
			"clear_cache must be true or false").Got(in.ClearCache)
	}
	hook, err := a.admitHook(ctx, tx, in)
	if err != nil {
		return calledHook{}, err
	}
	body := contract.From(ctx).Body
	if call.Hops, err = delivery.CheckHop(in.Hop); err != nil {
		return calledHook{}, err
	}
	why, err := a.skipsForge(ctx, tx, hook, call.Branch)
	if err != nil {
		return calledHook{}, err
	}
	if why != "" {
		return calledHook{Message: "Nothing to deploy", Skipped: true, Reason: why}, nil
	}
	ignored := len(body) > site.MaxHookBody || !utf8.Valid(body) || bytes.ContainsRune(body, 0)
	if !ignored {
		call.Body = string(body)
	}
	d, folded, err := a.Deployments.TriggerHookTx(ctx, tx, hook.ID, call)
	if err == nil && !folded { // a merged call changed nothing
		err = a.Accounts.AuditTx(ctx, tx, audit.Actor{Owner: hook.Owner, Via: "deploy hook " + hook.Name, Addr: contract.From(ctx).Addr},
			audit.Event{Action: "deployment.triggered", Subject: string(d.ID)})
	}
	text := "Deployment triggered"
	if folded {
		text = "A deployment is already queued"
	}
	return calledHook{Message: text, DeploymentID: d.ID, Status: string(d.Status), Deduplicated: folded, BodyIgnored: ignored}, err
}

// skipsForge returns why a Git provider's call of a deploy hook deploys nothing; empty if it deploys, and for other
// callers.
func (a *API) skipsForge(ctx context.Context, tx *db.Tx, hook site.Hook, branch string) (string, error) {
	req := contract.From(ctx)
	if !pushes.FromForge(req.HTTP.Header) {
		return "", nil
	}
	if len(req.Body) > contract.MaxBody { // its event can't be read
		return "", contract.ErrTooLarge
	}
	s, err := a.Sites.GetTx(ctx, tx, hook.Owner, hook.Site)
	return pushes.SkipsHook(req.HTTP.Header, req.Body, cmp.Or(branch, hook.Branch, s.Branch)), err
}

var hookForm = lazyregexp.New(`^/hooks/deploy/(dhk_[a-z2-7]{52})$`)

// calls handles calls of deploy hooks.
type calls struct{ a *API }

func (calls) Most() int { return contract.MaxBody }

func (calls) Is(path string) bool { return hookForm.MatchString(path) }

func (c calls) Key(ctx context.Context, r *http.Request) (string, bool) {
	m := hookForm.FindStringSubmatch(r.URL.Path)
	if m == nil {
		return "", false
	}
	_, err := c.a.Sites.Hook(ctx, c.a.DB, site.HookID(m[1]))
	if err != nil && !fault.Is(err, fault.Gone) {
		return "", false
	}
	return "hook:" + hookDigest(m[1]), true
}

// hookDigest identifies a deploy hook where its id, a secret, must not appear.
func hookDigest(id string) string {
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:])
}
