package configure

import (
	"context"
	"strings"

	"slipway/internal/build/rules"
	"slipway/internal/deploy/ruletest"
	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/audit"
	"slipway/internal/tenant/site"
	"slipway/internal/web/dashboard/shell"
	"slipway/internal/web/dashboard/sites"
)

// rulesShown keeps the page of a site with thousands of rules below 100 KB.
const rulesShown = 100

type rulesData struct {
	sites.SiteHead
	Serving       site.Serving
	Published     bool   // whether a live deployment exists, whose rules are shown
	Fallback      string // page that answers paths without a file; empty: none
	Slash         rules.Slash
	Redirects     []rules.Redirect
	Headers       []rules.HeaderRule
	MoreRedirects int
	MoreHeaders   int
	Path          string
	Language      string
	Country       string
	Cookie        string
	Tested        *ruletest.Answer
	Refused       *shell.Problem // why the test failed; nil: it didn't
	Call          map[string]any // REST call of the test
}

// rulesPage shows a site's redirects and headers and the result of a test request. A test changes nothing, so it is a
// GET whose URL can be shared.
func (d *Pages) rulesPage(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	head, err := d.Head(ctx, q, "rules")
	if err != nil {
		return shell.Answer{}, err
	}
	data := rulesData{
		SiteHead: head,
		Path:     q.Query("path"),
		Language: q.Query("language"),
		Country:  q.Query("country"),
		Cookie:   q.Query("cookie"),
	}
	data.Call = map[string]any{"path": "/"}
	if data.Serving, err = d.Sites.Serving(ctx, d.DB, q.Caller.Owner, head.Site.ID); err != nil {
		return shell.Answer{}, err
	}
	rules, err := d.Rules.Live(ctx, q.Caller.Owner, head.Site.ID)
	switch {
	case fault.Is(err, fault.Conflict): // no deployment is live
		return shell.Page("site_rules", "Redirects of "+head.Site.Name, data), nil
	case err != nil:
		return shell.Answer{}, err
	}
	data.Redirects, data.Headers = rules.Redirects, rules.Headers
	data.Published, data.Fallback, data.Slash = true, rules.Fallback, rules.Slash
	if n := len(data.Redirects) - rulesShown; n > 0 {
		data.Redirects, data.MoreRedirects = data.Redirects[:rulesShown], n
	}
	if n := len(data.Headers) - rulesShown; n > 0 {
		data.Headers, data.MoreHeaders = data.Headers[:rulesShown], n
	}
	if data.Path == "" {
		return shell.Page("site_rules", "Redirects of "+head.Site.Name, data), nil
	}
	if !strings.HasPrefix(data.Path, "/") && !strings.Contains(data.Path, "://") {
		data.Path = "/" + data.Path
	}
	headers := map[string]string{}
	if data.Language != "" {
		headers["Accept-Language"] = data.Language
	}
	if data.Cookie != "" {
		headers["Cookie"] = data.Cookie
	}
	data.Call["path"] = data.Path
	if data.Country != "" {
		data.Call["country"] = data.Country
	}
	if len(headers) > 0 {
		data.Call["headers"] = headers
	}
	got, err := d.Rules.Try(ctx, q.Caller.Owner, head.Site.ID, ruletest.Trial{
		Path:     data.Path,
		Language: data.Language,
		Country:  data.Country,
		Cookie:   data.Cookie,
	})
	switch {
	case fault.As(err) != nil: // show the rest of the page
		data.Refused, _ = shell.Describe(err, "")
	case err != nil:
		return shell.Answer{}, err
	default:
		data.Tested = &got
	}
	return shell.Page("site_rules", "Redirects of "+head.Site.Name, data), nil
}

// Conditions describes a rule's conditions besides its path.
func (rulesData) Conditions(r rules.Redirect) []string {
	var out []string
	for _, f := range r.Query {
		out = append(out, "query "+f.Name+"="+f.Value)
	}
	for _, c := range []struct {
		name string
		any  []string
	}{{"country", r.Country}, {"language", r.Language}, {"cookie", r.Cookie}} {
		if len(c.any) > 0 {
			out = append(out, c.name+" "+strings.Join(c.any, ", "))
		}
	}
	if r.Never {
		out = append(out, "a role: never applies")
	}
	return out
}

// saveServing saves the password protection and the hosts to which rules may forward.
func (d *Pages) saveServing(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	head, err := d.Head(ctx, q, "rules")
	if err != nil {
		return shell.Answer{}, err
	}
	protection, hosts := q.Value("protection"), strings.Fields(q.Value("proxy_hosts"))
	p := site.ServingPatch{ProxyHosts: &hosts, Protection: &protection}
	for name, to := range map[string]**string{
		"sign_in":        &p.SignIn,
		"single_page":    &p.SinglePage,
		"trailing_slash": &p.TrailingSlash,
		"access_log":     &p.AccessLog,
	} {
		if v := q.Value(name); v != "" {
			*to = &v
		}
	}
	hash := ""
	if password := q.Value("password"); password != "" {
		if hash, err = d.Sites.PasswordHash(ctx, q.Caller.Owner, head.Site.ID, password); err != nil {
			return shell.Answer{}, shell.At("password", err)
		}
		p.Password = &password
	}
	err = d.ActOn(ctx, q, func(tx *db.Tx) (audit.Event, error) {
		_, err := d.Sites.UpdateServingTx(ctx, tx, q.Caller.Owner, head.Site.ID, p, hash)
		return audit.Event{Action: "site.updated", Subject: string(head.Site.ID), Detail: "serving"}, err
	})
	if f := fault.As(err); f != nil {
		switch f.Code {
		case "invalid_password":
			err = shell.At("password", err)
		case "invalid_proxy_hosts":
			err = shell.At("proxy_hosts", err)
		}
	}
	return shell.GoTo(head.Base()+"/rules", "Saved"), err
}
