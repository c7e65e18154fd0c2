package wordpress

import (
	"context"
	"net/http"

	"slipway/internal/platform/db"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/audit"
	"slipway/internal/tenant/site"
	"slipway/internal/web/api/contract"
	"slipway/internal/wordpress/wordpress"
)

type rootFileBody struct {
	Path    string `json:"path" maxLength:"200" example:"ads.txt" doc:"_redirects, _headers, or a path at the root or in .well-known."`
	Content string `json:"content" maxLength:"65536" example:"google.com, pub-0000000000000000, DIRECT"`
}

type setRootFilesIn struct {
	contract.ByID[site.ID]
	Body struct {
		Files []rootFileBody `json:"files" maxItems:"50" doc:"They replace all root files that were set before. Together they have at most 256 KiB."`
	}
}

func (a *API) wordpressRootFiles() {
	r := func(id, summary, doc string, s account.Scope) contract.Route {
		return contract.Route{
			Path: "/sites/{id}/wordpress/root-files", ID: id, Tag: "WordPress", Summary: summary, Doc: doc, Scope: s, Noun: "root files",
		}
	}
	list := r("listWordPressRootFiles", "List a WordPress site's root files",
		"Text files at the root of the site, such as ads.txt, and the rules in _redirects and _headers. Files of the site's repository are "+
			"not among them.", account.SitesRead)
	list.Asks = true // 409 for other sites
	contract.Get(a.API, list, a.listRootFiles)
	contract.Change(a.API, http.MethodPut, r("setWordPressRootFiles", "Replace a WordPress site's root files",
		"Visitors get them within seconds. They go before files and rules of the site's repository.", account.SitesWrite), a.setRootFiles)
}

func (a *API) listRootFiles(ctx context.Context, c account.Caller, in *listWordPressIn) (contract.Data[rootFileBody], error) {
	if _, err := a.Site(ctx, c, in.ID); err != nil {
		return contract.Data[rootFileBody]{}, err
	}
	if err := in.PartIn.Check(); err != nil {
		return contract.Data[rootFileBody]{}, err
	}
	list, err := a.WordPress.RootFiles(ctx, c.Owner, in.ID)
	return contract.Part(in.PartIn, contract.Each(list, func(f wordpress.RootFile) rootFileBody { return rootFileBody(f) }), err)
}

func (a *API) setRootFiles(
	ctx context.Context, tx *db.Tx, c account.Caller, in *setRootFilesIn,
) (_ contract.Message, did audit.Event, _ error) {
	if err := a.Allowed(ctx, tx, c, in.ID); err != nil {
		return contract.Message{}, did, err
	}
	files := contract.Each(in.Body.Files, func(f rootFileBody) wordpress.RootFile { return wordpress.RootFile(f) })
	changed, err := a.WordPress.SetRootFilesTx(ctx, tx, c.Owner, in.ID, files)
	if !changed {
		return contract.Message{Message: "Root files are unchanged"}, audit.Unchanged, err
	}
	return contract.Message{Message: "Root files changed"}, audit.Event{
		Action: "site.updated", Subject: string(in.ID), Detail: "root files",
	}, err
}
