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

// Route is one operation of the API.
type Route struct {
	Method   string
	Path     string // below /api/v1
	ID       string // operationId
	Tag      string // its section in the reference
	Summary  string
	Doc      string        // Markdown for the reference. Optional.
	Scope    account.Scope // required scope. Empty: any key.
	Status   int           // status of success. Optional: 0 means 200.
	Noun     string        // name of the thing in errors: "site" gives "Invalid site name". Optional.
	Role     account.Role  // lowest role in a team, in addition to the scope. Optional.
	Person   bool          // only for people: requires an unrestricted, all-scopes key of the personal account. Optional.
	Wide     bool          // affects all sites, so keys restricted to some are refused; Person and Operator imply it. Optional.
	NoApps   bool          // not for OAuth apps, because its result would outlive their access. Optional.
	Private  bool          // the answer is only for the calling key, because it contains a secret. Optional.
	Loose    bool          // the handler validates the body instead of huma. Optional.
	Open     bool          // needs no key. Optional.
	Limited  bool          // creates something with a limit: 402 if that is reached. Optional.
	Asks     bool          // calls the site's own program: 409 if there is none. Optional.
	Finds    bool          // looks up something that isn't in the path: 404 if it isn't the caller's. Optional.
	Stream   bool          // supports server-sent events. Optional.
	Raw      bool          // the body isn't JSON, and the handler reads it. Optional.
	Operator bool          // for operators only. Optional.
	Hook     bool          // outside /api/v1 and without a key: the path is the credential. Optional.
}

// HandlerTimeout is the timeout of handlers.
const HandlerTimeout = 30 * time.Second

// Reply is an encoded answer, so that an answer stored for an Idempotency-Key is exactly what was sent.
type Reply struct {
	Status      int
	ContentType string `header:"Content-Type" hidden:"true"`
	Replayed    string `header:"Idempotent-Replayed" hidden:"true"`
	Length      string `header:"Content-Length" hidden:"true"`
	Body        []byte
}

// answered is implemented by bodies that set their own status.
type answered interface{ StatusCode() int }

// Get registers an operation that only reads.
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

// GetOrFile is Get for operations that may also answer with a file: if fn returns one, it is the answer.
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

// act is an operation that changes something. It returns its audit event. It may be called again after a conflict.
type act[I, O any] func(ctx context.Context, tx *db.Tx, c account.Caller, in *I) (O, audit.Event, error)

// prepared is act with the result of a step before the transaction.
type prepared[I, O, P any] func(ctx context.Context, tx *db.Tx, c account.Caller, in *I, p P) (O, audit.Event, error)

// run calls fn and writes the audit log in the caller's transaction. Every changing operation is called through it.
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

// unprepared adapts an operation that needs no step before the transaction.
func unprepared[I, O any](fn act[I, O]) prepared[I, O, struct{}] {
	return func(ctx context.Context, tx *db.Tx, c account.Caller, in *I, _ struct{}) (O, audit.Event, error) {
		return fn(ctx, tx, c, in)
	}
}

// Post registers a changing operation. One transaction contains the change and the stored answer.
func Post[I, O any](a *API, r Route, fn act[I, O]) { PostPrepared(a, r, nil, unprepared(fn)) }

// PostPrepared is Post with a step before the transaction, which may use the network but changes nothing.
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
			// Check for a stored answer first: the earlier call may have made preparation impossible, such as by
			// transferring the site to another owner.
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

// Ask registers a POST that uses the network and changes nothing.
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

// Change registers a PATCH or DELETE: one transaction, without a stored answer.
func Change[I, O any](a *API, method string, r Route, fn act[I, O]) {
	ChangePrepared(a, method, r, nil, unprepared(fn))
}

// ChangePrepared is Change with a slow step before the transaction.
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

// register registers a handler. It checks the caller before the handler runs, and turns the handler's errors into
// answers.
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

// PostHook registers a hook's call. It is like Post, but the path is the credential, and do stores the answer.
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

// Permit returns the caller's rights for this route: in a team, with their role on all of its sites, or on those sites
// for which their role is high enough. If there are none, it returns a fault.
func (r Route) Permit(c account.Caller) (account.Caller, error) {
	if c.User == "" { // unreachable unless a route without a key lacks Open
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

// Schemas returns the document's schemas.
func (a *API) Schemas() huma.Registry { return a.huma.OpenAPI().Components.Schemas }

// Operation returns the route as a huma operation.
func (a *API) Operation(r Route, body reflect.Type) huma.Operation {
	registry := a.Schemas()
	op := huma.Operation{
		OperationID: r.ID, Method: r.Method, Path: "/api/v1" + r.Path, Tags: []string{r.Tag},
		Summary: r.Summary, Description: r.Doc, DefaultStatus: r.Status,
		// The body was already read and checked.
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
	if body.Implements(reflect.TypeFor[answered]()) { // the operation continues after the answer
		answer := *op.Responses[strconv.Itoa(r.Status)]
		answer.Description = http.StatusText(http.StatusAccepted)
		op.Responses[strconv.Itoa(http.StatusAccepted)] = &answer
	}
	return op
}

// strict passes the body that was read to huma, as JSON regardless of its Content-Type. If no body is required, null
// and an empty array count as none.
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
