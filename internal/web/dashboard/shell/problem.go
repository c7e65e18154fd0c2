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

// Problem is why a form failed, and its field.
type Problem struct {
	Field   string // empty: the whole form
	Message string
	Details string
	Request string // request ID of an internal error
	Link    string // page on which it can be solved; empty: this one
	Label   string // the link's text
	status  int
}

// At assigns an error to a field of the form. Internal errors are returned unchanged.
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

// fieldsByCode maps the codes of services' faults to form fields.
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

// Describe converts an error for display. It returns false for an internal error, of which people only see the request
// ID.
func Describe(err error, id string) (*Problem, bool) {
	f := fault.As(err)
	if f == nil && db.Full(err) {
		return &Problem{
			Message: "The server can't write to its disk", Details: "It is full or it fails. The operator has to make room.", Request: id,
			status: http.StatusServiceUnavailable,
		}, false
	}
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

// failed responds to an error: with JSON for scripts, with the form's page if there is one, otherwise with an error
// page.
func (d *Shell) failed(q *Request, rt Route, err error) Answer {
	p, theirs := Describe(err, q.ID)
	if !theirs && q.Context().Err() == nil {
		d.Log.ErrorContext(q.Context(), "request failed", "request", q.ID, "route", rt.Path, "user", q.User.ID, "err", err)
	}
	if wantsJSON(q.Request) {
		return Answer{status: p.status, Json: map[string]string{"error": p.Message, "details": p.Details}}
	}
	page := p.status == http.StatusNotFound && p.Field == "" // with a field, it is the field's value that wasn't found
	if rt.form != nil && q.PostForm != nil && !page && q.Problem == nil {
		q.Problem = p
		if a, err := rt.form(q.Context(), q); err == nil && a.page != "" {
			if a.status == 0 {
				a.status = p.status
			}
			return a
		}
	}
	if q.Method == http.MethodGet && p.status == http.StatusUnprocessableEntity { // without a form, the URL is wrong
		p.status = http.StatusBadRequest
	}
	return Answer{page: "error", title: p.Message, data: p, status: p.status}
}

var firstWord, lastWord = regexp.MustCompile(`^[a-z]+[ ,;:]`), regexp.MustCompile(` [a-z]+$`)

// sentence turns a fault's advice into a sentence by capitalizing it. It doesn't capitalize names such as package.json.
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

// AtCode assigns an error to a field by its fault's code.
func AtCode(err error, fields map[string]string) error {
	if f := fault.As(err); f != nil && fields[f.Code] != "" {
		return At(fields[f.Code], err)
	}
	return err
}
