// Package fault owns errors with a message for the user.
//
// A [*Error] is made only if the user can do something about it. All other errors are for the operator: transports
// answer them with "Internal error" and log the chain.
package fault

import (
	"errors"
	"strings"
	"time"
)

// Kind classifies an error so that transports can choose a status.
type Kind int

// Kinds, with their HTTP status.
const (
	Internal     Kind = iota // 500: any error without a fault; never made explicitly
	Invalid                  // 400: the request can never succeed as it is
	Unauthorized             // 401: no credential, or an invalid one
	Payment                  // 402: the plan does not include it
	Forbidden                // 403: the credential may not do this
	NotFound                 // 404: unknown, or owned by someone else
	Conflict                 // 409: not possible in the current state
	Gone                     // 410: existed and was turned off
	TooLarge                 // 413: the body is over the limit
	Media                    // 415: unsupported type of body
	Limited                  // 429: too many requests; RetryAfter says how long to wait
	Unavailable              // 503: try again later; RetryAfter says how long to wait
)

// Error is an error whose text is meant for the user. Its fields never hold a secret.
type Error struct {
	Kind       Kind
	Message    string        // one sentence without a period
	Details    string        // allowed values, or what to do. Optional.
	Received   any           // the offending value, scalars only. Optional.
	Code       string        // stable snake_case name. Optional: empty means the kind's default.
	RetryAfter time.Duration // for Limited and Unavailable. Optional.
	Limit      *Limit        // for Payment: the exhausted limit. Optional.
}

// Limit is an exhausted limit.
type Limit struct {
	Name           string
	Limit, Current int64
	// The owner's plan and a larger one, if plans are sold and a larger one exists.
	Plan, Upgrade string
	Team          string // slug of the team that has the limit; empty for a personal account, or if no larger plan exists
}

// New returns a fault. message is a sentence without a period; details says what is allowed or what to do.
func New(kind Kind, code, message, details string) *Error {
	return &Error{Kind: kind, Code: code, Message: message, Details: details}
}

// Got stores the rejected value in a new fault and returns the fault.
func (e *Error) Got(received any) *Error {
	e.Received = received
	return e
}

func (e *Error) Error() string { return e.Message }

// As returns the fault in err's chain, or nil if the user should read "Internal error".
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

// Missing is the fault for things that are unknown or belong to someone else; its text doesn't reveal which.
// Missing("site").Error() is "Site not found".
func Missing(noun string) *Error {
	return &Error{Kind: NotFound, Message: upper(noun) + " not found", Code: strings.ReplaceAll(noun, " ", "_") + "_not_found"}
}

// InvalidField is the fault for an invalid field. Its code is invalid_ and the field's name in snake case: dueDays
// gives invalid_due_days.
func InvalidField(field, details string, received any) error {
	return New(Invalid, "invalid_"+snake(field), "Invalid "+field, details).Got(received)
}

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

// Sentence returns an error for a terminal: a fault becomes one line with its message and details; other errors are
// unchanged.
func Sentence(err error) error {
	if f := As(err); f != nil && f.Details != "" {
		return errors.New(f.Message + ": " + f.Details)
	}
	return err
}
