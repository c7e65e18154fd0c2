package sites

import (
	"cmp"
	"context"
	"io"
	"mime"
	"net/http"
	"reflect"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fair"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/panics"
	"slipway/internal/program/database"
	"slipway/internal/tenant/audit"
	"slipway/internal/web/api/contract"
)

// Limits of database downloads. Each reads in a transaction for as long as its client takes, during which MariaDB must
// keep all overwritten rows.
const (
	maxDumps = 8
	dumpTime = time.Hour
)

func newDumps() *fair.Pool {
	// share: total 8 downloads of databases; owner 1 of them; edge 429
	return fair.New(fair.Config{Places: maxDumps, Owner: 1})
}

func (a *API) dumpRoute(r contract.Route) {
	r.Method, r.Status = http.MethodGet, http.StatusOK
	op := a.Operation(r, reflect.TypeFor[string]())
	op.Responses["409"] = &huma.Response{}
	op.Responses["200"].Content = map[string]*huma.MediaType{"application/sql": {Schema: &huma.Schema{Type: huma.TypeString}}}
	contract.Writes(a.API, r, op, a.dump)
}

func (a *API) dump(ctx context.Context, r contract.Route, in *contract.ByID[database.ID]) (func(huma.Context), error) {
	c, err := r.Permit(contract.From(ctx).Caller)
	if err != nil {
		return nil, err
	}
	x, err := a.database(ctx, a.DB, c, in.ID)
	if err != nil {
		return nil, err
	}
	if x.Status != database.Active {
		return nil, fault.New(fault.Conflict, "database_not_ready", "The database is not ready",
			"its status is "+string(x.Status))
	}
	done, ok := a.dumps.Try(fair.Who{Owner: string(c.Owner)})
	if !ok {
		return nil, &fault.Error{
			Kind: fault.Limited, Message: "Too many open downloads of databases", Details: "an account downloads one at a time",
			Code: "too_many_streams", RetryAfter: 5 * time.Second,
		}
	}
	return func(hctx huma.Context) {
		defer done()
		req, w := humago.Unwrap(hctx)
		ctx, cancel := context.WithTimeout(hctx.Context(), dumpTime)
		defer cancel()
		out := &begun{w: w, name: x.Name + ".sql"}
		if req.Method == http.MethodHead {
			out.begin()
			return
		}
		// Without an audit log entry, nothing is sent.
		err := a.DB.Write(ctx, func(tx *db.Tx) error {
			did := audit.Event{Action: "database.downloaded", Subject: string(x.Site), Detail: x.Name}
			return a.Accounts.AuditTx(ctx, tx, c.Actor(contract.From(ctx).Addr), did)
		})
		if err != nil {
			a.Fail(w, req, err)
			return
		}
		// right: download under way
		panics.Go(func() {
			a.Watch(ctx, cancel, c, func(ctx context.Context) error {
				_, err := a.Site(ctx, c, x.Site)
				return err
			})
		})
		out.to = contract.Patiently(ctx, w)
		err = a.Databases.Dump(ctx, x.ID, out)
		switch {
		case err == nil:
		case !out.sent:
			a.Fail(w, req, err)
		default:
			a.Log.InfoContext(ctx, "download of database failed", "database", x.ID, "err", err)
			panic(http.ErrAbortHandler) // a partial dump must not look complete
		}
	}, nil
}

// begun is an answer whose header is sent with its first byte, so that earlier errors have their own status.
type begun struct {
	w    http.ResponseWriter
	to   io.Writer
	name string
	kind string // media type. Optional: empty means SQL
	sent bool
}

func (b *begun) begin() {
	b.sent = true
	b.w.Header().Set("Content-Type", cmp.Or(b.kind, "application/sql"))
	b.w.Header().Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": b.name}))
	b.w.WriteHeader(http.StatusOK)
}

func (b *begun) Write(p []byte) (int, error) {
	if !b.sent {
		b.begin()
	}
	return b.to.Write(p)
}
