// Package visit owns the types by which the edge and the account services exchange visitors' data: statistics of sites,
// and requests to enter protected ones. Both sides import it, so that the edge imports no account service.
package visit

import (
	"time"

	"slipway/internal/platform/id"
)

// Batch identifies a group of counts.
type Batch struct {
	Counter string // unique id of the counting process
	Number  int64  // increases from 1
	Since   time.Time
}

// Counts holds one site's statistics of an interval.
type Counts struct {
	Site    id.Site
	Owner   id.Owner // owner at the time of the visit; a transferred site may appear twice
	Classes [4]int64 // responses by class of status: 2xx, 3xx, 4xx, 5xx
	Pages   int64    // of these, HTML pages of the site: 200, or 304
	Bytes   int64    // sent bytes of bodies

	Names   map[Name]int64
	Lines   []Line // of the access log
	Omitted int64  // requests without a line, because there were too many
}

// Kind is the kind of a [Name].
type Kind string

// Kinds of names.
const (
	Pages     Kind = "page"     // paths of shown pages
	Missing   Kind = "missing"  // paths with a 404
	Referrers Kind = "referrer" // hosts that linked to a page
	Countries Kind = "country"  // ISO 3166 codes of the visitors of pages
)

// Name is a name with its own count.
type Name struct {
	Kind Kind
	Name string // empty: all names beyond the limit
}

// Line is one request in a site's access log. It omits query strings, which may contain secrets, and shortens addresses
// so that they identify a network, not a visitor.
type Line struct {
	Time     time.Time `json:"time"`
	Method   string    `json:"method"`
	Host     string    `json:"host"`
	Path     string    `json:"path"` // without the query
	Protocol string    `json:"protocol"`
	Status   int       `json:"status"`
	Bytes    int64     `json:"bytes"`
	Referrer string    `json:"referrer,omitempty"`  // host
	Agent    string    `json:"userAgent,omitempty"` // as it calls itself
	Address  string    `json:"network,omitempty"`   // its first 24 or 48 bits; empty if the site's settings say so
	Country  string    `json:"country,omitempty"`   // empty if unknown or without a country database
	Request  string    `json:"requestId,omitempty"` // what the program got in X-Request-Id, or the id on our error page
}

// Question is the request of a visitor of a protected address to the control plane.
type Question struct {
	Site  id.Site
	Host  string // visited host, lower case, with the port unless it is 443
	Path  string // including the query
	Nonce string // of the browser that asks; only it can use the grant
	User  string // who got the grant; empty in a question

	Session string // the user's session at the control plane; empty in a question
}
