package wordpress

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/audit"
	"slipway/internal/tenant/operation"
	"slipway/internal/tenant/site"
	"slipway/internal/web/api/contract"
	"slipway/internal/wordpress/wordpress"
)

type wordpressBody struct {
	Version       string          `json:"version"`
	LatestVersion *string         `json:"latestVersion" doc:"The version that the next deployment updates WordPress to."`
	PHPVersion    string          `json:"phpVersion"`
	Title         string          `json:"title"`
	Locale        string          `json:"locale"`
	AdminURL      string          `json:"adminUrl"`
	Maintenance   bool            `json:"maintenance"`
	Debug         bool            `json:"debug"`
	XMLRPC        bool            `json:"xmlrpc"`
	PHP           wordpressPHP    `json:"php"`
	AutoUpdate    string          `json:"autoUpdate" enum:"off,minor" doc:"minor: minor versions (same first two numbers) are installed daily, with a backup before and a check after."`
	Plugins       []extensionBody `json:"plugins"`
	Themes        []extensionBody `json:"themes"`
	ObjectCache   objectCacheBody `json:"objectCache"`
	PageCache     pageCacheBody   `json:"pageCache"`
	Network       *string         `json:"network" enum:"subfolder,subdomain" doc:"How a network (multisite) tells its sites apart; null: it is a single site."`
	Content       contentBody     `json:"content" doc:"How much content there is, and when it changed last."`
	DiskBytes     int64           `json:"diskBytes" doc:"Bytes of wp-content."`
	DatabaseBytes int64           `json:"databaseBytes"`
}

type objectCacheBody struct {
	Enabled     bool   `json:"enabled"`
	Status      string `json:"status" enum:"off,active,pending,paused,replaced,down,unavailable" doc:"pending: it starts within seconds, or with the next deployment of a site that was deployed before there were object caches. paused: another program of the site, such as a command, a terminal, a worker or another deployment, may change the database; the cache is active again once that has ended. replaced: wp-content has an object-cache.php of its own, which is used instead. down: Redis does not answer; WordPress works without it. unavailable: this server has no Redis any more."`
	Hits        int64  `json:"hits" doc:"Since its start. It starts with the site's PHP. On a Redis server of the operator's (--redis) this and what follows is 0: it doesn't count for each site."`
	Misses      int64  `json:"misses"`
	Keys        int64  `json:"keys"`
	MemoryBytes int64  `json:"memoryBytes"`
}

type pageCacheBody struct {
	ExcludedCookies []string `json:"excludedCookies" doc:"Beginnings of cookies whose visitors get no cached page, beside those of WordPress and shops."`
	ExcludedPaths   []string `json:"excludedPaths" doc:"Paths whose pages are not cached; with * at the end also all that begin so."`
	IgnoredQuery    []string `json:"ignoredQuery" doc:"Names in queries on which no page depends, beside those of campaigns and clicks. PHP doesn't see them."`
}

type wordpressPHP struct {
	MemoryMiB           int64 `json:"memoryMiB" doc:"Of one request."`
	UploadMiB           int64 `json:"uploadMiB" doc:"Of one uploaded file."`
	MaxExecutionSeconds int64 `json:"maxExecutionSeconds"`
}

type extensionBody struct {
	Slug          string  `json:"slug"`
	Name          string  `json:"name"`
	Version       string  `json:"version"`
	Active        bool    `json:"active"`
	UpdateVersion *string `json:"updateVersion" doc:"The newer version, if there is one."`
	AutoUpdate    bool    `json:"autoUpdate" doc:"Whether new versions are installed once a day, whatever autoUpdate of the site is."`
}

func (a *API) wordpressRoutes() {
	r := func(method, path, id, summary, doc string, s account.Scope) contract.Route {
		return contract.Route{
			Method: method, Path: path, ID: id, Tag: "WordPress", Summary: summary, Doc: doc, Scope: s,
			Noun: "WordPress settings",
		}
	}
	read := r("", "/sites/{id}/wordpress", "getWordPress", "Read a site's WordPress",
		"Queried from WordPress, which is started if it sleeps.", account.SitesRead)
	read.Asks = true
	contract.Get(a.API, read, a.getWordPress)
	contract.Change(a.API, http.MethodPatch,
		r("", "/sites/{id}/wordpress", "updateWordPress", "Change a site's WordPress settings",
			"Takes effect within seconds. Running PHP is replaced without dropping requests, and the page cache is purged. In "+
				"maintenance mode, visitors who aren't logged in get a page with status 503.", account.SitesWrite),
		a.updateWordPress)
	for _, x := range []struct {
		path, id, summary, doc string
	}{
		{"users", "listWordPressUsers", "List a WordPress site's users", "Administrators first, at most 500."},
		{
			"crons",
			"listWordPressCrons",
			"List a WordPress site's scheduled events",
			"WP-Cron events of WordPress and its plugins. Slipway runs them when they are due.",
		},
	} {
		list := r("", "/sites/{id}/wordpress/"+x.path, x.id, x.summary,
			x.doc+" Queried from WordPress, which is started if it sleeps.", account.SitesRead)
		list.Asks = true
		if x.path == "users" {
			contract.Get(a.API, list, a.wordpressUsers)
		} else {
			contract.Get(a.API, list, a.wordpressEvents)
		}
	}
	a.wordpressRootFiles()
	a.wordpressComparison()
	a.wordpressWork()
	a.wordpressManagement()
	login := r("", "/sites/{id}/wordpress/login", "loginWordPress", "Log in to WordPress",
		"A link that logs in to wp-admin as the administrator. Valid once, for five minutes.", account.SitesWrite)
	login.Status, login.Private, login.NoApps = http.StatusCreated, true, true // the session would outlive the app's access
	contract.PostPrepared(a.API, login, a.prepareLogin, a.loginWordPress)
	purge := r("", "/sites/{id}/wordpress/purge-cache", "purgeWordPressCache", "Purge a WordPress site's page cache",
		"Purges all pages and the object cache, or only the given paths. Purged pages are rendered again at the next visit. The "+
			"operation in the response has already succeeded.",
		account.SitesWrite)
	purge.Status = http.StatusAccepted
	contract.Post(a.API, purge, a.purgeWordPress)
}

type wpUser struct {
	ID           int64    `json:"id"`
	Login        string   `json:"login"`
	Email        string   `json:"email"`
	Name         string   `json:"name"`
	Roles        []string `json:"roles"`
	RegisteredAt string   `json:"registeredAt" format:"date-time"`
}

type listWordPressIn struct {
	contract.ByID[site.ID]
	contract.PartIn
}

func (a *API) wordpressUsers(ctx context.Context, c account.Caller, in *listWordPressIn) (contract.Data[wpUser], error) {
	if _, err := a.Site(ctx, c, in.ID); err != nil {
		return contract.Data[wpUser]{}, err
	}
	if err := in.PartIn.Check(); err != nil {
		return contract.Data[wpUser]{}, err
	}
	list, _, err := a.WordPress.Users(ctx, c.Owner, in.ID)
	return contract.Part(in.PartIn, contract.Each(list, func(u wordpress.User) wpUser {
		return wpUser{u.ID, u.Login, u.Email, u.Name, append([]string{}, u.Roles...), u.Registered.UTC().Format(time.RFC3339)}
	}), err)
}

type wpEvent struct {
	Hook         string  `json:"hook"`
	Schedule     *string `json:"schedule" doc:"Null: runs once."`
	EverySeconds int64   `json:"everySeconds"`
	NextAt       string  `json:"nextAt" format:"date-time"`
}

func (a *API) wordpressEvents(ctx context.Context, c account.Caller, in *listWordPressIn) (contract.Data[wpEvent], error) {
	if _, err := a.Site(ctx, c, in.ID); err != nil {
		return contract.Data[wpEvent]{}, err
	}
	if err := in.PartIn.Check(); err != nil {
		return contract.Data[wpEvent]{}, err
	}
	list, err := a.WordPress.Events(ctx, c.Owner, in.ID)
	return contract.Part(in.PartIn, contract.Each(list, func(e wordpress.Event) wpEvent {
		return wpEvent{e.Hook, contract.Some(e.Schedule), int64(e.Every.Seconds()), e.Next.UTC().Format(time.RFC3339)}
	}), err)
}

func (a *API) getWordPress(ctx context.Context, c account.Caller, in *contract.ByID[site.ID]) (wordpressBody, error) {
	if _, err := a.Site(ctx, c, in.ID); err != nil {
		return wordpressBody{}, err
	}
	st, err := a.WordPress.Read(ctx, c.Owner, in.ID)
	if err != nil {
		return wordpressBody{}, err
	}
	extension := func(x wordpress.Extension) extensionBody {
		return extensionBody{x.Slug, x.Name, x.Version, x.Active, contract.Some(x.UpdateVersion), x.AutoUpdate}
	}
	return wordpressBody{
		Version:       st.Version,
		LatestVersion: contract.Some(st.LatestVersion),
		PHPVersion:    st.PHPVersion,
		Title:         st.Title,
		Locale:        st.Locale,
		AdminURL:      st.AdminURL,
		Maintenance:   st.Maintenance,
		Debug:         st.Debug,
		XMLRPC:        st.XMLRPC,
		PHP:           wordpressPHP{st.Memory, st.Upload, st.Execution},
		Plugins:       contract.Each(st.Plugins, extension),
		Themes:        contract.Each(st.Themes, extension),
		Network:       contract.Some(st.Network),
		Content:       showContent(st.Content),
		DatabaseBytes: st.DatabaseBytes,
		DiskBytes:     st.DiskBytes,
		AutoUpdate:    st.AutoUpdate,
		PageCache: pageCacheBody{
			append([]string{}, st.PageCache.Cookies...), append([]string{}, st.PageCache.Paths...), append([]string{}, st.PageCache.Query...),
		},
		ObjectCache: objectCacheBody{
			st.ObjectCache.On, st.ObjectCache.Status, st.ObjectCache.Hits, st.ObjectCache.Misses, st.ObjectCache.Keys,
			st.ObjectCache.Bytes,
		},
	}, nil
}

type updateWordPressIn struct {
	contract.ByID[site.ID]
	Body struct {
		Maintenance *bool   `json:"maintenance,omitempty"`
		Debug       *bool   `json:"debug,omitempty"`
		XMLRPC      *bool   `json:"xmlrpc,omitempty"`
		AutoUpdate  *string `json:"autoUpdate,omitempty" enum:"off,minor"`
		ObjectCache *bool   `json:"objectCache,omitempty" doc:"Whether to cache results of database queries in Redis: in a server in the site's sandbox, within its memory limit, or in the operator's server. 503 if this server has no Redis."`
		PageCache   *struct {
			ExcludedCookies *[]string `json:"excludedCookies,omitempty" maxItems:"50" example:"[\"currency\"]"`
			ExcludedPaths   *[]string `json:"excludedPaths,omitempty" maxItems:"50" example:"[\"/prices/\", \"/shop/*\"]"`
			IgnoredQuery    *[]string `json:"ignoredQuery,omitempty" maxItems:"50" example:"[\"ref\"]"`
		} `json:"pageCache,omitempty" doc:"Each list replaces the previous one."`
		Network *string `json:"network,omitempty" enum:"subfolder,subdomain" doc:"Begins an operation (wordpress.network) that makes the site a network (multisite): with a backup before and a check after. It can't be changed later."`
		PHP     *struct {
			MemoryMiB           *int64 `json:"memoryMiB,omitempty" minimum:"64" maximum:"2048"`
			UploadMiB           *int64 `json:"uploadMiB,omitempty" minimum:"1" maximum:"1024"`
			MaxExecutionSeconds *int64 `json:"maxExecutionSeconds,omitempty" minimum:"5" maximum:"600"`
		} `json:"php,omitempty"`
	}
}

// checkWordPressPatch refuses null and fields that only WordPress itself changes. It doesn't compare them with their
// current values, because that would have to wake WordPress.
func checkWordPressPatch(ctx context.Context) error {
	fixed := map[string]string{
		"version": "update WordPress to change it",
		"title":   "change it in wp-admin",
		"locale":  "change it in wp-admin",
	}
	for _, name := range []string{"latestVersion", "phpVersion", "adminUrl", "plugins", "themes", "content", "databaseBytes", "diskBytes"} {
		fixed[name] = "it is read-only; omit it"
	}
	if err := contract.CheckPatch(ctx, "WordPress setting", []string{
		"maintenance", "debug", "xmlrpc", "autoUpdate", "objectCache", "pageCache", "php", "network",
	}, struct{}{}, fixed); err != nil {
		return err
	}
	var sent struct{ PHP, PageCache map[string]any }
	_ = json.Unmarshal(contract.From(ctx).Body, &sent) // it was decoded before
	for group, values := range map[string]map[string]any{"php": sent.PHP, "pageCache": sent.PageCache} {
		for _, name := range slices.Sorted(maps.Keys(values)) {
			if values[name] == nil {
				return fault.New(fault.Invalid, "invalid_wordpress", "Invalid WordPress setting "+group+"."+name,
					name+" can't be null; omit it to keep the current value")
			}
		}
	}
	return nil
}

func (a *API) updateWordPress(
	ctx context.Context,
	tx *db.Tx,
	c account.Caller,
	in *updateWordPressIn,
) (_ contract.Message, did audit.Event, _ error) {
	if err := a.Allowed(ctx, tx, c, in.ID); err != nil {
		return contract.Message{}, did, err
	}
	if err := checkWordPressPatch(ctx); err != nil {
		return contract.Message{}, did, err
	}
	p := wordpress.Patch{
		Maintenance: in.Body.Maintenance,
		Debug:       in.Body.Debug,
		XMLRPC:      in.Body.XMLRPC,
		AutoUpdate:  in.Body.AutoUpdate,
		ObjectCache: in.Body.ObjectCache,
		Network:     in.Body.Network,
	}
	if b := in.Body.PHP; b != nil {
		p.Memory, p.Upload, p.Execution = b.MemoryMiB, b.UploadMiB, b.MaxExecutionSeconds
	}
	if b := in.Body.PageCache; b != nil {
		p.PageCache = wordpress.PageCachePatch{Cookies: b.ExcludedCookies, Paths: b.ExcludedPaths, Query: b.IgnoredQuery}
	}
	changed, err := a.WordPress.UpdateTx(ctx, tx, c.Owner, in.ID, p)
	if !changed {
		return contract.Message{Message: "WordPress settings are unchanged"}, audit.Unchanged, err
	}
	return contract.Message{Message: "WordPress settings changed"}, audit.Event{
		Action: "site.updated", Subject: string(in.ID),
		Detail: "wordpress",
	}, err
}

type loginBody struct {
	URL       string `json:"url" doc:"A secret. Works once."`
	ExpiresAt string `json:"expiresAt" format:"date-time"`
}

// prepareLogin makes the link before the transaction, because it calls WordPress.
func (a *API) prepareLogin(ctx context.Context, c account.Caller, in *contract.ByID[site.ID]) (wordpress.Login, error) {
	if _, err := a.Site(ctx, c, in.ID); err != nil {
		return wordpress.Login{}, err
	}
	return a.WordPress.Login(ctx, c.Owner, in.ID)
}

func (a *API) loginWordPress(
	ctx context.Context,
	tx *db.Tx,
	c account.Caller,
	in *contract.ByID[site.ID],
	l wordpress.Login,
) (_ loginBody, did audit.Event, _ error) {
	if err := a.Allowed(ctx, tx, c, in.ID); err != nil {
		return loginBody{}, did, err
	}
	return loginBody{l.URL, l.ExpiresAt.UTC().Format(time.RFC3339)}, audit.Event{Action: "wordpress.login", Subject: string(in.ID)}, nil
}

type purgeIn struct {
	contract.ByID[site.ID]
	Body *struct {
		Paths []string `json:"paths,omitempty" maxItems:"100" example:"[\"/\", \"/shop/\"]" doc:"Default: all."`
	}
}

func (a *API) purgeWordPress(
	ctx context.Context,
	tx *db.Tx,
	c account.Caller,
	in *purgeIn,
) (_ contract.OperationBody, did audit.Event, _ error) {
	if err := a.Allowed(ctx, tx, c, in.ID); err != nil {
		return contract.OperationBody{}, did, err
	}
	var paths []string
	if in.Body != nil {
		paths = in.Body.Paths
	}
	if err := a.WordPress.PurgeTx(ctx, tx, c.Owner, in.ID, paths); err != nil {
		return contract.OperationBody{}, did, err
	}
	op, err := a.Operations.OpenTx(ctx, tx, c.Owner, operation.NewOperation{Kind: "wordpress.purge", Site: in.ID})
	if err == nil {
		err = a.Operations.EndTx(ctx, tx, op.ID, "Page cache purged", "", nil)
	}
	if err == nil {
		op, err = a.Operations.GetTx(ctx, tx, op.ID)
	}
	return contract.ShowOperation(op), audit.Event{Action: "wordpress.purged", Subject: string(in.ID)}, err
}
