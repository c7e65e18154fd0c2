package contract

import (
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/danielgtaylor/huma/v2"

	"slipway/internal/tenant/account"
	"slipway/internal/tenant/oauth"
	"slipway/internal/web/docs"
)

// nouns lists the sections of the reference in order, with their descriptions.
var nouns = []*huma.Tag{
	{
		Name:        "Sites",
		Description: "A site is a static site, a Node.js or PHP application built from a Git repository, or a WordPress installation.",
	},
	{
		Name: "Uploads",
		Description: "Deploys a folder without Git, to a site whose source is upload. Contents are named by their SHA-256: you " +
			"send the list of files, then the contents that neither the site's releases have nor you have sent within the last day, " +
			"then deploy. `slipway deploy` does this for you.",
	},
	{
		Name:        "Deployments",
		Description: "A deployment builds a commit and makes it live. The live site doesn't change until the new release is ready.",
	},
	{
		Name:        "Applications",
		Description: "Logs, metrics, processes and commands of sites that run a Node.js or PHP application.",
	},
	{Name: "Traffic", Description: "Requests, page views and bytes of a site, and its access log."},
	{Name: "Domains", Description: "Custom domains of sites, and availability of domain names."},
	{Name: "Environment variables", Description: "Variables that builds and applications get."},
	{Name: "Deploy hooks", Description: "A URL that deploys a site when it receives a POST request."},
	{Name: "Git", Description: "Push to deploy: settings, the URL that the Git provider calls, and pull requests."},
	{Name: "Connected accounts", Description: "Connected accounts at Git providers, used to list repositories and report deployments."},
	{Name: "Notifications", Description: "Messages to Slack, Discord, Microsoft Teams and email addresses."},
	{Name: "Webhooks", Description: "Signed HTTP requests that report events to your HTTPS endpoints."},
	{Name: "Databases", Description: "MariaDB databases of a site's applications."},
	{Name: "WordPress", Description: "Settings, users, updates, copies and imports of WordPress sites."},
	{Name: "Operations", Description: "Long-running work, such as a restore or a clone."},
	{Name: "Backups", Description: "Backups of a site's settings, files and databases."},
	{Name: "Billing", Description: "Plans, the account's subscription, its invoices and payments."},
	{Name: "Keys", Description: "API keys and their scopes."},
	{Name: "Teams", Description: "Members with roles, guests, invitations, site transfers and the audit log."},
	{Name: "Single sign-on", Description: "Providers that the members of a team sign in with, and the email domains that they speak for."},
	{Name: "OAuth", Description: "Apps that act on behalf of users, and the access that users granted them."},
	{Name: "Account", Description: "The API key of the request, its user and the account's limits."},
	{Name: "Reference", Description: "This API as an OpenAPI document, and clients made from it."},
}

const overview = "The REST API of a Slipway installation. " +
	"Bodies are JSON. Every response has `X-Request-Id` and rate limit headers; every error is an `Error`."

// failures describes the errors that operations share, by status.
var failures = map[int]struct{ name, when string }{
	400: {"BadRequest", "Malformed JSON, an invalid field or parameter, or an unknown filter value."},
	402: {
		"LimitReached",
		"A limit of the account is reached: `name` is the limit, `limit` its maximum and `current` the current use. `GET /account` " +
			"shows all limits.",
	},
	401: {"Unauthorized", "A missing, malformed, unknown, expired or revoked key."},
	403: {"Forbidden", "The key doesn't have the required scope, or isn't allowed for this site or from this IP address. " +
		"`details` names what is missing."},
	404: {"NotFound", "The id doesn't exist or belongs to another account."},
	409: {"Conflict", "The request isn't possible in the current state, or the `Idempotency-Key` was already used with a different request."},
	410: {"Gone", "The deploy hook is disabled."},
	413: {"TooLarge", "The body is larger than 1 MiB."},
	415: {"UnsupportedMediaType", "A form instead of JSON, or a Content-Encoding."},
	429: {"TooManyRequests", "The rate limit is exceeded. Retry after the time in `Retry-After`."},
	500: {"InternalError", "Internal error. Include `requestId` when you contact the operator."},
	503: {"Unavailable", "The service is starting, stopping or can't reach its database. Retry after the time in `Retry-After`."},
}

// limitHeaders are part of every answer.
var limitHeaders = map[string]string{
	"X-RateLimit-Limit":     "Requests allowed per window of 60 seconds.",
	"X-RateLimit-Remaining": "Requests left in this window.",
	"X-RateLimit-Reset":     "Unix time in seconds at which this window ends.",
	"X-Request-Id":          "The id of this request in the service's logs.",
}

// finish completes huma's document: names of operations and shapes immediately, and what only readers need when the
// document is first requested. After that it never changes.
func (a *API) finish() {
	doc := a.huma.OpenAPI()
	doc.Info.Description = overview
	doc.Info.Version = "1"
	doc.Info.License = &huma.License{Name: "The terms of this installation", URL: a.BaseURL}
	doc.Info.Contact = &huma.Contact{Name: "The operator of this installation", URL: a.BaseURL}
	doc.Servers = []*huma.Server{{URL: a.BaseURL}}
	doc.Security = []map[string][]string{{"key": {}}}
	doc.Components.SecuritySchemes = map[string]*huma.SecurityScheme{"key": {
		Type: "http", Scheme: "bearer", BearerFormat: "slw_…",
		Description: "An API key. Each operation lists the scope that it requires.",
	}}
	if a.OAuth != nil {
		doc.Components.SecuritySchemes["oauth2"] = a.oauthScheme()
	}
	doc.Components.Headers = map[string]*huma.Header{}
	for name, what := range limitHeaders {
		kind := huma.TypeInteger
		if name == "X-Request-Id" {
			kind = huma.TypeString
		}
		doc.Components.Headers[name] = &huma.Header{Description: what, Schema: &huma.Schema{Type: kind}}
	}
	doc.Components.Headers["Retry-After"] = &huma.Header{
		Description: "Seconds to wait before trying again.",
		Schema:      &huma.Schema{Type: huma.TypeInteger},
	}
	doc.Components.Headers["WWW-Authenticate"] = &huma.Header{Description: "Bearer", Schema: &huma.Schema{Type: huma.TypeString}}
	doc.Components.Headers["Idempotent-Replayed"] = &huma.Header{
		Description: "true if this is the stored response to an earlier request with the same Idempotency-Key.",
		Schema:      &huma.Schema{Type: huma.TypeString},
	}
	doc.Components.Parameters = map[string]*huma.Param{"Idempotency-Key": {
		Name: "Idempotency-Key", In: "header",
		Description: "1 to 255 printable ASCII characters. Repeating a request with the same key within 24 hours has no further " +
			"effect and returns the same response.",
		Schema: &huma.Schema{Type: huma.TypeString, MinLength: ptr(1), MaxLength: ptr(255)},
	}}
	doc.Components.Parameters["teamId"] = &huma.Param{
		Name: "teamId", In: "query",
		Description: "Id or slug of the team that the key must act for, otherwise 403 `team_mismatch`. It doesn't select a team: the key does.",
		Schema:      &huma.Schema{Type: huma.TypeString},
	}
	errorSchema := doc.Components.Schemas.Schema(reflect.TypeFor[problem](), true, "Error")
	if !a.Billing {
		of := doc.Components.Schemas.SchemaFromRef(errorSchema.Ref).Properties
		delete(of, "plan")
		delete(of, "upgrade")
		delete(doc.Components.Schemas.Map(), "LargerPlan") // unused without billing
	}
	doc.Components.Responses = map[string]*huma.Response{}
	for status, f := range failures {
		doc.Components.Responses[f.name] = &huma.Response{
			Description: f.when, Headers: headers(status),
			Content: map[string]*huma.MediaType{"application/json": {Schema: errorSchema}},
		}
	}
	ops := slices.Clone(a.ops)
	spec, specOp := a.specRoute(doc)
	a.clientRoutes(doc)
	for _, t := range nouns {
		for _, r := range a.ops {
			if r.Tag == t.Name {
				doc.Tags = append(doc.Tags, t)
				break
			}
		}
	}
	nullable(doc.Components.Schemas)
	// Most processes never serve the document or its pages, which take over 1 MB. They are made quickly when requested.
	fill := sync.OnceFunc(func() {
		for _, r := range ops {
			a.complete(r, operationOf(doc, r))
		}
		a.complete(spec, specOp)
		doc.Webhooks = a.webhooksDoc()
	})
	a.spec = sync.OnceValue(func() []byte {
		fill()
		spec, err := Encode(doc)
		if err == nil {
			spec, err = a.polish(spec)
		}
		if err != nil {
			panic(err) // the document is made from our own types, and tests cover it
		}
		return spec
	})
	a.docs = sync.OnceValue(func() *docs.Docs {
		fill()
		return a.document(doc)
	})
}

// document renders the pages of the reference.
func (a *API) document(doc *huma.OpenAPI) *docs.Docs {
	c := docs.Config{
		OpenAPI: doc, Scopes: a.scopes(), BaseURL: a.BaseURL, APIURL: a.APIURL, RateLimit: a.RateLimit, FontURL: a.FontURL, IconURL: a.IconURL,
		Billing: a.Billing,
	}
	for _, r := range a.ops {
		path := "/api/v1" + r.Path
		if r.Hook {
			path = r.Path
		}
		c.Operations = append(c.Operations, docs.Operation{
			ID: r.ID, Method: r.Method, Path: path, Tag: r.Tag, Summary: r.Summary, Doc: r.Doc, Scope: string(r.Scope), Status: r.Status,
			Hook: r.Hook, Open: r.Open, Raw: r.Raw,
		})
	}
	for status, f := range failures {
		c.Failures = append(c.Failures, docs.Failure{Status: status, When: f.when})
	}
	return docs.New(c)
}

// complete adds what all operations have in common.
func (a *API) complete(r Route, op *huma.Operation) {
	ok := op.Responses[strconv.Itoa(r.Status)]
	conflicts := r.Method != http.MethodGet || op.Responses["409"] != nil
	later := op.Responses["202"]
	op.Responses = map[string]*huma.Response{strconv.Itoa(r.Status): ok}
	ok.Headers = headers(r.Status)
	if later != nil {
		later.Headers = headers(http.StatusAccepted)
		op.Responses["202"] = later
	}
	statuses := []int{400, 429, 500, 503}
	open := r.Hook || r.Open
	if !open {
		statuses = append(statuses, 401, 403)
	}
	if strings.Contains(r.Path, "{") || r.Finds {
		statuses = append(statuses, 404)
	}
	if conflicts || r.Asks {
		statuses = append(statuses, 409)
	}
	if (r.Method == http.MethodPost || r.Method == http.MethodPatch || op.RequestBody != nil) && !r.Hook { // every body is read and checked
		statuses = append(statuses, 413, 415)
	}
	if r.Limited || r.Hook {
		statuses = append(statuses, 402)
	}
	if r.Hook {
		statuses = append(statuses, 401, 403, 410, 413)
		op.Servers = []*huma.Server{{URL: a.APIURL}}
	}
	if !open && !r.Person {
		op.Parameters = append(op.Parameters, &huma.Param{Ref: "#/components/parameters/teamId"})
	}
	for _, s := range statuses {
		op.Responses[strconv.Itoa(s)] = &huma.Response{Ref: "#/components/responses/" + failures[s].name}
	}
	if r.Method == http.MethodPost {
		op.Parameters = append(op.Parameters, &huma.Param{Ref: "#/components/parameters/Idempotency-Key"})
		ok.Headers["Idempotent-Replayed"] = &huma.Param{Ref: "#/components/headers/Idempotent-Replayed"}
	}
	if r.Stream {
		op.Responses["204"] = &huma.Response{
			Description: "The log is complete and was sent in full: the stream was resumed after its end.",
			Headers:     headers(204),
		}
	}
	switch {
	case open:
		op.Security = []map[string][]string{}
	case a.OAuth != nil && !r.Person && !slices.Contains(oauth.NotGrantable, r.Scope):
		op.Security = []map[string][]string{{"key": {}}, {"oauth2": {string(r.Scope)}}}
	}
	if r.Role != "" {
		op.Description = strings.TrimSpace(op.Description + "\n\nIn a team it takes at least the role " + string(r.Role) + ".")
	}
	if r.Scope != "" {
		op.Description = strings.TrimSpace(op.Description + "\n\nScope: `" + string(r.Scope) + "`.")
		op.Extensions = map[string]any{"x-scope": r.Scope}
	}
}

func headers(status int) map[string]*huma.Param {
	h := map[string]*huma.Param{}
	for name := range limitHeaders {
		h[name] = &huma.Param{Ref: "#/components/headers/" + name}
	}
	if status == 429 || status == 503 {
		h["Retry-After"] = &huma.Param{Ref: "#/components/headers/Retry-After"}
	}
	if status == 401 {
		h["WWW-Authenticate"] = &huma.Param{Ref: "#/components/headers/WWW-Authenticate"}
	}
	return h
}

// operationOf returns the huma operation of a route.
func operationOf(doc *huma.OpenAPI, r Route) *huma.Operation {
	path := "/api/v1" + r.Path
	if r.Hook {
		path = r.Path
	}
	item := doc.Paths[path]
	return map[string]*huma.Operation{
		"GET": item.Get, "POST": item.Post, "PATCH": item.Patch, "PUT": item.Put,
		"DELETE": item.Delete,
	}[r.Method]
}

// specRoute registers the document itself.
func (a *API) specRoute(doc *huma.OpenAPI) (Route, *huma.Operation) {
	r := Route{
		Method: http.MethodGet, Path: "/openapi.json", ID: "getOpenAPI", Tag: "Reference", Status: 200, Open: true,
		Summary: "Get the OpenAPI document", Doc: "OpenAPI 3.1. Needs no key.",
	}
	op := &huma.Operation{
		OperationID: r.ID,
		Method:      r.Method,
		Path:        "/api/v1" + r.Path,
		Tags:        []string{r.Tag},
		Summary:     r.Summary,
		Description: r.Doc,
		Responses: map[string]*huma.Response{
			"200": {
				Description: "OK",
				Content:     map[string]*huma.MediaType{"application/json": {Schema: &huma.Schema{Type: huma.TypeObject}}},
			},
		},
	}
	doc.AddOperation(op)
	a.mux.HandleFunc("GET "+op.Path, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Write(a.spec())
	})
	a.ops = append(a.ops, r)
	return r, op
}

// nullable adds to the document that pointers to shapes may be null in answers, which huma omits.
func nullable(r huma.Registry) {
	for name, s := range r.Map() {
		t := r.TypeFromRef("#/components/schemas/" + name)
		if t == nil || t.Kind() != reflect.Struct || strings.HasSuffix(name, "In") {
			continue
		}
		for _, f := range reflect.VisibleFields(t) {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if p := s.Properties[name]; p != nil && p.Ref != "" && f.Type.Kind() == reflect.Pointer {
				s.Properties[name] = &huma.Schema{Description: p.Description, AnyOf: []*huma.Schema{{Ref: p.Ref}, {Type: "null"}}}
			}
		}
	}
}

func ptr[T any](v T) *T { return &v }

// scopes returns every scope and what it allows, for the reference.
func (a *API) scopes() [][2]string {
	what := map[account.Scope]string{
		account.All:         "Everything.",
		account.KeysWrite:   "List, create and revoke API keys.",
		account.AccountRead: "Read the key's own account.",

		account.PreviewsWrite: "Create and cancel preview deployments. Part of deployments:write.",
		account.TeamRead:      "Read the team and its members.",
		account.TeamWrite:     "Change the team, its members and invitations.",
		account.AppsWrite:     "Manage OAuth apps.",
		account.AuditRead:     "Read the team's audit log.",
		account.BillingRead:   "Read plans, the subscription, invoices and payments.",
		account.BillingWrite:  "Change the subscription, the budget and the billing profile.",
	}
	var out [][2]string
	for _, s := range account.AllScopes {
		if !a.Billing && (s == account.BillingRead || s == account.BillingWrite) {
			continue // they grant no access
		}
		text := what[s]
		noun, verb, _ := strings.Cut(string(s), ":")
		if text == "" && verb == "read" {
			text = "Read " + noun + "."
		}
		if text == "" {
			text = "Read and change " + noun + "."
		}
		out = append(out, [2]string{string(s), text})
	}
	return out
}

// oauthScheme returns the OpenAPI security scheme. OpenAPI 3.1 can't express the device grant, so the description
// mentions it.
func (a *API) oauthScheme() *huma.SecurityScheme {
	scopes := map[string]string{}
	for _, s := range account.AllScopes {
		if !a.Billing && (s == account.BillingRead || s == account.BillingWrite) {
			continue // they grant no access
		}
		if !slices.Contains(oauth.NotGrantable, s) {
			scopes[string(s)] = s.Description()
		}
	}
	return &huma.SecurityScheme{
		Type: "oauth2",
		Description: "An access token of an app that a user authorized (OAuth 2.1): authorization code with PKCE, " +
			"or the device grant (RFC 8628) at `/oauth/device`. Tokens are sent like API keys.",
		Flows: &huma.OAuthFlows{AuthorizationCode: &huma.OAuthFlow{
			AuthorizationURL: a.BaseURL + "/oauth/authorize", TokenURL: a.BaseURL + "/oauth/token",
			RefreshURL: a.BaseURL + "/oauth/token", Scopes: scopes,
		}},
	}
}
