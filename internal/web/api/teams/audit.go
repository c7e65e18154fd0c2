package teams

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"reflect"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/panics"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/audit"
	"slipway/internal/web/api/contract"
)

type auditBody struct {
	ID      string  `json:"id" example:"aud_25o5kzh3mc7yw4tn6pqd2xlfae"`
	At      string  `json:"at" format:"date-time"`
	Action  string  `json:"action" example:"member.added"`
	UserID  *string `json:"userId" doc:"The acting user. Null if Slipway acted itself."`
	Email   *string `json:"email" doc:"The acting user's email address. Null if the user was deleted."`
	AboutID *string `json:"aboutId" doc:"The other user that the action affected."`
	KeyID   *string `json:"keyId" doc:"The API key that was used."`
	AppID   *string `json:"appId" doc:"The app that acted for the user."`
	GrantID *string `json:"grantId" doc:"The app's grant."`
	Via     *string `json:"via" doc:"How it was done: in the dashboard, with a named key or a deploy hook."`
	Address *string `json:"address"`
	Subject *string `json:"subject" doc:"Id of the affected object."`
	Detail  *string `json:"detail"`
}

type auditPage struct {
	Data []auditBody `json:"data"`
	Next *string     `json:"next" doc:"Pass it as before for the next page. Null on the last page."`
}

type auditIn struct {
	contract.ByID[string]
	Action string         `query:"action" maxLength:"60" doc:"Only these actions: a subject such as member, or an action such as member.added."`
	User   account.UserID `query:"userId" doc:"Only actions of this user."`
	App    string         `query:"appId" doc:"Only actions of this app."`
	Since  string         `query:"since" format:"date-time" doc:"Only entries since this time."`
	Before string         `query:"before" doc:"Only entries before this id, from next."`
	Limit  contract.Whole `query:"limit" doc:"Entries per page: 25 by default, at most 100."`
}

// maxExport caps the entries in an export.
const maxExport = 1_000_000

func (a *API) auditRoutes() {
	r := contract.Route{
		Method: http.MethodGet, Status: http.StatusOK, Path: "/teams/{id}/audit", ID: "getTeamAudit", Tag: "Teams",
		Summary: "Read a team's audit log", Scope: account.AuditRead, Wide: true, Noun: "audit log",
		Doc: "Newest first. Entries are kept for 400 days. With `Accept: application/x-ndjson` the response has all matching " +
			"entries, one JSON object per line.",
	}
	op := a.Operation(r, reflect.TypeFor[auditPage]())
	op.Responses["200"].Content["application/x-ndjson"] = &huma.MediaType{Schema: &huma.Schema{
		Type: huma.TypeString, Description: "One entry as JSON per line.",
	}}
	contract.Writes(a.API, r, op, a.teamAudit)
}

func (a *API) teamAudit(ctx context.Context, r contract.Route, in *auditIn) (func(huma.Context), error) {
	c, err := r.Permit(contract.From(ctx).Caller)
	if err == nil {
		err = a.own(ctx, c, in.ID)
	}
	if err != nil {
		return nil, err
	}
	f := audit.Filter{Owner: c.Owner, By: in.User, App: in.App, Action: in.Action, Before: in.Before}
	if in.Since != "" {
		t, err := time.Parse(time.RFC3339, in.Since)
		if err != nil {
			return nil, fault.New(fault.Invalid, "invalid_since", "Invalid since",
				"since must be a timestamp such as 2027-01-31T12:00:00Z").Got(in.Since)
		}
		f.Since = db.At(t)
	}
	p, err := contract.PageIn{Limit: in.Limit}.Parse()
	if err != nil {
		return nil, err
	}
	if strings.Contains(contract.From(ctx).HTTP.Header.Get("Accept"), "application/x-ndjson") {
		return a.exportAudit(ctx, c, f)
	}
	f.Limit = p.Limit + 1
	list, err := a.Accounts.Audit(ctx, f)
	if err != nil {
		return nil, err
	}
	var out auditPage
	if len(list) > p.Limit {
		list = list[:p.Limit]
		out.Next = contract.Some(list[p.Limit-1].ID)
	}
	out.Data = contract.Each(list, showEntry)
	body, err := contract.Encode(out)
	return func(h huma.Context) {
		h.SetHeader("Content-Type", "application/json")
		h.SetStatus(http.StatusOK)
		h.BodyWriter().Write(body)
	}, err
}

// exportAudit writes every matching entry. Like streams, it ends when the caller's rights do.
func (a *API) exportAudit(ctx context.Context, c account.Caller, f audit.Filter) (func(huma.Context), error) {
	done, ok := a.Streams.Begin(c.User, contract.From(ctx).Addr)
	if !ok {
		return nil, &fault.Error{
			Kind: fault.Limited, Message: "Too many open downloads", Details: "wait until one of them finishes",
			Code: "too_many_streams", RetryAfter: 5 * time.Second,
		}
	}
	return func(h huma.Context) {
		defer done()
		req, w := humago.Unwrap(h)
		ctx, cancel := context.WithCancel(h.Context())
		defer cancel()
		// right: download under way
		panics.Go(func() { a.Watch(ctx, cancel, c) })
		w.Header().Set("Content-Type", "application/x-ndjson")
		w.Header().Set("Content-Disposition", `attachment; filename="audit-`+c.Slug+`.ndjson"`)
		w.WriteHeader(http.StatusOK)
		if req.Method == http.MethodHead {
			return
		}
		out := contract.Patiently(ctx, w)
		f.Limit = 200
		for n := 0; n < maxExport; {
			list, err := a.Accounts.Audit(ctx, f)
			var text bytes.Buffer
			enc := json.NewEncoder(&text)
			enc.SetEscapeHTML(false)
			for _, e := range list {
				if err == nil {
					err = enc.Encode(showEntry(e))
				}
				f.Before = e.ID
			}
			if err == nil {
				_, err = out.Write(text.Bytes())
			}
			if err != nil {
				a.Log.InfoContext(ctx, "export of audit log failed", "owner", c.Owner, "err", err)
				panic(http.ErrAbortHandler) // a partial log must not look complete
			}
			n += len(list)
			if len(list) < f.Limit {
				return
			}
		}
	}, nil
}

func showEntry(e audit.Entry) auditBody {
	return auditBody{
		e.ID, e.At.String(), e.Action, contract.Some(string(e.User)), contract.Some(e.Email), contract.Some(string(e.About)),
		contract.Some(string(e.Key)),
		contract.Some(e.App), contract.Some(e.Grant), contract.Some(e.Via),
		contract.Some(e.Addr), contract.Some(e.Subject), contract.Some(e.Detail),
	}
}
