// Package visit owns what the edge and the services that know accounts tell each other of visitors: what was counted of a site's, and
// who asks to be let in. The edge imports no such service; both import this.
package visit

import (
	"time"

	"slipway/internal/platform/id"
)

// Batch names a group of counts.
type Batch struct {
	Counter string // what counted: the same for all its batches, and no other's
	Number  int64  // from 1, rising
	Since   time.Time
}

// Counts holds what was counted of one site during an interval.
type Counts struct {
	Site    id.Site
	Owner   id.Owner // whose it was when it was visited: a site that has moved to another owner may be in two
	Classes [4]int64 // answers, by class of status: 2xx, 3xx, 4xx, 5xx
	Pages   int64    // those of them that brought an HTML page of the site: 200, or 304 for one the visitor has
	Bytes   int64    // of bodies, as they were sent

	Names   map[Name]int64
	Lines   []Line // of the access log
	Omitted int64  // requests that have no line, because there were too many
}

// Kind says what a name is of.
type Kind string

// The kinds of names that are counted.
const (
	Pages     Kind = "page"     // paths of pages that were shown
	Missing   Kind = "missing"  // paths that were answered with 404
	Referrers Kind = "referrer" // hosts whose links led to a page
	Countries Kind = "country"  // ISO 3166 codes of where pages were shown
)

// Name is something that is counted by its name.
type Name struct {
	Kind Kind
	Name string // empty: all those that were too many to be counted apart
}

// Line is one request in a site's access log. Query strings are left out, for they hold
// secrets, and addresses are cut so that they name a network, not a visitor.
type Line struct {
	Time     time.Time `json:"time"`
	Method   string    `json:"method"`
	Host     string    `json:"host"`
	Path     string    `json:"path"` // without the query
	Protocol string    `json:"protocol"`
	Status   int       `json:"status"`
	Bytes    int64     `json:"bytes"`
	Referrer string    `json:"referrer,omitempty"`  // a host
	Agent    string    `json:"userAgent,omitempty"` // as it calls itself
	Address  string    `json:"network,omitempty"`   // the first 24 or 48 bits of it; empty where the site's settings say so
	Country  string    `json:"country,omitempty"`   // empty where no database of countries is configured, or it doesn't know
	Request  string    `json:"requestId,omitempty"` // that a page of ours shows; empty where the site itself answered
}

// Question holds what a visitor of a protected address asks the control plane.
type Question struct {
	Site  id.Site
	Host  string // that was visited, in lower case, with the port where it is not 443
	Path  string // and query
	Nonce string // of the browser that asks: a grant is of use to it alone
	User  string // who was granted it; empty in what is asked

	Session string // of the user at the control plane; empty likewise
}
