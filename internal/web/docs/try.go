package docs

import "slipway/internal/platform/lazyregexp"

// try is a form that sends a request from the page with the reader's own key.
type try struct {
	Path, Method string
	Body         string // initial JSON; empty: no body
	Changes      bool   // the request changes something
	Confirm      string // text to type before an irreversible request; empty: none
}

// takesBack matches operations that delete, overwrite, end or transfer something. It is broad on purpose, since
// operations it doesn't match are sent without confirmation.
var takesBack = lazyregexp.New(`^(delete|remove|revoke|leave|stop|restart|restore|rollback|promote|push|replace|searchReplace|` +
	`import|update|manage|transfer|accept|rotate|reset|cancel|purge|set|run|redeliver)`)

// Try returns an operation's form, or nil for hook calls, which have no key, file uploads and WebSockets.
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
