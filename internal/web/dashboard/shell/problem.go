package shell

import (
	"context"
	"errors"
	"math"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
)

// Problem is why a form failed, and at which of its fields.
type Problem struct {
	Field   string // empty: the form as a whole
	Message string
	Details string
	Request string // the request's id, where the fault is ours
	Link    string // the page where it can be helped; empty: this one
	Label   string // of the link
	status  int
}

// At says at which field of the form an error belongs. Errors that are not the user's
// pass unchanged.
func At(field string, err error) error {
	if fault.As(err) == nil {
		return err
	}
	return &fieldError{field, err}
}

type fieldError struct {
	field string
	error
}

func (e *fieldError) Unwrap() error { return e.error }

// fieldsByCode says which form field a service's fault is about.
var fieldsByCode = map[string]string{
	"invalid_email": "email", "email_taken": "email", "weak_password": "password", "wrong_code": "code",
	"invalid_name": "name", "unknown_scope": "scopes", "scopes_required": "scopes", "invalid_sites": "sites",
	"invalid_addresses": "addresses", "invalid_expiry": "expires", "repository_required": "repository",
	"invalid_repository": "repository", "invalid_branch": "branch", "invalid_title": "title", "invalid_commit": "commit",
}

var statuses = map[fault.Kind]int{
	fault.Invalid: 422, fault.Unauthorized: 401, fault.Payment: 402, fault.Forbidden: 403, fault.NotFound: 404, fault.Conflict: 409,
	fault.Gone: 410, fault.TooLarge: 413, fault.Media: 415, fault.Limited: 429, fault.Unavailable: 503,
}

// Describe turns an error into what a person reads. It reports false for one that is
// ours, which they only learn the request's id of.
func Describe(err error, id string) (*Problem, bool) {
	f := fault.As(err)
	if f == nil && (db.Away(err) || errors.Is(err, context.DeadlineExceeded)) { // as in the API
		return &Problem{
			Message: "The service is overloaded", Details: "Try again in a moment.", Request: id, status: http.StatusServiceUnavailable,
		}, false
	}
	if f == nil {
		return &Problem{
			Message: "Internal error",
			Details: "Try again in a moment. If the error persists, send the request ID to the operator.",
			Request: id,
			status:  http.StatusInternalServerError,
		}, false
	}
	p := &Problem{Message: f.Message, Details: f.Details, Field: fieldsByCode[f.Code], status: statuses[f.Kind]}
	for e := err; e != nil; {
		if fe, ok := e.(*fieldError); ok {
			p.Field = fe.field
			break
		}
		u, ok := e.(interface{ Unwrap() error })
		if !ok {
			break
		}
		e = u.Unwrap()
	}
	return p, true
}

// failed answers an error: with JSON for scripts, with the page that holds the form where
// there is one, else with a page of its own.
func (d *Shell) failed(q *Request, rt Route, err error) Answer {
	p, theirs := Describe(err, q.ID)
	if !theirs && q.Context().Err() == nil {
		d.Log.ErrorContext(q.Context(), "request failed", "request", q.ID, "route", rt.Path, "user", q.User.ID, "err", err)
	}
	if wantsJSON(q.Request) {
		return Answer{status: p.status, Json: map[string]string{"error": p.Message, "details": p.Details}}
	}
	page := p.status == http.StatusNotFound && p.Field == "" // else what a field names is missing
	if rt.form != nil && q.PostForm != nil && !page && q.Problem == nil {
		q.Problem = p
		if a, err := rt.form(q.Context(), q); err == nil && a.page != "" {
			if a.status == 0 {
				a.status = p.status
			}
			return a
		}
	}
	if q.Method == http.MethodGet && p.status == http.StatusUnprocessableEntity { // there is no form: the address is wrong
		p.status = http.StatusBadRequest
	}
	return Answer{page: "error", title: p.Message, data: p, status: p.status}
}

var firstWord, lastWord = regexp.MustCompile(`^[a-z]+[ ,;:]`), regexp.MustCompile(` [a-z]+$`)

// sentence is what a fault says to do, as a sentence of its own: faults hold it as the rest of one. Words that are spelled as a
// program knows them, such as package.json, stay as they are.
func sentence(s string) string {
	if firstWord.MatchString(s) {
		s = strings.ToUpper(s[:1]) + s[1:]
	}
	if lastWord.MatchString(s) {
		s += "."
	}
	return s
}

func setRetry(h http.Header, after time.Duration) {
	h.Set("Retry-After", strconv.Itoa(max(1, int(math.Ceil(after.Seconds())))))
}

// AtCode says at which field an error belongs by the code of its fault.
func AtCode(err error, fields map[string]string) error {
	if f := fault.As(err); f != nil && fields[f.Code] != "" {
		return At(fields[f.Code], err)
	}
	return err
}
