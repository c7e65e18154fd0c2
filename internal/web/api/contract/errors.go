package contract

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/danielgtaylor/huma/v2"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/lazyregexp"
	"slipway/internal/tenant/account"
)

// problem is the body of every error.
type problem struct {
	status     int
	retryAfter time.Duration
	challenge  string // WWW-Authenticate after "Bearer ". Optional.

	Message   string      `json:"error" doc:"What went wrong, in one sentence."`
	Details   string      `json:"details,omitempty" doc:"What is allowed, or how to fix it."`
	Received  any         `json:"received,omitempty" doc:"The rejected value, if there is one. Never a secret."`
	Code      string      `json:"code" doc:"Stable error code in snake_case." example:"site_not_found"`
	Limit     *int64      `json:"limit,omitempty" doc:"With limit_reached: the limit."`
	Current   *int64      `json:"current,omitempty" doc:"With limit_reached: the current use."`
	Name      string      `json:"name,omitempty" doc:"With limit_reached: the limit's name, as in GET /account."`
	Plan      string      `json:"plan,omitempty" doc:"With limit_reached: the account's plan."`
	Upgrade   *largerPlan `json:"upgrade,omitempty" doc:"With limit_reached: a plan with more, if one is offered."`
	RequestID string      `json:"requestId" doc:"The id of this request in the service's logs; also in X-Request-Id."`
}

// largerPlan is a plan with more of the exhausted limit.
type largerPlan struct {
	Plan string `json:"plan" example:"pro"`
	URL  string `json:"url" doc:"Page on which the plan can be chosen." example:"https://app.example.com/account/plan"`
}

func (p *problem) Error() string  { return p.Message }
func (p *problem) GetStatus() int { return p.status }

// GetHeaders returns the headers that huma adds to the error.
func (p *problem) GetHeaders() http.Header {
	h := http.Header{}
	p.headers(h)
	return h
}

func (p *problem) headers(h http.Header) {
	if p.retryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(int(math.Ceil(p.retryAfter.Seconds()))))
	}
	if p.status == http.StatusUnauthorized || p.challenge != "" {
		h.Set("WWW-Authenticate", strings.TrimSpace("Bearer "+p.challenge))
	}
}

const internalError = "Internal error"

// statuses maps each kind of fault to its HTTP status and default code.
var statuses = map[fault.Kind]struct {
	status int
	code   string
}{
	fault.Internal:     {500, "internal_error"},
	fault.Invalid:      {400, "invalid_request"},
	fault.Unauthorized: {401, "unauthorized"},
	fault.Payment:      {402, "payment_required"},
	fault.Forbidden:    {403, "forbidden"},
	fault.NotFound:     {404, "not_found"},
	fault.Conflict:     {409, "conflict"},
	fault.Gone:         {410, "gone"},
	fault.TooLarge:     {413, "too_large"},
	fault.Media:        {415, "unsupported_media_type"},
	fault.Limited:      {429, "rate_limited"},
	fault.Unavailable:  {503, "unavailable"},
}

// problem turns an error into the user's error body, and logs internal errors.
func (a *API) problem(ctx context.Context, err error) *problem {
	id := From(ctx).id
	if f := fault.As(err); f != nil {
		s, ok := statuses[f.Kind]
		if !ok || s.status == 500 {
			a.Log.ErrorContext(ctx, "request failed", "request", id, "err", err)
			return &problem{status: 500, Message: internalError, Code: "internal_error", RequestID: id}
		}
		p := &problem{
			status: s.status, Message: f.Message, Details: f.Details, Received: scalar(f.Received),
			Code: Snake(cmp.Or(f.Code, s.code)), RequestID: id, retryAfter: f.RetryAfter,
		}
		if f.Limit != nil {
			p.Limit, p.Current, p.Name, p.Plan = &f.Limit.Limit, &f.Limit.Current, f.Limit.Name, f.Limit.Plan
			if f.Limit.Upgrade != "" {
				p.Upgrade = &largerPlan{f.Limit.Upgrade, a.BaseURL + account.PageOf(f.Limit.Team, "/account/plan")}
			}
		}
		if s.status == 429 || s.status == 503 {
			p.retryAfter = max(p.retryAfter, time.Second)
		}
		return p
	}
	busy := &problem{
		status: 503, Message: "The service is overloaded", Details: "try again in a moment",
		Code: "unavailable", RequestID: id, retryAfter: 2 * time.Second,
	}
	var op *net.OpError // another service failed
	if db.Full(err) {
		busy.Message, busy.Code = "The server can't write to its disk", "disk_full"
		busy.Details = "it is full or it fails; the operator has to make room"
	}
	switch {
	case errors.Is(err, context.Canceled):
		return busy // the client is gone
	case db.Away(err), errors.As(err, &op), errors.Is(err, context.DeadlineExceeded):
		a.Log.ErrorContext(ctx, "request not answered", "request", id, "err", err)
		return busy
	}
	a.Log.ErrorContext(ctx, "request failed", "request", id, "err", err)
	return &problem{status: 500, Message: internalError, Code: "internal_error", RequestID: id}
}

// Fail writes an error outside of any operation.
func (a *API) Fail(w http.ResponseWriter, r *http.Request, err error) {
	p := a.problem(r.Context(), err)
	p.challenge = a.challenge(r, p)
	writeProblem(w, *p)
}

// challenge returns the WWW-Authenticate value that tells OAuth clients where to ask for authorization and for which
// scope (RFC 6750 §3, RFC 9728 §5.1).
func (a *API) challenge(r *http.Request, p *problem) string {
	if a.OAuth == nil || p.status != http.StatusUnauthorized && p.Code != "scope_required" {
		return ""
	}
	text := `resource_metadata="` + a.OAuth.Issuer() + `/.well-known/oauth-protected-resource/api/v1"`
	if _, pattern := a.mux.Handler(r); a.byPattern[pattern].Scope != "" {
		text += `, scope="` + string(a.byPattern[pattern].Scope) + `"`
	}
	switch p.Code {
	case "missing_key": // without a token, there is no error code (RFC 6750 §3.1)
	case "scope_required":
		text += `, error="insufficient_scope"`
	default:
		text += `, error="invalid_token"`
	}
	return text
}

func writeProblem(w http.ResponseWriter, p problem) {
	body, err := Encode(p)
	if err != nil { // can't happen: received only holds scalars
		body = []byte(`{"error":"Internal error"}` + "\n")
	}
	p.headers(w.Header())
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(p.status)
	w.Write(body)
}

// scalar returns what may be repeated in an error: a string truncated to 200 characters, a number or a boolean. Objects
// could contain secrets.
func scalar(v any) any {
	switch v := v.(type) {
	case string:
		v = strings.ToValidUTF8(v, "�")
		if r := []rune(v); len(r) > 200 {
			v = string(r[:200]) + "…"
		}
		return v
	case bool, int, int64, json.Number:
		return v
	case float64:
		if !math.IsInf(v, 0) && !math.IsNaN(v) {
			return v
		}
	default:
		if text := reflect.ValueOf(v); text.Kind() == reflect.String { // a named string type, such as an id
			return scalar(text.String())
		}
	}
	return nil
}

// secretive matches names of fields whose values are never repeated in errors.
var secretive = lazyregexp.New(`(?i)secret|deployKey|password|token|value|credential|authorization`)

var missing = lazyregexp.New(`^expected required property (.+) to be present$`)

// Invalid turns huma's validation errors into one fault for the first of them, with the field and its allowed values.
func Invalid(op *huma.Operation, registry huma.Registry, errs []error) *fault.Error {
	f := &fault.Error{Kind: fault.Invalid, Message: "Invalid request", Code: "invalid_request"}
	if len(errs) == 0 {
		return f
	}
	d := (*huma.ErrorDetail)(nil)
	if x, ok := errs[0].(huma.ErrorDetailer); ok {
		d = x.ErrorDetail()
	}
	if d == nil {
		return f
	}
	where, field := d.Location, ""
	if i := strings.IndexAny(where, ".["); i >= 0 {
		where, field = where[:i], strings.TrimPrefix(where[i:], ".")
	}
	if m := missing.FindStringSubmatch(d.Message); m != nil && where == "body" {
		name := strings.Trim(field+"."+m[1], ".")
		f.Message, f.Details, f.Code = "Missing "+spoken(op, name), name+" is required", "missing_"+Snake(item.ReplaceAllString(name, ""))
		return f
	}
	if field == "" {
		f.Message, f.Details, f.Code = "The request body has an unexpected shape", sentence("it", d.Message), "invalid_body"
		if shapes := shapes(op, registry, field); where == "body" && shapes != "" {
			f.Details = "it must be " + shapes
		}
		return f
	}
	f.Message, f.Details, f.Code = "Invalid "+spoken(op,
		field), sentence(field, d.Message), "invalid_"+Snake(item.ReplaceAllString(field, ""))
	if allowed := cmp.Or(enum(op, registry, field), shapes(op, registry, field)); where == "body" && allowed != "" {
		f.Details = field + " must be " + allowed
	}
	if !secretive.MatchString(field) {
		f.Received = scalar(d.Value)
	}
	return f
}

// spoken returns a field's name for people: "site type" for the type of a site.
func spoken(op *huma.Operation, field string) string {
	field = item.ReplaceAllString(field, "")
	if noun, _ := op.Metadata["noun"].(string); noun != "" && !strings.ContainsAny(field, ".[") && field != noun {
		return noun + " " + field
	}
	return field
}

// item matches array indexes in a field's path. Error codes leave them out, so that programs can recognize the error.
var item = lazyregexp.New(`^\[\d+\]\.?|\[\d+\]`)

// sentence rephrases huma's "expected …".
func sentence(field, message string) string {
	rest, ok := strings.CutPrefix(message, "expected ")
	if !ok {
		return field + ": " + message
	}
	switch rest {
	case "string to be RFC 3339 date-time":
		return field + " must be a time such as 2027-01-31T12:00:00Z"
	case "string", "boolean", "number":
		return field + " must be a " + rest
	case "integer", "array", "object":
		return field + " must be an " + rest
	}
	for prefix, words := range map[string]string{
		"length >= ":       "%s must have at least %s character",
		"length <= ":       "%s must have at most %s character",
		"array length >= ": "%s must have at least %s item",
		"array length <= ": "%s must have at most %s item",
		"number >= ":       "%s must be at least %s",
		"number <= ":       "%s must be at most %s",
	} {
		if n, ok := strings.CutPrefix(rest, prefix); ok {
			if strings.Contains(prefix, "length") && n != "1" {
				words += "s"
			}
			return fmt.Sprintf(words, field, n)
		}
	}
	if list, ok := strings.CutPrefix(rest, `value to be one of "`); ok {
		return field + " must be " + either(strings.Split(strings.TrimSuffix(list, `"`), ", "))
	}
	for _, verb := range []string{"value to ", "string to ", "array items to "} { // such as "string to match pattern ^a$"
		rest = strings.TrimPrefix(rest, verb)
	}
	if strings.HasPrefix(rest, "match ") {
		return field + " must " + rest
	}
	return field + " must be " + strings.TrimPrefix(rest, "be ")
}

// enum returns the allowed values of a body field, "a, b or c", or "".
func enum(op *huma.Operation, registry huma.Registry, field string) string {
	var words []string
	if s := bodySchema(op, registry, field); s != nil {
		for _, v := range s.Enum {
			words = append(words, fmt.Sprint(v))
		}
	}
	return either(words)
}

// shapes describes the allowed types of the body or of a field whose schema is a oneOf: huma only says that none
// matched.
func shapes(op *huma.Operation, registry huma.Registry, field string) string {
	s := bodySchema(op, registry, field)
	if s == nil {
		return ""
	}
	var words []string
	for _, one := range s.OneOf {
		if one.Ref != "" {
			one = registry.SchemaFromRef(one.Ref)
		}
		switch {
		case len(one.Enum) > 0:
			for _, v := range one.Enum {
				words = append(words, fmt.Sprintf("%q", v))
			}
		case one.Type == huma.TypeArray && one.Items != nil && one.Items.Type != "":
			words = append(words, "an array of "+one.Items.Type+"s")
		case one.Type == huma.TypeArray || one.Type == huma.TypeObject || one.Type == huma.TypeInteger:
			words = append(words, "an "+one.Type)
		default:
			words = append(words, "a "+one.Type)
		}
	}
	return either(words)
}

// bodySchema returns the schema of the body, or of one of its fields; nil if there is none.
func bodySchema(op *huma.Operation, registry huma.Registry, field string) *huma.Schema {
	if op.RequestBody == nil || op.RequestBody.Content["application/json"] == nil {
		return nil
	}
	s := op.RequestBody.Content["application/json"].Schema
	if s != nil && s.Ref != "" {
		s = registry.SchemaFromRef(s.Ref)
	}
	if s == nil || field == "" {
		return s
	}
	return s.Properties[field]
}

// either joins words: "a, b or c".
func either(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
}

// Snake converts a field's name to a code: "clearCache" to "clear_cache".
func Snake(s string) string {
	var b strings.Builder
	for _, r := range s {
		switch {
		case unicode.IsUpper(r):
			b.WriteByte('_')
			b.WriteRune(unicode.ToLower(r))
		case r == '.' || r == '-' || r == '[' || r == ' ':
			b.WriteByte('_')
		case r == ']':
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}
