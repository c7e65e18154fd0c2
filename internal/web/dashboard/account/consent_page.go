package account

import (
	"context"
	"errors"
	"html/template"
	"net/url"
	"slices"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/id"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/audit"
	"slipway/internal/tenant/oauth"
	"slipway/internal/tenant/site"
	"slipway/internal/web/dashboard/shell"
	"slipway/internal/web/requestinfo"
)

// permission is a scope on the consent page.
type permission struct {
	Scope     account.Scope
	Words     string
	Dangerous bool
	No        bool // the person's role in the team excludes it
}

func permissions(by account.Caller, asked account.Scopes) (out []permission) {
	for _, s := range asked {
		_, err := by.For(s, "")
		out = append(out,
			permission{s, s.Description(), slices.Contains(oauth.Dangerous, s) || slices.Contains(oauth.NotGrantable, s), err != nil})
	}
	return out
}

// grantLives lists the selectable lifetimes of an app's access.
var grantLives = []struct {
	Value, Name string
	Life        time.Duration
}{
	{"90d", "90 days", 90 * 24 * time.Hour},
	{"30d", "30 days", 30 * 24 * time.Hour},
	{"365d", "One year", 365 * 24 * time.Hour},
	{"1d", "One day", 24 * time.Hour},
}

type consentData struct {
	App         oauth.App
	Host        string // target of the redirect; empty for devices
	Request     string // sealed
	Permissions []permission
	Writes      bool // whether any scope allows changes, which requires the password
	Sites       []site.Site
	More        int // number of sites not listed
	Lives       any
	Accounts    []accountChoice // empty if the person has no team
	Slug        string          // team the app would act for; empty: the personal account
	Refused     string          // team whose policy excludes the app

	Code string // device code as displayed; empty: none
	From string // the device's address
	At   db.Time
}

func (d *Pages) consentData(ctx context.Context, q *shell.Request, app oauth.App, asked account.Scopes) (consentData, error) {
	sites, total, err := d.Sites.List(ctx, q.Caller.Owner, site.Filter{Page: 1, Limit: shell.MaxChoices, Only: q.Only()})
	if err != nil {
		return consentData{}, err
	}
	data := consentData{
		App: app, Permissions: permissions(q.Caller, asked), Writes: writes(asked), Sites: sites, More: total - len(sites), Lives: grantLives,
		Slug: q.Caller.Slug,
	}
	if err := d.OAuth.Allowed(ctx, q.Caller, app.ID); fault.As(err) != nil {
		data.Refused = q.Caller.Slug
	} else if err != nil {
		return data, err
	}
	data.Accounts, err = d.accounts(ctx, q)
	return data, err
}

// accountChoice is an account for which the app can be authorized.
type accountChoice struct {
	Name, Link string
	On         bool
}

// accounts lists the personal account and the teams with the links to select them. It is empty without teams.
func (d *Pages) accounts(ctx context.Context, q *shell.Request) ([]accountChoice, error) {
	if q.Session.Only != "" { // the session is restricted to one account
		return nil, nil
	}
	teams, err := d.Teams.Refs(ctx, q.User.ID)
	if err != nil || len(teams) == 0 {
		return nil, err
	}
	list := []accountChoice{{"Your personal account", withTeam(q.URL, ""), q.Caller.Slug == ""}}
	for _, t := range teams {
		list = append(list, accountChoice{t.Name, withTeam(q.URL, t.Slug), q.Caller.Slug == t.Slug})
	}
	return list, nil
}

// withTeam returns the page's URL for another account.
func withTeam(u *url.URL, slug string) string {
	v := u.Query()
	v.Set("team", slug)
	return u.Path + "?" + v.Encode()
}

func writes(scopes account.Scopes) bool {
	return slices.ContainsFunc(scopes, func(s account.Scope) bool {
		return slices.Contains(oauth.Dangerous, s) || slices.Contains(oauth.NotGrantable, s)
	})
}

// consentPage asks whether an app may have the requested access. Errors are shown as pages, since the redirect URI may
// not be a registered one.
func (d *Pages) consentPage(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	if d.OAuth == nil {
		return shell.Answer{}, fault.Missing("page")
	}
	var r oauth.Request
	var err error
	if sealed := q.Value("request"); q.Method == "POST" && sealed != "" {
		r, err = d.OAuth.Unseal(ctx, sealed, q.Caller, q.Session.ID)
	} else {
		query, malformed := url.ParseQuery(q.URL.RawQuery)
		if malformed != nil {
			return shell.Answer{}, &fault.Error{Kind: fault.Invalid, Message: "Malformed query string", Code: "malformed_query"}
		}
		r, err = d.OAuth.Authorize(ctx, q.Caller, query)
	}
	var refused *oauth.Refused
	if errors.As(err, &refused) {
		return leave(refused.To, ""), nil
	}
	if err != nil {
		return shell.Answer{}, err
	}
	data, err := d.consentData(ctx, q, r.App, r.Scopes)
	data.Host, data.Request = r.RedirectHost(), d.OAuth.Seal(r, q.Caller, q.Session.ID)
	return shell.Page("consent", "Authorize "+r.App.Name, data).AsPopup(), err
}

// leave returns a page that redirects to the app. The URL must be registered by the app.
func leave(to, app string) shell.Answer {
	return shell.Leave("consent_done", "Back to the app", struct {
		To  template.URL // html/template blocks private schemes
		App string
	}{template.URL(to), app}, to).AsPopup()
}

// consent reads the person's choices.
func (d *Pages) consent(ctx context.Context, q *shell.Request) (oauth.Consent, error) {
	var c oauth.Consent
	for _, name := range q.PostForm["scopes"] {
		if _, err := q.Caller.For(account.Scope(name), ""); err != nil {
			return c, shell.At("scopes", err)
		}
		c.Scopes = append(c.Scopes, account.Scope(name))
	}
	if q.Value("reach") == "some" {
		c.Sites = id.From[site.ID](q.PostForm["sites"])
		if len(c.Sites) == 0 {
			return c, shell.At("sites", &fault.Error{Kind: fault.Invalid, Message: "Choose at least one site", Details: "or choose all sites"})
		}
	}
	for _, id := range c.Sites {
		if _, err := d.Sites.Get(ctx, q.Caller.Owner, id); err != nil {
			return c, shell.At("sites", err)
		}
		if err := q.Caller.RequireSite(id); err != nil {
			return c, shell.At("sites", err)
		}
	}
	i := max(0, slices.IndexFunc(grantLives, func(l struct {
		Value, Name string
		Life        time.Duration
	},
	) bool {
		return l.Value == q.Value("expires")
	}))
	c.Expires = db.Now().Add(grantLives[i].Life)
	if writes(c.Scopes) {
		return c, d.Prove(ctx, q)
	}
	return c, nil
}

// decideConsent redirects to the app with a code or a refusal.
func (d *Pages) decideConsent(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	if d.OAuth == nil {
		return shell.Answer{}, fault.Missing("page")
	}
	r, err := d.OAuth.Unseal(ctx, q.Value("request"), q.Caller, q.Session.ID)
	if err != nil {
		return shell.Answer{}, err
	}
	if v := q.Value("decision"); v != "allow" && v != "request" {
		return leave(d.OAuth.Deny(r), r.App.Name), nil
	}
	if q.Value("decision") == "request" {
		return d.requestApproval(ctx, q, r.App)
	}
	c, err := d.consent(ctx, q)
	if err != nil {
		return shell.Answer{}, err
	}
	var to string
	err = d.ActOn(ctx, q, func(tx *db.Tx) (_ audit.Event, err error) {
		to, err = d.OAuth.ApproveTx(ctx, tx, q.Caller, r, c)
		return audit.Unchanged, err // the log has it once the app gets its tokens
	})
	if err != nil {
		return shell.Answer{}, shell.At("scopes", err)
	}
	return leave(to, r.App.Name), nil
}

// requestApproval asks the team's admins to approve an app excluded by its policy.
func (d *Pages) requestApproval(ctx context.Context, q *shell.Request, app oauth.App) (shell.Answer, error) {
	err := d.ActOn(ctx, q, func(tx *db.Tx) (audit.Event, error) {
		return audit.Event{Action: "app.requested", Subject: string(app.ID), Detail: app.Name},
			d.OAuth.RequestApprovalTx(ctx, tx, q.Caller, app.ID)
	})
	return shell.GoTo("/account/apps", "Approval requested. An admin of the team decides about "+app.Name), err
}

// perDeviceGuess caps guesses of device codes per window.
const perDeviceGuess = 10

type deviceData struct {
	Code    string
	Consent *consentData // nil: ask for the code
	Done    string       // the decision; empty: none yet
}

func (d *Pages) devicePage(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	if d.OAuth == nil {
		return shell.Answer{}, fault.Missing("page")
	}
	data := deviceData{}
	code := q.Value("code")
	if q.Method == "POST" && q.Problem != nil && q.Problem.Field != "code" {
		if dev, err := d.OAuth.Device(ctx, code); err == nil { // the consent form failed, so show it again
			return d.deviceConsent(ctx, q, dev)
		}
	}
	return shell.Page("consent_device", "Connect a device", data), nil
}

func (d *Pages) deviceConsent(ctx context.Context, q *shell.Request, dev oauth.Device) (shell.Answer, error) {
	data, err := d.consentData(ctx, q, dev.App, dev.Scopes)
	data.Code, data.From, data.At = oauth.FormatUserCode(dev.Code), dev.Addr, dev.Since
	return shell.Page("consent_device", "Connect a device", deviceData{Consent: &data}), err
}

// enterDevice looks up an entered code, or decides about it.
func (d *Pages) enterDevice(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	if d.OAuth == nil {
		return shell.Answer{}, fault.Missing("page")
	}
	for _, n := range requestinfo.Networks(q.Addr) {
		if err := d.Throttle(ctx, shell.Guesses{Key: "device-net:" + n, Limit: 5 * perDeviceGuess},
			shell.Guesses{Key: "device-user:" + string(q.User.ID), Limit: perDeviceGuess}); err != nil {
			return shell.Answer{}, err
		}
	}
	dev, err := d.OAuth.Device(ctx, q.Value("code"))
	if err != nil {
		return shell.Answer{}, shell.At("code", err)
	}
	if q.Value("decision") == "" {
		a, err := d.deviceConsent(ctx, q, dev)
		return a.With200(), err
	}
	var c *oauth.Consent
	done := "The device was refused. You can close this page."
	if q.Value("decision") == "allow" {
		chosen, err := d.consent(ctx, q)
		if err != nil {
			return shell.Answer{}, err
		}
		c, done = &chosen, "The device is connected. You can close this page and go back to it."
	}
	err = d.ActOn(ctx, q, func(tx *db.Tx) (audit.Event, error) {
		return audit.Unchanged, d.OAuth.DecideDeviceTx(ctx, tx, q.Caller, dev, c)
	})
	if err != nil {
		return shell.Answer{}, shell.At("scopes", err)
	}
	return shell.Page("consent_device", "Connect a device", deviceData{Done: done}), nil
}
