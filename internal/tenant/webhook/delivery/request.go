// Package delivery owns the requests of webhooks: it validates their URLs, signs their bodies, sends them, explains
// failures, and limits the rate to each destination.
//
// A destination is a host and the network in which its connections end, so that many host names of one target share its
// limit. The package stores nothing and never retries.
package delivery

import (
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/tenant/account"
)

// ID names a delivery: "dlv_" and 26 characters.
type ID string

// Request is an attempt to deliver an event to an endpoint.
type Request struct {
	Id      ID
	Owner   account.OwnerID
	Url     string
	Host    string
	Network string // expected or actual network; empty: unknown
	Hops    int    // the event's
	Event   string
	Name    string
	Body    []byte
	Number  int64 // of the attempt
}

// Result is the result of an attempt.
type Result struct {
	Started     db.Time
	Took        time.Duration
	Status      int
	Err         string
	RequestHead string
	AnswerHead  string
	Answer      string
	Wait        time.Duration // from Retry-After; 0: none
	Abandoned   bool          // canceled by this service, so that it doesn't count and is retried
}

func (r Result) Ok() bool { return r.Err == "" && r.Status >= 200 && r.Status <= 299 }
