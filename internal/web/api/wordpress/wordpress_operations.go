package wordpress

import (
	"cmp"
	"context"
	"encoding/json"
	"io"
	"mime"
	"net/http"
	"reflect"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/audit"
	"slipway/internal/tenant/operation"
	"slipway/internal/tenant/site"
	"slipway/internal/web/api/contract"
	"slipway/internal/wordpress/wordpress"
)

// wordpressWork registers the long-running operations on a WordPress site.
func (a *API) wordpressWork() {
	r := func(path, id, summary, doc string) contract.Route {
		return contract.Route{
			Path:    path,
			ID:      id,
			Tag:     "WordPress",
			Summary: summary,
			Doc:     doc,
			Scope:   account.SitesWrite,
			Noun:    "WordPress",
			Status:  http.StatusAccepted,
		}
	}
	contract.Post(a.API,
		r("/sites/{id}/wordpress/update", "updateWordPressVersions", "Update WordPress",
			"Updates the core, plugins and themes to their latest versions. The site is backed up first. Afterwards a set of pages "+
				"is compared with their responses before (status, title, content), and the site's log is checked for new fatal errors. "+
				"If a check fails, the site is restored from the backup, and the operation fails with the reason. `result` has `backupId` "+
				"and `updated`."),
		a.updateVersions)
	contract.Post(a.API,
		r("/sites/{id}/wordpress/search-replace", "searchReplaceWordPress", "Search and replace in the database",
			"Replaces text in all tables, including serialized PHP values. With `dryRun` nothing changes, and `result` counts rows "+
				"and replacements by table. Otherwise the site is backed up first. Post GUIDs and passwords are not changed."),
		a.searchReplace)
	clone := r("/sites/{id}/clone", "cloneSite", "Clone a WordPress site",
		"Creates a new site with the files, database and settings of this one, with rewritten URLs and hidden from search engines. "+
			"`result.siteId` is the new site. For sites of type wordpress.")
	contract.Post(a.API, clone, a.cloneSite)
	contract.Post(a.API,
		r("/sites/{id}/push", "pushSite", "Push a WordPress site to another one",
			"Replaces the files, the database or both of another of your WordPress sites with those of this one, and rewrites URLs. "+
				"`result.backupId` is a backup of the previous state. The operation belongs to the target site."),
		a.pushSite)
	a.importRoute(r("/sites/{id}/wordpress/import", "importWordPress", "Import a WordPress",
		"Replaces this WordPress with an imported one: an archive (`.tar.gz` or `.zip`) with `wp-content` and one `.sql` file, at "+
			"most the site's storage limit, as the body; or JSON with its https URL and, optionally, its SHA-256. URLs are rewritten, "+
			"and users come from the import. The previous state is backed up, and restored if the import fails."))
}

// chosen is a list of slugs, or "all".
type chosen struct {
	all   bool
	slugs []string
}

// Schema returns its schema in the document.
func (chosen) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{
		OneOf: []*huma.Schema{
			{Type: huma.TypeString, Enum: []any{"all"}},
			{Type: huma.TypeArray, Items: &huma.Schema{Type: huma.TypeString}},
		},
	}
}

// UnmarshalJSON accepts both forms.
func (c *chosen) UnmarshalJSON(b []byte) error {
	var text string
	if json.Unmarshal(b, &text) == nil {
		if text != "all" {
			return fault.New(fault.Invalid, "invalid_update", "Invalid choice", `send "all" or an array of slugs`).Got(text)
		}
		c.all = true
		return nil
	}
	return json.Unmarshal(b, &c.slugs)
}

func (c *chosen) choice() wordpress.Choice {
	if c == nil {
		return wordpress.Choice{}
	}
	return wordpress.Choice{All: c.all, Slugs: c.slugs}
}

type updateVersionsIn struct {
	contract.ByID[site.ID]
	Body struct {
		Core    bool    `json:"core,omitempty"`
		Plugins *chosen `json:"plugins,omitempty" doc:"Slugs, or \"all\"."`
		Themes  *chosen `json:"themes,omitempty" doc:"Slugs, or \"all\"."`
	}
}

func (a *API) updateVersions(
	ctx context.Context,
	tx *db.Tx,
	c account.Caller,
	in *updateVersionsIn,
) (_ contract.OperationBody, did audit.Event, _ error) {
	if err := a.Allowed(ctx, tx, c, in.ID); err != nil {
		return contract.OperationBody{}, did, err
	}
	o, err := a.WordPress.UpdateNowTx(ctx, tx, c.Owner, in.ID, wordpress.Update{
		Core:    in.Body.Core,
		Plugins: in.Body.Plugins.choice(),
		Themes:  in.Body.Themes.choice(),
	})
	return contract.ShowOperation(o), audit.Event{Action: "wordpress.update", Subject: string(in.ID)}, err
}

type searchReplaceIn struct {
	contract.ByID[site.ID]
	Body struct {
		From   string `json:"from" maxLength:"2000"`
		To     string `json:"to" maxLength:"2000"`
		DryRun bool   `json:"dryRun,omitempty" doc:"Only count, without changing anything."`
	}
}

func (a *API) searchReplace(
	ctx context.Context,
	tx *db.Tx,
	c account.Caller,
	in *searchReplaceIn,
) (_ contract.OperationBody, did audit.Event, _ error) {
	if err := a.Allowed(ctx, tx, c, in.ID); err != nil {
		return contract.OperationBody{}, did, err
	}
	o, err := a.WordPress.ReplaceTx(ctx, tx, c.Owner, in.ID, wordpress.Replace{
		From: in.Body.From,
		To:   in.Body.To,
		Dry:  in.Body.DryRun,
	})
	return contract.ShowOperation(o), audit.Event{Action: "wordpress.search_replace", Subject: string(in.ID)}, err
}

type cloneIn struct {
	contract.ByID[site.ID]
	Body struct {
		Name string `json:"name" doc:"Name of the new site, 1 to 100 characters."`
	}
}

func (a *API) cloneSite(
	ctx context.Context, tx *db.Tx, c account.Caller, in *cloneIn,
) (_ contract.OperationBody, did audit.Event, _ error) {
	if err := a.Allowed(ctx, tx, c, in.ID); err != nil {
		return contract.OperationBody{}, did, err
	}
	o, err := a.WordPress.CloneTx(ctx, tx, c.Owner, in.ID, in.Body.Name)
	if err == nil {
		err = c.RequireAllSites() // it creates a site
	}
	return contract.ShowOperation(o), audit.Event{Action: "site.cloned", Subject: string(in.ID)}, err
}

type pushIn struct {
	contract.ByID[site.ID]
	Body struct {
		To       site.ID  `json:"to" doc:"Id of the target site."`
		Files    bool     `json:"files,omitempty" doc:"Themes, plugins and uploads."`
		Database bool     `json:"database,omitempty"`
		Tables   []string `json:"tables,omitempty" maxItems:"100" example:"[\"wp_posts\", \"wp_postmeta\"]" doc:"Tables of the database. The target's other tables stay. Both sites need the same table prefix. Default: the whole database is replaced."`
		Paths    []string `json:"paths,omitempty" maxItems:"100" example:"[\"themes/ours\"]" doc:"Files and folders of wp-content, without the whole database. Other files of the target stay. Default: all of wp-content, and files that only the target has are deleted."`
	}
}

func (a *API) pushSite(ctx context.Context, tx *db.Tx, c account.Caller, in *pushIn) (_ contract.OperationBody, did audit.Event, _ error) {
	if err := a.Allowed(ctx, tx, c, in.ID); err != nil {
		return contract.OperationBody{}, did, err
	}
	if err := a.Allowed(ctx, tx, c, in.Body.To); err != nil {
		return contract.OperationBody{}, did, err
	}
	o, err := a.WordPress.PushTx(ctx, tx, c.Owner, in.Body.To, wordpress.Copy{
		From: in.ID, Files: in.Body.Files, Database: in.Body.Database, Paths: in.Body.Paths, Tables: in.Body.Tables,
	})
	return contract.ShowOperation(o), audit.Event{Action: "site.pushed", Subject: string(in.Body.To), Detail: string(in.ID)}, err
}

// importPatience is how long an import may receive nothing.
const importPatience = time.Minute

// importRoute registers the upload of an archive. Its body isn't JSON, and is stored while it arrives.
func (a *API) importRoute(r contract.Route) {
	r.Method, r.Raw, r.Limited = http.MethodPost, true, true
	op := a.Operation(r, reflect.TypeFor[contract.OperationBody]())
	op.Responses["409"], op.Middlewares = &huma.Response{}, nil // don't read the body as JSON
	binary := &huma.MediaType{Schema: &huma.Schema{Type: huma.TypeString, Format: "binary"}}
	op.RequestBody = &huma.RequestBody{
		Required: true,
		Content:  map[string]*huma.MediaType{"application/gzip": binary, "application/zip": binary},
	}
	contract.Writes(a.API, r, op, a.importArchive)
	// Set after the registration: otherwise huma would read every body as JSON.
	op.RequestBody.Content["application/json"] = &huma.MediaType{Schema: a.Schemas().Schema(reflect.TypeFor[importFrom](), true, "")}
}

func (a *API) importArchive(ctx context.Context, r contract.Route, in *contract.ByID[site.ID]) (func(huma.Context), error) {
	c, err := r.Permit(contract.From(ctx).Caller)
	if err == nil {
		_, err = a.Site(ctx, c, in.ID)
	}
	if err != nil {
		return nil, err
	}
	done, ok := a.Streams.Begin(c.User, contract.From(ctx).Addr)
	if !ok {
		return nil, &fault.Error{
			Kind:       fault.Limited,
			Message:    "Too many open uploads",
			Details:    "wait until one of them finishes",
			Code:       "too_many_streams",
			RetryAfter: 5 * time.Second,
		}
	}
	return func(hctx huma.Context) {
		defer done()
		req, w := humago.Unwrap(hctx)
		o, err := a.receiveImport(hctx.Context(), c, in.ID, w, req)
		if err != nil {
			a.Fail(w, req, err)
			return
		}
		body, err := contract.Encode(o)
		if err != nil {
			a.Fail(w, req, err)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusAccepted)
		_, _ = w.Write(body)
	}, nil
}

// importFrom is an import of an archive that the service downloads.
type importFrom struct {
	URL    string `json:"url" format:"uri" doc:"URL of the archive; https."`
	SHA256 string `json:"sha256,omitempty" doc:"SHA-256 of the archive, in hexadecimal. An archive with another hash is rejected."`
}

func (a *API) receiveImport(
	ctx context.Context,
	c account.Caller,
	id site.ID,
	w http.ResponseWriter,
	req *http.Request,
) (contract.OperationBody, error) {
	switch t, _, _ := mime.ParseMediaType(req.Header.Get("Content-Type")); t {
	case "application/json":
		body, err := contract.ReadBody(w, req)
		if err != nil {
			return contract.OperationBody{}, err
		}
		var in importFrom
		if err := json.Unmarshal([]byte(cmp.Or(string(body), "{}")), &in); err != nil {
			return contract.OperationBody{}, fault.New(fault.Invalid, "invalid_import", "Invalid import",
				"send an object with url and, where it is known, sha256, both of them strings")
		}
		return a.beginImport(ctx, c, id, func(tx *db.Tx) (operation.Operation, error) {
			return a.WordPress.ImportFromTx(ctx, tx, c.Owner, id, wordpress.Download{URL: in.URL, SHA256: in.SHA256})
		})
	case "application/gzip", "application/zip", "application/x-gzip", "application/octet-stream":
	default:
		contract.Discard(req)
		return contract.OperationBody{}, fault.New(fault.Media, "unsupported_media_type", "Unsupported content type",
			"send the archive itself with Content-Type: application/gzip or application/zip, or its address as JSON").Got(t)
	}
	conn := http.NewResponseController(w)
	defer func() { _ = conn.SetReadDeadline(time.Time{}) }()
	i, drop, err := a.WordPress.Receive(ctx, c.Owner, id, &arriving{req.Body, conn})
	if err != nil {
		contract.Discard(req)
		return contract.OperationBody{}, err
	}
	o, err := a.beginImport(ctx, c, id, func(tx *db.Tx) (operation.Operation, error) {
		return a.WordPress.ImportArchiveTx(ctx, tx, c.Owner, id, i)
	})
	if err != nil {
		drop()
	}
	return o, err
}

func (a *API) beginImport(
	ctx context.Context,
	c account.Caller,
	id site.ID,
	begin func(tx *db.Tx) (operation.Operation, error),
) (o contract.OperationBody, err error) {
	if err := a.Holds(ctx, c); err != nil { // the key may have been revoked while the archive arrived
		return o, err
	}
	err = a.DB.Write(ctx, func(tx *db.Tx) error {
		if err := a.HoldTx(ctx, tx, c); err != nil {
			return err
		}
		if err := a.Allowed(ctx, tx, c, id); err != nil {
			return err
		}
		op, err := begin(tx)
		if err != nil {
			return err
		}
		o = contract.ShowOperation(op)
		return a.Accounts.AuditTx(ctx, tx, c.Actor(contract.From(ctx).Addr), audit.Event{Action: "wordpress.import", Subject: string(id)})
	})
	return o, err
}

// arriving reads as long as the client sends something every importPatience.
type arriving struct {
	io.Reader
	conn *http.ResponseController
}

func (r *arriving) Read(b []byte) (int, error) {
	_ = r.conn.SetReadDeadline(time.Now().Add(importPatience))
	return r.Reader.Read(b)
}
