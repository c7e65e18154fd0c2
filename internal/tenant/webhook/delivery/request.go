// Package delivery owns the requests of webhooks: it checks their URLs, signs their bodies, sends
// them, tells why they failed, and keeps a pace towards each destination.
//
// A destination is a host, and the network in which connections to it end: whoever leads many names
// to one victim is bounded there. Nothing is stored here, and nothing is sent again.
package delivery

import (
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/tenant/account"
)

// DeliveryID names a delivery: "dlv_" and 26 characters.
type ID string

// Request is one attempt to deliver an event to an endpoint.
type Request struct {
	Id      ID
	Owner   account.OwnerID
	Url     string
	Host    string
	Network string // where it should arrive, or has; empty: the host was not reached yet
	Hops    int    // of the event
	Event   string
	Name    string
	Body    []byte
	Number  int64 // of this attempt
}

// Result tells how an attempt ended.
type Result struct {
	Started     db.Time
	Took        time.Duration
	Status      int
	Err         string
	RequestHead string
	AnswerHead  string
	Answer      string
	Wait        time.Duration // Retry-After; 0: none
	Abandoned   bool          // we stopped before it ended: it counts as not made, and waits
}

func (r Result) Ok() bool { return r.Err == "" && r.Status >= 200 && r.Status <= 299 }
