package api

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/url"
	"regexp"
	"strings"

	"slipway/internal/account"
	"slipway/internal/db"
	"slipway/internal/deploy"
	"slipway/internal/fault"
	"slipway/internal/site"
)

type hookBody struct {
	ID              string  `json:"id" doc:"A secret: whoever knows it may deploy the site."`
	SiteID          string  `json:"siteId"`
	Name            string  `json:"name"`
	URL             string  `json:"url" doc:"POST here to deploy. It holds the secret."`
	Branch          *string `json:"branch" doc:"What it deploys. Null: the site's branch."`
	AnyBranch       bool    `json:"anyBranch" doc:"Whether callers may name another branch."`
	Active          bool    `json:"active"`
	LastTriggeredAt *string `json:"lastTriggeredAt" format:"date-time"`
	TriggerCount    int     `json:"triggerCount"`
	LastDeployment  *string `json:"lastDeploymentId"`
	CreatedAt       string  `json:"createdAt" format:"date-time"`
}

func (a *API) hookRoutes() {
	r := func(path, id, summary, doc string, s account.Scope) Route {
		return Route{Path: path, ID: id, Tag: "Deploy hooks", Summary: summary, Doc: doc, Scope: s, Noun: "deploy hook", Private: true}
	}
	get(a, r("/sites/{id}/hooks", "listHooks", "List deploy hooks", "With their URLs, which are secrets.", account.DeploymentsWrite), a.listHooks)
	create := r("/sites/{id}/hooks", "createHook", "Create a deploy hook", "A POST to its `url` deploys the site, without an API key.", account.DeploymentsWrite)
	create.Limited = true
	create.Status = 201
	post(a, create, a.createHook)
	change(a, "PATCH", r("/hooks/{id}", "updateHook", "Change a deploy hook", "Rename it, bind it to a branch, turn it off or on, or give it a new URL with `rotate`; the old URL is unknown from then on.", account.DeploymentsWrite), a.updateHook)
	change(a, "DELETE", r("/hooks/{id}", "deleteHook", "Delete a deploy hook", "", account.DeploymentsWrite), a.deleteHook)

	call := Route{Path: "/hooks/deploy/{hook}", ID: "callHook", Tag: "Deploy hooks", Summary: "Deploy by hook", Noun: "deploy hook", Hook: true,
		Doc: "Needs no key: the URL is the credential. A body is not read. Only POST deploys, so that link previews and crawlers do not. " +
			"A call that finds a deployment of the same branch still waiting, asked for by a hook or a push, is folded into it and says so with `deduplicated`."}
	a.postHook(call)
}

func (a *API) listHooks(ctx context.Context, c account.Caller, in *partOf) (data[hookBody], error) {
	if _, err := a.site(ctx, c, in.ID); err != nil {
		return data[hookBody]{}, err
	}
	hooks, err := a.Sites.Hooks(ctx, c.Owner, site.ID(in.ID))
	return part(in.PartIn, each(hooks, a.showHook), err)
}

type createHookIn struct {
	ByID
	Body struct {
		Name      string `json:"name" doc:"1 to 100 characters."`
		Branch    string `json:"branch,omitempty" doc:"What it deploys. Without it: the site's branch."`
		AnyBranch bool   `json:"anyBranch,omitempty" doc:"Let callers name another branch."`
	}
}

func (a *API) createHook(ctx context.Context, tx *db.Tx, c account.Caller, in *createHookIn, did *account.AuditEvent) (hookBody, error) {
	if err := a.allowed(ctx, tx, c, in.ID); err != nil {
		return hookBody{}, err
	}
	h, err := a.Sites.CreateHookTx(ctx, tx, c.Owner, site.ID(in.ID), site.NewHook(in.Body))
	*did = account.AuditEvent{Action: "hook.created", Subject: in.ID, Detail: h.Name}
	return a.showHook(h), err
}

type updateHookIn struct {
	ByID
	Body struct {
		Name      *string `json:"name,omitempty"`
		Branch    *string `json:"branch,omitempty" doc:"An empty one means the site's."`
		AnyBranch *bool   `json:"anyBranch,omitempty"`
		Active    *bool   `json:"active,omitempty"`
		Rotate    bool    `json:"rotate,omitempty" doc:"Give it a new URL."`
	}
}

func (a *API) updateHook(ctx context.Context, tx *db.Tx, c account.Caller, in *updateHookIn, did *account.AuditEvent) (hookBody, error) {
	if err := a.allowedHook(ctx, c, in.ID); err != nil {
		return hookBody{}, err
	}
	h, err := a.Sites.UpdateHookTx(ctx, tx, c.Owner, site.HookID(in.ID), site.PatchHook(in.Body))
	*did = account.AuditEvent{Action: "hook.updated", Subject: string(h.Site), Detail: h.Name}
	if in.Body.Rotate {
		did.Action = "hook.rotated"
	}
	return a.showHook(h), err
}

func (a *API) deleteHook(ctx context.Context, tx *db.Tx, c account.Caller, in *ByID, did *account.AuditEvent) (message, error) {
	s, err := a.Sites.HookSite(ctx, c.Owner, site.HookID(in.ID))
	if err == nil {
		err = c.RequireSite(string(s))
	}
	if err != nil {
		return message{}, err
	}
	*did = account.AuditEvent{Action: "hook.deleted", Subject: string(s)}
	return message{"Deploy hook deleted"}, a.Sites.DeleteHookTx(ctx, tx, c.Owner, site.HookID(in.ID))
}

func (a *API) allowedHook(ctx context.Context, c account.Caller, id string) error {
	if len(c.Sites) == 0 {
		return nil
	}
	s, err := a.Sites.HookSite(ctx, c.Owner, site.HookID(id))
	if err != nil {
		return err
	}
	return c.RequireSite(string(s))
}

func (a *API) showHook(h site.Hook) hookBody {
	return hookBody{h.ID.Reveal(), string(h.Site), h.Name, a.APIURL + "/hooks/deploy/" + url.PathEscape(h.ID.Reveal()), some(h.Branch), h.AnyBranch, h.Active,
		when(h.TriggeredAt), h.Triggered, some(h.LastDeployment), h.CreatedAt.String()}
}

type callHookIn struct {
	Hook          string `path:"hook"`
	Branch        string `query:"branch" doc:"Only where the hook allows it."`
	Title         string `query:"title" doc:"Shown beside the deployment."`
	ClearCache    string `query:"clear_cache" enum:"true,false" doc:"Build as if for the first time."`
	TriggerBranch string `query:"trigger_branch" doc:"The same as branch."`
	TriggerTitle  string `query:"trigger_title" doc:"The same as title."`
}

type calledHook struct {
	Triggered
	Deduplicated bool `json:"deduplicated,omitempty" doc:"True when an earlier call's deployment, still waiting, will do."`
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
		return calledHook{}, &fault.Error{Kind: fault.Invalid, Message: "Invalid clear_cache", Details: "clear_cache must be true or false", Received: in.ClearCache, Code: "invalid_clear_cache"}
	}
	hook, err := a.Sites.Hook(ctx, tx, site.HookID(in.Hook))
	if err == nil {
		err = a.Accounts.Stands(ctx, tx, hook.Owner)
	}
	if err != nil {
		return calledHook{}, err
	}
	d, folded, err := a.Deployments.TriggerHookTx(ctx, tx, hook.ID, call)
	if err == nil && !folded { // one that was folded into another changed nothing
		err = a.Accounts.AuditTx(ctx, tx, account.Actor{Owner: hook.Owner, Via: "deploy hook " + hook.Name, Addr: from(ctx).addr},
			account.AuditEvent{Action: "deployment.triggered", Subject: string(d.ID)})
	}
	text := "Deployment triggered"
	if folded {
		text = "A deployment is already waiting"
	}
	return calledHook{Triggered{text, string(d.ID), string(d.Status)}, folded}, err
}

var hookForm = regexp.MustCompile(`^/hooks/deploy/(dhk_[a-z2-7]{52})$`)

// hookKey is what a call of a deploy hook is counted under: the hook when there is one,
// so that one address (a CI's) may call many, else the caller's address, so that
// guessing has a limit.
func (a *API) hookKey(ctx context.Context, r *http.Request) (string, bool) {
	m := hookForm.FindStringSubmatch(r.URL.Path)
	if m == nil {
		return "", false
	}
	_, err := a.Sites.Hook(ctx, a.DB, site.HookID(m[1]))
	if err != nil && !fault.Is(err, fault.Gone) {
		return "", false
	}
	return "hook:" + hookDigest(m[1]), true
}

// hookDigest stands for a deploy hook where its id, a secret, must not.
func hookDigest(id string) string {
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:])
}
