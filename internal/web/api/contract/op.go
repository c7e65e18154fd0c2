package contract

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/audit"
	"slipway/internal/tenant/oauth"
)

// Route is one operation of the interface.
type Route struct {
	Method   string
	Path     string // below /api/v1
	ID       string // operationId
	Tag      string // the noun it stands under in the reference
	Summary  string
	Doc      string        // Markdown for the reference. Optional.
	Scope    account.Scope // what the key needs. Empty: any key will do.
	Status   int           // of success. Optional: 0 means 200.
	Noun     string        // what error texts call the thing: "site" makes "Invalid site name". Optional.
	Role     account.Role  // the lowest role that it takes in a team, beside the scope. Optional.
	Person   bool          // for people alone: it takes a key of the personal account with all scopes and sites. Optional.
	Wide     bool          // concerns all sites: a key restricted to some may not, as on routes of persons and operators. Optional.
	NoApps   bool          // not for apps that act for a person: what it gives out would outlive their access. Optional.
	Private  bool          // the answer is for the very key that asked (it holds a secret). Optional.
	Loose    bool          // huma leaves the body unchecked: the handler does it. Optional.
	Open     bool          // needs no key. Optional.
	Limited  bool          // what it makes has a limit: 402 when that is used up. Optional.
	Asks     bool          // asks the site's own program: 409 where there is none. Optional.
	Finds    bool          // finds something that its path doesn't name: 404 where it isn't the caller's. Optional.
	Stream   bool          // can be followed as server-sent events. Optional.
	Raw      bool          // its body is no JSON, and read by the handler. Optional.
	Operator bool          // for those who run the installation. Optional.
	Hook     bool          // outside /api/v1 and without a key: the path is the credential. Optional.
}

// HandlerTimeout is how long a handler may take.
const HandlerTimeout = 30 * time.Second

// Reply is an answer whose body is bytes already: what is kept for an Idempotency-Key is
// what was sent.
type Reply struct {
	Status      int
	ContentType string `header:"Content-Type" hidden:"true"`
	Replayed    string `header:"Idempotent-Replayed" hidden:"true"`
	Length      string `header:"Content-Length" hidden:"true"`
	Body        []byte
}

// answered wraps the body of an operation that sets its own status.
type answered interface{ StatusCode() int }

// Get registers an operation that reads.
func Get[I, O any](a *API, r Route, fn func(ctx context.Context, c account.Caller, in *I) (O, error)) {
	r.Method, r.Status = http.MethodGet, cmp.Or(r.Status, http.StatusOK)
	register(a, r, func(ctx context.Context, c account.Caller, in *I) (*Reply, error) {
		out, err := fn(ctx, c, in)
		if err != nil {
			return nil, err
		}
		return r.reply(out)
	}, reflect.TypeFor[O]())
}

// GetOrFile is Get for what may also answer with a file: where fn returns one, it is the answer.
func GetOrFile[I, O any](a *API, r Route, fn func(ctx context.Context, c account.Caller, in *I) (O, *Reply, error)) {
	r.Method, r.Status = http.MethodGet, cmp.Or(r.Status, http.StatusOK)
	register(a, r, func(ctx context.Context, c account.Caller, in *I) (*Reply, error) {
		out, file, err := fn(ctx, c, in)
		if err != nil || file != nil {
			return file, err
		}
		return r.reply(out)
	}, reflect.TypeFor[O]())
}

// act is an operation that changes something here. It returns what it did, for the audit
// log. It may run again after a conflict.
type act[I, O any] func(ctx context.Context, tx *db.Tx, c account.Caller, in *I) (O, audit.Event, error)

// prepared is act with what a step before the transaction found.
type prepared[I, O, P any] func(ctx context.Context, tx *db.Tx, c account.Caller, in *I, p P) (O, audit.Event, error)

// run acts and writes its line of the audit log, in the caller's transaction.
// Every operation that changes something comes through here.
func (fn prepared[I, O, P]) run(ctx context.Context, a *API, tx *db.Tx, r Route, c account.Caller, in *I, p P) (O, error) {
	if err := a.HoldTx(ctx, tx, c); err != nil {
		var none O
		return none, err
	}
	out, did, err := fn(ctx, tx, c, in, p)
	if err != nil {
		return out, err
	}
	if did.Action == "" {
		return out, fmt.Errorf("%s does not say what it did", r.ID)
	}
	return out, a.Accounts.AuditTx(ctx, tx, c.Actor(From(ctx).Addr), did)
}

// unprepared is an operation for which there is nothing to do before the transaction.
func unprepared[I, O any](fn act[I, O]) prepared[I, O, struct{}] {
	return func(ctx context.Context, tx *db.Tx, c account.Caller, in *I, _ struct{}) (O, audit.Event, error) {
		return fn(ctx, tx, c, in)
	}
}

// Post registers an operation that changes something here. The change and the keeping of
// its answer are one transaction.
func Post[I, O any](a *API, r Route, fn act[I, O]) { PostPrepared(a, r, nil, unprepared(fn)) }

// PostPrepared is post with a step before the transaction, for what may ask the network
// but changes nothing.
func PostPrepared[I, O, P any](
	a *API,
	r Route,
	prepare func(ctx context.Context, c account.Caller, in *I) (P, error),
	fn prepared[I, O, P],
) {
	r.Method, r.Status = http.MethodPost, cmp.Or(r.Status, http.StatusOK)
	register(a, r, func(ctx context.Context, c account.Caller, in *I) (*Reply, error) {
		k, print, err := r.Once(ctx, c)
		if err != nil {
			return nil, err
		}
		var p P
		if prepare != nil {
			// What was done may be why it can't be prepared again: a site that was moved is
			// another owner's.
			if kept, found, err := a.Answers.Stored(ctx, k, print); err != nil || found {
				return Unkeep(kept, found, err)
			}
			if p, err = prepare(ctx, c, in); err != nil {
				return nil, err
			}
		}
		kept, replayed, err := a.Answers.Once(ctx, k, print, func(tx *db.Tx) ([]byte, error) {
			out, err := fn.run(ctx, a, tx, r, c, in, p)
			if err != nil {
				return nil, err
			}
			return r.Keep(out)
		})
		return Unkeep(kept, replayed, err)
	}, reflect.TypeFor[O]())
}

// Ask registers a POST that goes to the network and changes nothing here.
func Ask[I, O any](a *API, r Route, fn func(ctx context.Context, c account.Caller, in *I) (O, error)) {
	r.Method, r.Status = http.MethodPost, cmp.Or(r.Status, http.StatusOK)
	register(a, r, func(ctx context.Context, c account.Caller, in *I) (*Reply, error) {
		k, print, err := r.Once(ctx, c)
		if err != nil {
			return nil, err
		}
		kept, replayed, err := a.Answers.Remember(ctx, k, print, func(ctx context.Context) ([]byte, error) {
			out, err := fn(ctx, c, in)
			if err != nil {
				return nil, err
			}
			return r.Keep(out)
		})
		return Unkeep(kept, replayed, err)
	}, reflect.TypeFor[O]())
}

// Change registers a PATCH or DELETE: one transaction, no stored answer.
func Change[I, O any](a *API, method string, r Route, fn act[I, O]) {
	ChangePrepared(a, method, r, nil, unprepared(fn))
}

// ChangePrepared is change with a step before the transaction, for what takes a while.
func ChangePrepared[I, O, P any](
	a *API,
	method string,
	r Route,
	prepare func(ctx context.Context, c account.Caller, in *I) (P, error),
	fn prepared[I, O, P],
) {
	r.Method, r.Status = method, cmp.Or(r.Status, http.StatusOK)
	register(a, r, func(ctx context.Context, c account.Caller, in *I) (out *Reply, err error) {
		var p P
		if prepare != nil {
			if p, err = prepare(ctx, c, in); err != nil {
				return nil, err
			}
		}
		err = a.DB.Write(ctx, func(tx *db.Tx) error {
			o, err := fn.run(ctx, a, tx, r, c, in, p)
			if err != nil {
				return err
			}
			out, err = r.reply(o)
			return err
		})
		return out, err
	}, reflect.TypeFor[O]())
}

// register is the one place where a handler meets the outside: who is asking is checked
// before, errors are turned into answers after.
func register[I any](a *API, r Route, fn func(context.Context, account.Caller, *I) (*Reply, error), body reflect.Type) {
	op := a.Operation(r, body)
	huma.Register(a.huma, op, func(ctx context.Context, in *I) (*Reply, error) {
		c := From(ctx).Caller
		ctx, cancel := context.WithTimeout(db.WithShare(ctx, string(c.Owner)), HandlerTimeout)
		defer cancel()
		c, err := r.Permit(c)
		var out *Reply
		if err == nil {
			out, err = fn(ctx, c, in)
		}
		if err != nil {
			return nil, a.problem(ctx, err)
		}
		out.Length = strconv.Itoa(len(out.Body)) // else a long answer is sent in chunks
		return out, nil
	})
	a.ops = append(a.ops, r)
}

// PostHook registers the call of a hook: like post, but whoever knows the path may, and do keeps the answer.
func PostHook[I any](a *API, r Route, body reflect.Type, do func(context.Context, Route, *I) (*Reply, error)) {
	r.Method, r.Status = http.MethodPost, http.StatusOK
	op := a.Operation(r, body)
	op.Path = r.Path
	huma.Register(a.huma, op, func(ctx context.Context, in *I) (*Reply, error) {
		out, err := do(ctx, r, in)
		if err != nil {
			return nil, a.problem(ctx, err)
		}
		return out, nil
	})
	a.ops = append(a.ops, r)
}

// Permit returns the caller as this route is for them: in a team, with their role on all of its sites, or on those alone on
// which they have one that is high enough. Where it is for none it is a fault.
func (r Route) Permit(c account.Caller) (account.Caller, error) {
	if c.User == "" { // only reached when a route forgot to be public
		return c, &fault.Error{Kind: fault.Unauthorized, Message: "Missing API key", Code: "missing_key"}
	}
	if r.Person && c.Team != "" {
		return c, fault.New(fault.Forbidden, "personal_key_required", "This takes a key of your personal account",
			"a key of a team acts for the team alone; a key of the personal account needs all scopes (*) for this")
	}
	if r.NoApps && oauth.IsApp(c) {
		return c, fault.New(fault.Forbidden, "not_for_apps", "Apps can't do this",
			"it would outlive the app's access: use an API key or the dashboard")
	}
	if r.Operator && !c.Admin {
		return c, fault.New(fault.Forbidden, "operator_required", "This takes an operator's key",
			"only users who run the installation may do this, with a key that has all scopes (*) and all sites")
	}
	var err error
	if r.Scope != "" {
		if c, err = c.For(r.Scope, r.Role); err != nil {
			return c, err
		}
	}
	if r.Wide || r.Person || r.Operator {
		return c, c.RequireAllSites()
	}
	return c, nil
}

// Schemas holds the shapes of the document.
func (a *API) Schemas() huma.Registry { return a.huma.OpenAPI().Components.Schemas }

// Operation is the route as huma knows it.
func (a *API) Operation(r Route, body reflect.Type) huma.Operation {
	registry := a.Schemas()
	op := huma.Operation{
		OperationID: r.ID, Method: r.Method, Path: "/api/v1" + r.Path, Tags: []string{r.Tag},
		Summary: r.Summary, Description: r.Doc, DefaultStatus: r.Status,
		// the body was read and checked before
		BodyReadTimeout: -1, MaxBodyBytes: 2 * MaxBody, SkipValidateParams: true, SkipValidateBody: r.Loose,
		Middlewares: huma.Middlewares{strict},
		Metadata:    map[string]any{"noun": r.Noun, "registry": registry, "scope": string(r.Scope)},
		Responses: map[string]*huma.Response{strconv.Itoa(r.Status): {
			Description: http.StatusText(r.Status),
			Content: map[string]*huma.MediaType{"application/json": {
				Schema: registry.Schema(body, true, r.ID+"Answer"),
			}},
		}},
	}
	if body.Implements(reflect.TypeFor[answered]()) { // an operation does the rest later
		answer := *op.Responses[strconv.Itoa(r.Status)]
		answer.Description = http.StatusText(http.StatusAccepted)
		op.Responses[strconv.Itoa(http.StatusAccepted)] = &answer
	}
	return op
}

// strict hands huma the body that was read, as JSON whatever it was called. Where none is
// needed null and an empty array are none.
func strict(ctx huma.Context, next func(huma.Context)) {
	hr, w := humago.Unwrap(ctx)
	req := From(ctx.Context())
	if b := ctx.Operation().RequestBody; b == nil || !b.Required {
		if text := strings.Join(strings.Fields(string(req.Body[:min(len(req.Body), 64)])), ""); text == "null" || text == "[]" {
			req.Body = nil
		}
	} else if string(bytes.TrimSpace(req.Body)) == "null" {
		writeProblem(w, problem{
			status:    http.StatusBadRequest,
			Message:   "The request body is not a JSON object",
			Code:      "invalid_body",
			RequestID: req.id,
		})
		return
	}
	hr.Header.Del("Content-Type")
	hr.Body = io.NopCloser(bytes.NewReader(req.Body))
	next(ctx)
}

// reply encodes what an operation returned.
func (r Route) reply(out any) (*Reply, error) {
	status := r.Status
	if s, ok := out.(answered); ok {
		status = s.StatusCode()
	}
	body, err := Encode(out)
	if err != nil {
		return nil, fmt.Errorf("encode answer: %w", err)
	}
	return &Reply{Status: status, ContentType: "application/json", Body: body}, nil
}
