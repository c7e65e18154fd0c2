package docs

import "slipway/internal/platform/lazyregexp"

// try is a form that sends a request from the page, with the reader's own key.
type try struct {
	Path, Method string
	Body         string // JSON to begin with; empty: the request has none
	Changes      bool   // it is no reading
	Confirm      string // what the reader types first, because the request can't be taken back; empty: nothing
}

// takesBack matches the names of operations that delete, overwrite, end or hand over something. Whatever is missing here would be
// sent without typing, so it is wider than it would need to be.
var takesBack = lazyregexp.New(`^(delete|remove|revoke|leave|stop|restart|restore|rollback|promote|push|replace|searchReplace|` +
	`import|update|manage|transfer|accept|rotate|reset|cancel|purge|set|run|redeliver)`)

// Try returns the form of an operation, or nil where requests can't be tried: calls of hooks, which have no key, uploads of
// files, and WebSockets.
func (o described) Try() *try {
	if o.Open || o.Hook || o.Socket() || o.call.upload != "" || o.call.output != "" {
		return nil
	}
	t := &try{Path: o.Path, Method: o.Method, Changes: o.Method != "GET"}
	if len(o.Body) > 0 {
		t.Body = o.call.body
		if t.Body == "" {
			t.Body = "{}"
		}
	}
	if t.Changes && (o.Method == "DELETE" || takesBack.MatchString(o.ID)) {
		t.Confirm = o.ID
	}
	return t
}
