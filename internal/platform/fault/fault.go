// Package fault owns the error that carries a sentence for the user.
//
// A *Error is made only where we know what the user can do about it. Every other
// error is the operator's: transports answer it with "Internal error" and log the chain.
package fault

import (
	"errors"
	"strings"
	"time"
)

// Kind says what went wrong in terms a transport can turn into a status.
type Kind int

// The kinds, with the HTTP status a transport answers.
const (
	Internal     Kind = iota // 500: never made by hand, every unknown error is one
	Invalid                  // 400: the request can never succeed as it is
	Unauthorized             // 401: no credential, or one that is not good
	Payment                  // 402: the plan does not include it
	Forbidden                // 403: the credential may not do this
	NotFound                 // 404: unknown, or somebody else's
	Conflict                 // 409: the state forbids it now
	Gone                     // 410: it was here and was turned off
	TooLarge                 // 413: the body is over the limit
	Media                    // 415: the body is of a type we don't read
	Limited                  // 429: too many; RetryAfter says when
	Unavailable              // 503: try again later; RetryAfter says when
)

// Error is an error whose text is meant for the user. Its fields never hold a secret.
type Error struct {
	Kind       Kind
	Message    string        // one sentence without a full stop
	Details    string        // what is allowed, or what to do. Optional.
	Received   any           // the offending value, scalars only. Optional.
	Code       string        // stable snake_case name. Optional: empty means the kind's own.
	RetryAfter time.Duration // for Limited and Unavailable. Optional.
	Limit      *Limit        // for Payment: which limit is used up. Optional.
}

// Limit is a limit that is used up.
type Limit struct {
	Name           string
	Limit, Current int64
	// The owner's plan and one with more, where plans are sold and there is one.
	Plan, Upgrade string
	Team          string // slug of the team whose limit it is; empty: a personal account, or no plan has more
}

// New returns a fault. message is a sentence without a full stop, details says what is allowed or what to do.
func New(kind Kind, code, message, details string) *Error {
	return &Error{Kind: kind, Code: code, Message: message, Details: details}
}

// Got puts the value that was refused into a new fault, and returns it.
func (e *Error) Got(received any) *Error {
	e.Received = received
	return e
}

func (e *Error) Error() string { return e.Message }

// As returns the fault in err's chain, or nil when the user should read "Internal error".
func As(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return nil
}

// Is reports whether err carries a fault of this kind.
func Is(err error, kind Kind) bool {
	e := As(err)
	return e != nil && e.Kind == kind
}

// Missing is the one answer for things that are unknown or somebody else's, so that
// nobody learns which: Missing("site").Error() is "Site not found".
func Missing(noun string) *Error {
	return &Error{Kind: NotFound, Message: upper(noun) + " not found", Code: strings.ReplaceAll(noun, " ", "_") + "_not_found"}
}

// InvalidField is the fault of a request whose field is wrong. Its code is invalid_ and the field's name: that of dueDays is
// invalid_due_days.
func InvalidField(field, details string, received any) error {
	return New(Invalid, "invalid_"+snake(field), "Invalid "+field, details).Got(received)
}

// snake writes a field's name as codes have it.
func snake(s string) string {
	var out []rune
	for _, r := range s {
		if r >= 'A' && r <= 'Z' {
			out = append(out, '_', r+'a'-'A')
		} else {
			out = append(out, r)
		}
	}
	return string(out)
}

func upper(s string) string {
	if s == "" || s[0] < 'a' || s[0] > 'z' {
		return s
	}
	return string(s[0]-'a'+'A') + s[1:]
}

// Sentence returns an error for a terminal: a fault as one line that says what is wrong and
// what is allowed, anything else as it is.
func Sentence(err error) error {
	if f := As(err); f != nil && f.Details != "" {
		return errors.New(f.Message + ": " + f.Details)
	}
	return err
}
