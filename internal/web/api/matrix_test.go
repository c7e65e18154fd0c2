package api_test

import (
	"slices"
	"strings"
	"testing"

	"slipway/internal/platform/db"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/audit"
	"slipway/internal/tenant/operation"
	"slipway/internal/tenant/site"
	"slipway/internal/web/api"
	"slipway/internal/wordpress/wordpress"
)

// things maps the placeholders of paths to IDs of a user's resources.
type things map[string]string

// row says how to make a route succeed.
type row struct {
	path   string // with placeholders of things
	body   any
	status int    // for the owner
	own    bool   // affects only the caller: another user succeeds too, with their own resources
	quiet  bool   // a step that another route's audit entry covers
	did    string // action of the audit entry; every change has one
	prep   func(w *world, key string, x things)
	team   bool // called with a team's keys on the team's resources
	whole  bool // needs a key with all scopes and for all sites
	header string
}

// matrix has a row for every route; a route without one fails the test.
var matrix = map[string]row{
	"enableWebhook":  {path: "/webhooks/{webhook}/enable", status: 200, did: "webhook.enabled"},
	"redeliver":      {path: "/webhooks/{webhook}/deliveries/{delivery}/redeliver", status: 202, did: "webhook.redelivered"},
	"redeliverAll":   {path: "/webhooks/{webhook}/redeliver", body: m{"since": "1h"}, status: 202, did: "webhook.redelivered"},
	"getOperation":   {path: "/operations/{operation}", status: 200},
	"listOperations": {path: "/sites/{site}/operations", status: 200},
	"rotateWebhookSecret": {
		path:   "/webhooks/{webhook}/rotate-secret",
		body:   m{"secret": "another secret of theirs"},
		status: 200,
		did:    "webhook.secret_rotated",
	},

	"getWordPress": {path: "/sites/{site}/wordpress", status: 409},
	"updateWordPress": {
		path:   "/sites/{site}/wordpress",
		body:   m{"xmlrpc": true},
		status: 200,
		prep:   wordpressed,
		did:    "site.updated",
	},
	"listWordPressUsers":     {path: "/sites/{site}/wordpress/users", status: 409},
	"listWordPressCrons":     {path: "/sites/{site}/wordpress/crons", status: 409},
	"manageWordPressPlugins": {path: "/sites/{site}/wordpress/plugins", body: m{"action": "activate", "plugins": []string{"akismet"}}, status: 409},
	"manageWordPressThemes":  {path: "/sites/{site}/wordpress/themes", body: m{"action": "activate", "themes": []string{"twenty"}}, status: 409},
	"createWordPressUser": {
		path: "/sites/{site}/wordpress/users", body: m{"login": "grace", "email": "grace@example.test", "role": "editor"}, status: 409,
	},
	"updateWordPressUser":     {path: "/sites/{site}/wordpress/users/2", body: m{"role": "editor"}, status: 409},
	"resetWordPressPassword":  {path: "/sites/{site}/wordpress/users/2/reset-password", status: 409},
	"updateWordPressVersions": {path: "/sites/{site}/wordpress/update", body: m{"plugins": "all"}, status: 409},
	"searchReplaceWordPress": {
		path:   "/sites/{site}/wordpress/search-replace",
		body:   m{"from": "a", "to": "b", "dryRun": true},
		status: 409,
	},
	"listWordPressRootFiles": {path: "/sites/{site}/wordpress/root-files", status: 200, prep: wordpressed},
	"setWordPressRootFiles": {
		path: "/sites/{site}/wordpress/root-files", body: m{"files": []m{{"path": "ads.txt", "content": "none"}}}, status: 200, prep: wordpressed,
		did: "site.updated",
	},
	"cloneSite":           {path: "/sites/{site}/clone", body: m{"name": "Copy"}, status: 409},
	"comparePush":         {path: "/sites/{site}/push/compare?to={site}", status: 400},
	"pushSite":            {path: "/sites/{site}/push", body: m{"to": "{site}", "files": true}, status: 400},
	"importWordPress":     {path: "/sites/{site}/wordpress/import", body: m{"url": "https://files.test/site.tar.gz"}, status: 409},
	"loginWordPress":      {path: "/sites/{site}/wordpress/login", status: 409},
	"purgeWordPressCache": {path: "/sites/{site}/wordpress/purge-cache", status: 202, prep: wordpressed, did: "wordpress.purged"},

	"listDatabases": {path: "/sites/{site}/databases", status: 200},
	"createDatabase": {
		path:   "/sites/{site}/databases",
		body:   m{"engine": "mariadb", "name": "shop"},
		status: 201,
		did:    "database.created",
	},
	"getDatabase":            {path: "/databases/{database}", status: 200},
	"deleteDatabase":         {path: "/databases/{database}", status: 200, did: "database.deleted"},
	"rotateDatabasePassword": {path: "/databases/{database}/rotate-password", status: 200, did: "database.rotated"},
	"dumpDatabase":           {path: "/databases/{database}/dump", status: 409},
	"getDatabaseTables":      {path: "/databases/{database}/tables", status: 409},
	"getDatabaseRows":        {path: "/databases/{database}/rows?table=posts", status: 409},
	"queryDatabase":          {path: "/databases/{database}/query", body: m{"sql": "SELECT 1"}, status: 409},
	"exportTable":            {path: "/databases/{database}/export?table=posts", status: 409},

	"createListener": {
		path:   "/webhook-listeners",
		body:   m{"secret": "a secret of the listener's"},
		status: 201,
		own:    true,
		did:    "webhook.listener_started",
	},
	"fetchDeliveries": {path: "/webhook-listeners/{listener}/deliveries", status: 200},
	"deleteListener":  {path: "/webhook-listeners/{listener}", status: 200, did: "webhook.listener_stopped"},

	"listSites": {path: "/sites", status: 200, own: true},
	"createSite": {
		path:   "/sites",
		body:   m{"name": "new", "type": "static", "repository": "git.test/acme/site"},
		status: 201,
		own:    true,
		did:    "site.created",
	},
	"getSite":           {path: "/sites/{site}", status: 200},
	"openTerminal":      {path: "/sites/{site}/terminal", status: 409},
	"getSiteLogs":       {path: "/sites/{site}/logs", status: 200},
	"getSiteTraffic":    {path: "/sites/{site}/traffic?since=7d", status: 200},
	"getSiteTopTraffic": {path: "/sites/{site}/traffic/top?since=7d", status: 200},
	"getUsage":          {path: "/usage?siteId={site}", status: 200},
	"getSiteAccessLog":  {path: "/sites/{site}/access-log", status: 200},
	"getSiteServing":    {path: "/sites/{site}/serving", status: 200},
	"updateSiteServing": {
		path:   "/sites/{site}/serving",
		body:   m{"proxyHosts": []string{"api.example.com"}},
		status: 200,
		did:    "site.updated",
	},
	"testSiteRules": {path: "/sites/{site}/rules/test", body: m{"path": "/"}, status: 409},
	"updateSite":    {path: "/sites/{site}", body: m{"name": "renamed"}, status: 200, did: "site.updated"},
	"deleteSite":    {path: "/sites/{site}", status: 200, did: "site.deleted"},
	"deploySite":    {path: "/sites/{site}/deploy", body: m{"branch": "feature"}, status: 200, did: "deployment.triggered"},
	"createUpload": {
		path:   "/sites/{site}/uploads",
		body:   m{"kind": "output", "target": "preview"},
		status: 201,
		prep:   folder,
		did:    "upload.created",
	},
	"getUpload":         {path: "/uploads/{upload}", status: 200, prep: uploading},
	"deleteUpload":      {path: "/uploads/{upload}", status: 200, prep: uploading, did: "upload.deleted"},
	"putUploadManifest": {path: "/uploads/{upload}/manifest", body: manifestOf("index.html", "hello"), status: 200, prep: uploading, quiet: true},
	"getUploadMissing":  {path: "/uploads/{upload}/missing", status: 200, prep: uploading},
	"sendUploadBlobs":   {path: "/uploads/{upload}/blobs", body: batchOf("hello"), status: 200, prep: uploading, quiet: true},
	"putUploadBlob":     {path: "/uploads/{upload}/blobs/" + digestOf("hello"), body: "hello", status: 200, prep: uploading, quiet: true},
	"getUploadBlob":     {path: "/uploads/{upload}/blobs/" + digestOf("hello"), status: 200, prep: uploading},
	"sendUploadPart":    {path: "/uploads/{upload}/blobs/" + digestOf("hello"), body: "hello", status: 200, prep: uploading, quiet: true, header: "Upload-Offset: 0"},
	"deployArchive":     {path: "/sites/{site}/deploy/archive?target=preview", body: zipOf("index.html", "hello"), status: 200, prep: folder, did: "deployment.triggered"},
	"deployUpload":      {path: "/uploads/{upload}/deploy", status: 200, prep: uploaded, did: "deployment.triggered"},
	"stopSite":          {path: "/sites/{site}/stop", status: 200, prep: activate, did: "site.stopped"},
	"restartSite":       {path: "/sites/{site}/restart", status: 202, prep: programmed, did: "site.restarted"},
	"getSiteMetrics":    {path: "/sites/{site}/metrics?since=2h", status: 200},
	"getSiteProcesses":  {path: "/sites/{site}/processes", status: 200},
	"listCrons":         {path: "/sites/{site}/crons", status: 200},
	"runCron":           {path: "/sites/{site}/crons/none/run", status: 404, prep: programmed},
	"runCommand": {
		path:   "/sites/{site}/commands",
		body:   m{"command": "node -v"},
		status: 202,
		prep:   programmed,
		did:    "site.command",
	},
	"startSite":         {path: "/sites/{site}/start", status: 200, prep: stop, did: "site.started"},
	"rollbackSite":      {path: "/sites/{site}/rollback", body: m{"deploymentId": "{deployment}"}, status: 409},
	"listDeployments":   {path: "/sites/{site}/deployments", status: 200},
	"getDeployment":     {path: "/deployments/{deployment}", status: 200},
	"getDeploymentLogs": {path: "/deployments/{deployment}/logs", status: 200},
	"cancelDeployment":  {path: "/deployments/{deployment}/cancel", status: 200, prep: toPreview, did: "deployment.canceled"},
	"promoteDeployment": {path: "/deployments/{deployment}/promote", status: 200, prep: preview, did: "deployment.promoted"},
	"retryDeployment":   {path: "/deployments/{deployment}/retry", status: 200, prep: cancel, did: "deployment.retried"},
	"listDomains":       {path: "/domains", status: 200, own: true},
	"checkDomain":       {path: "/domains/check", body: m{"domain": "example-name-4711.com"}, status: 200, own: true},
	"listSiteDomains":   {path: "/sites/{site}/domains", status: 200},
	"createDomain":      {path: "/sites/{site}/domains", body: m{"name": "new.example-4711.com"}, status: 201, did: "domain.added"},
	"getDomain":         {path: "/domains/{domain}", status: 200},
	"updateDomain":      {path: "/domains/{domain}", body: m{"redirectTo": "www.example-4711.com"}, status: 200, did: "domain.updated"},
	"deleteDomain":      {path: "/domains/{domain}", status: 200, did: "domain.removed"},
	"verifyDomain":      {path: "/domains/{domain}/verify", status: 200},
	"listEnv":           {path: "/sites/{site}/env", status: 200},
	"setEnv":            {path: "/sites/{site}/env", body: m{"key": "B", "value": "b"}, status: 201, did: "env.set"},
	"updateEnv":         {path: "/sites/{site}/env/A", body: m{"value": "b"}, status: 200, did: "env.set"},
	"deleteEnv":         {path: "/sites/{site}/env/A", status: 200, did: "env.deleted"},
	"listHooks":         {path: "/sites/{site}/hooks", status: 200},
	"createHook":        {path: "/sites/{site}/hooks", body: m{"name": "ci"}, status: 201, did: "hook.created"},
	"updateHook":        {path: "/hooks/{hook}", body: m{"active": false}, status: 200, did: "hook.updated"},
	"deleteHook":        {path: "/hooks/{hook}", status: 200, did: "hook.deleted"},
	"getGit":            {path: "/sites/{site}/git", status: 200},
	"updateGit":         {path: "/sites/{site}/git", body: m{"previews": "branches"}, status: 200, did: "site.updated"},
	"createGitHook":     {path: "/sites/{site}/git/hook", status: 201, did: "git_hook.created"},
	"listConnections":   {path: "/git/accounts", status: 200, own: true},
	"createConnection": {
		path:   "/git/accounts",
		body:   m{"provider": "github", "token": "good-token"},
		status: 201,
		own:    true,
		did:    "connection.created",
	},
	"deleteConnection": {path: "/git/accounts/{connection}", status: 200, did: "connection.deleted"},
	"findRepositories": {path: "/git/accounts/{connection}/repositories?search=site", status: 200},
	"listChannels":     {path: "/notifications", status: 200, own: true},
	"createChannel": {
		path:   "/notifications",
		body:   m{"kind": "slack", "target": "https://hooks.example.test/x"},
		status: 201,
		own:    true,
		did:    "notification_channel.created",
	},
	"updateChannel":    {path: "/notifications/{channel}", body: m{"active": false}, status: 200, did: "notification_channel.updated"},
	"deleteChannel":    {path: "/notifications/{channel}", status: 200, did: "notification_channel.deleted"},
	"sendConfirmation": {path: "/notifications/{channel}/confirmation", status: 409},
	"testChannel":      {path: "/notifications/{channel}/test", status: 200, did: "notification_channel.tested"},
	"listGitEvents":    {path: "/sites/{site}/git/events", status: 200},
	"listPulls":        {path: "/sites/{site}/pulls", status: 200},
	"approvePull": {
		path:   "/sites/{site}/pulls/7/approve",
		body:   m{"commit": shaA},
		status: 200,
		did:    "pull_request.approved",
		prep:   forkPull,
	},
	"listBackups":    {path: "/sites/{site}/backups", status: 200},
	"createBackup":   {path: "/sites/{site}/backups", status: 201, did: "backup.created"},
	"listAllBackups": {path: "/backups", status: 200, own: true},
	"getBackup":      {path: "/backups/{backup}", status: 200},
	"deleteBackup":   {path: "/backups/{backup}", status: 200, did: "backup.deleted"},
	"verifyBackup":   {path: "/backups/{backup}/verify", status: 409}, // no worker runs here: see backups_test.go
	"restoreBackup":  {path: "/backups/{backup}/restore", status: 409},
	"downloadBackup": {path: "/backups/{backup}/download", status: 409},
	"listWebhooks":   {path: "/webhooks", status: 200, own: true},
	"createWebhook": {
		path:   "/webhooks",
		body:   m{"url": "https://example.test/x", "events": []string{"site.created"}},
		status: 201,
		own:    true,
		did:    "webhook.created",
	},
	"listEvents":     {path: "/webhooks/events", status: 200, own: true},
	"getWebhook":     {path: "/webhooks/{webhook}", status: 200},
	"updateWebhook":  {path: "/webhooks/{webhook}", body: m{"active": false}, status: 200, did: "webhook.updated"},
	"deleteWebhook":  {path: "/webhooks/{webhook}", status: 200, did: "webhook.deleted"},
	"pingWebhook":    {path: "/webhooks/{webhook}/ping", status: 200, did: "webhook.pinged"},
	"listDeliveries": {path: "/webhooks/{webhook}/deliveries", status: 200},
	"listKeys":       {path: "/keys", status: 200, own: true},
	"createKey": {
		path:   "/keys",
		body:   m{"name": "new", "scopes": []string{"keys:write"}},
		status: 201,
		own:    true,
		did:    "key.created",
	},
	"revokeKey":  {path: "/keys/{key}", status: 200, did: "key.revoked"},
	"getAccount": {path: "/account", status: 200, own: true},

	"listIdentities":      {path: "/account/identities", status: 200, own: true},
	"listSignInProviders": {path: "/account/providers", status: 200, own: true},
	"unlinkIdentity":      {path: "/account/identities/{identity}", status: 200, did: "identity.unlinked"},

	"listTeams":        {path: "/teams", status: 200, own: true},
	"createTeam":       {path: "/teams", body: m{"name": "New"}, status: 201, own: true, did: "team.created"},
	"leaveTeam":        {path: "/teams/{team}/leave", status: 409}, // called by the last owner: see teams_test.go
	"acceptInvitation": {path: "/invitations/accept", body: m{"token": "none"}, status: 404, own: true},
	"getTeam":          {path: "/teams/{team}", status: 200, team: true},
	"updateTeam":       {path: "/teams/{team}", body: m{"name": "Renamed"}, status: 200, team: true, did: "team.updated"},
	"deleteTeam":       {path: "/teams/{team}", body: m{"confirm": "{slug}"}, status: 409, team: true}, // the team has sites
	"listMembers":      {path: "/teams/{team}/members", status: 200, team: true},
	"updateMember": {
		path: "/teams/{team}/members/{member}", body: m{"role": "viewer"}, status: 200, team: true, did: "member.role_changed",
	},
	"setEmergencyOwner": {path: "/teams/{team}/members/{member}/emergency", body: m{"enabled": false}, status: 200, team: true, did: "member.emergency"},
	"removeMember":      {path: "/teams/{team}/members/{member}", status: 200, team: true, did: "member.removed"},
	"listInvitations":   {path: "/teams/{team}/invitations", status: 200, team: true},
	"createInvitation": {
		path: "/teams/{team}/invitations", body: m{"email": "new@example.test", "role": "viewer"}, status: 201, team: true,
		did: "invitation.created",
	},
	"revokeInvitation": {path: "/teams/{team}/invitations/{invitation}", status: 200, team: true, did: "invitation.revoked"},
	"resendInvitation": {path: "/teams/{team}/invitations/{invitation}/resend", status: 200, team: true, did: "invitation.resent"},
	"listSiteMembers":  {path: "/sites/{site}/members", status: 200, team: true},
	"setSiteMember": {
		path: "/sites/{site}/members/{member}", body: m{"role": "manager"}, status: 200, team: true, did: "member.site_role",
	},
	"removeSiteMember": {path: "/sites/{site}/members/{member}", status: 200, team: true, did: "member.site_role", prep: sitedMember},
	"transferSite": {
		path: "/sites/{site}/transfer", body: m{"to": "somebody@example.test"}, status: 201, team: true, whole: true,
		did: "site.transfer_offered",
	},
	"acceptTransfer":    {path: "/transfers/accept", body: m{"code": "none"}, status: 404, own: true},
	"cancelTransfer":    {path: "/transfers/{transfer}", status: 200, team: true, did: "site.transfer_canceled"},
	"listTeamProviders": {path: "/teams/{team}/sso", status: 200, team: true},
	"createTeamProvider": {
		path: "/teams/{team}/sso", body: m{"kind": "google", "clientId": "c", "clientSecret": "s"}, status: 201, team: true, did: "sso_provider.added",
	},
	"updateTeamProvider": {path: "/teams/{team}/sso/{provider}", body: m{"name": "Acme"}, status: 200, team: true, did: "sso_provider.updated"},
	"deleteTeamProvider": {path: "/teams/{team}/sso/{provider}", status: 200, team: true, did: "sso_provider.removed"},
	"addTeamDomain": {
		path: "/teams/{team}/sso/{provider}/domains", body: m{"domain": "more.test"}, status: 201, team: true, did: "sso_domain.added",
	},
	"verifyTeamDomain": {path: "/teams/{team}/sso/{provider}/domains/{ssoDomain}/verify", status: 200, team: true, did: "sso_domain.checked"},
	"deleteTeamDomain": {path: "/teams/{team}/sso/{provider}/domains/{ssoDomain}", status: 200, team: true, did: "sso_domain.removed"},

	"getTeamAudit": {path: "/teams/{team}/audit", status: 200, team: true},
	"listApps":     {path: "/oauth/apps", status: 200, own: true},
	"createApp": {
		path:   "/oauth/apps",
		body:   m{"name": "new", "redirectUris": []string{"https://app.test/callback"}},
		status: 201,
		own:    true,
		did:    "app.created",
	},
	"getApp":          {path: "/oauth/apps/{app}", status: 200},
	"updateApp":       {path: "/oauth/apps/{app}", body: m{"name": "renamed"}, status: 200, did: "app.updated"},
	"deleteApp":       {path: "/oauth/apps/{app}", status: 200, did: "app.deleted"},
	"rotateAppSecret": {path: "/oauth/apps/{app}/rotate-secret", status: 200, did: "app.secret_rotated"},
	"listGrants":      {path: "/oauth/grants", status: 200, own: true},
	"revokeGrant":     {path: "/oauth/grants/{grant}", status: 200, did: "app.revoked"},
}

type m = map[string]any

// sitedMember gives the team's member a role on its site.
func sitedMember(w *world, key string, x things) {
	w.must(200, "PUT", "/sites/"+x["site"]+"/members/"+x["member"], key, m{"role": "viewer"})
}

// team creates a team of a user with two sites, a member and an invitation, and returns its things and a team key.
func (w *world) team(u account.UserID, key string) (x things, teamKey string) {
	x = things{}
	x["team"], teamKey = w.teamOf(key, "Team of "+string(u))
	x["slug"] = w.must(200, "GET", "/teams/"+x["team"], teamKey, nil)["slug"].(string)
	x["site"], x["spare"] = w.site(teamKey, "team site"), w.site(teamKey, "team spare")
	member, memberKey := w.user("member-of-" + string(u) + "@example.test")
	w.join(teamKey, x["team"], "member-of-"+string(u)+"@example.test", memberKey, m{"role": "developer"})
	x["member"] = string(member)
	x["transfer"] = w.must(201, "POST", "/sites/"+x["spare"]+"/transfer", teamKey, m{"to": "somebody@example.test"})["id"].(string)
	x["invitation"] = w.must(201, "POST", "/teams/"+x["team"]+"/invitations", teamKey, m{"email": "open@example.test", "role": "viewer"})["id"].(string)
	x["provider"] = w.must(201, "POST", "/teams/"+x["team"]+"/sso", teamKey, m{
		"kind": "oidc", "issuer": "https://login.example.test", "clientId": "c", "clientSecret": "s",
	})["id"].(string)
	x["ssoDomain"] = w.must(201, "POST", "/teams/"+x["team"]+"/sso/"+x["provider"]+"/domains", teamKey, m{"domain": "acme.test"})["id"].(string)
	return x, teamKey
}

// acting returns a user as a caller with the user's whole authority in a team.
func (w *world) acting(u account.UserID, id string) account.Caller {
	w.t.Helper()
	user, err := w.c.Accounts.User(w.t.Context(), u)
	if err != nil {
		w.t.Fatal(err)
	}
	t, err := w.c.Teams.Find(w.t.Context(), w.db, u, id)
	if err != nil {
		w.t.Fatal(err)
	}
	c, err := w.c.Accounts.CallerFor(w.t.Context(), w.db, user, t.Owner)
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}

// keyAs creates a key with a caller's authority.
func (w *world) keyAs(c account.Caller, n account.NewKey) string {
	w.t.Helper()
	if len(n.Scopes) == 0 {
		n.Scopes = account.Scopes{account.All}
	}
	n.Name = "test"
	var secret string
	if err := w.db.Write(w.t.Context(), func(tx *db.Tx) (err error) {
		_, secret, err = w.c.Accounts.CreateKeyTx(w.t.Context(), tx, c, n)
		return err
	}); err != nil {
		w.t.Fatal(err)
	}
	return secret
}

// forkPull inserts an open pull request of a fork.
func forkPull(w *world, _ string, x things) {
	if err := w.db.Admin(
		w.t.Context(),
		"INSERT INTO git_pulls (site_id, number, title, branch, source, author, commit_hash, open, fork, approved, updated_at) VALUES ('"+x["site"]+"', 7, 'T', 'b', 'e/s', '', '"+shaA+"', TRUE, TRUE, '', 1)",
	); err != nil {
		w.t.Fatal(err)
	}
}

func activate(w *world, _ string, x things) {
	if err := w.db.Admin(
		w.t.Context(),
		"UPDATE sites SET status = 'active', live_deployment = '"+x["deployment"]+"', live_release = 'r' WHERE id = '"+x["site"]+"'",
	); err != nil {
		w.t.Fatal(err)
	}
}

// programmed turns the site into one with a program.
func programmed(w *world, key string, x things) {
	activate(w, key, x)
	if err := w.db.Admin(w.t.Context(), "UPDATE sites SET runtime = 'node' WHERE id = '"+x["site"]+"'"); err != nil {
		w.t.Fatal(err)
	}
}

// wordpressed turns the site into a WordPress that isn't installed yet.
func wordpressed(w *world, _ string, x things) {
	err := w.db.Write(w.t.Context(), func(tx *db.Tx) error {
		s, err := w.c.Sites.ByID(w.t.Context(), tx, site.ID(x["site"]))
		if err != nil {
			return err
		}
		return w.c.WordPress.CreateTx(w.t.Context(), tx, s, wordpress.Settings{}, "ada@example.test")
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

// preview turns the deployment into a successful preview.
func preview(w *world, _ string, x things) {
	if err := w.db.Admin(
		w.t.Context(),
		"UPDATE deployments SET target = 'preview', status = 'success', release = 'r' WHERE id = '"+x["deployment"]+"'",
	); err != nil {
		w.t.Fatal(err)
	}
}

func stop(w *world, key string, x things) {
	activate(w, key, x)
	w.must(200, "POST", "/sites/"+x["site"]+"/stop", key, nil)
}

func cancel(w *world, key string, x things) {
	toPreview(w, key, x)
	w.must(200, "POST", "/deployments/"+x["deployment"]+"/cancel", key, nil)
}

// toPreview turns the waiting deployment into a preview's. Production needs another scope, which teams_test.go tests.
func toPreview(w *world, _ string, x things) {
	if err := w.db.Admin(w.t.Context(), "UPDATE deployments SET target = 'preview' WHERE id = '"+x["deployment"]+"'"); err != nil {
		w.t.Fatal(err)
	}
}

// folder removes a site's repository.
func folder(w *world, _ string, x things) {
	if err := w.db.Admin(w.t.Context(), "UPDATE sites SET repository = '' WHERE id = '"+x["site"]+"'"); err != nil {
		w.t.Fatal(err)
	}
}

// uploading opens an upload whose single file is missing.
func uploading(w *world, key string, x things) {
	folder(w, key, x)
	x["upload"] = w.must(201, "POST", "/sites/"+x["site"]+"/uploads", key, m{"kind": "output", "target": "preview"})["id"].(string)
	w.must(200, "PUT", "/uploads/"+x["upload"]+"/manifest", key, manifestOf("index.html", "hello"))
}

func uploaded(w *world, key string, x things) {
	uploading(w, key, x)
	w.must(200, "POST", "/uploads/"+x["upload"]+"/blobs", key, batchOf("hello"))
}

// belongings creates one resource of each kind for a user.
func (w *world) belongings(u account.UserID, key string) things {
	w.t.Helper()
	x := things{"site": w.site(key, "site of "+string(u))}
	text := func(v m, name string) string { return v[name].(string) }
	x["deployment"] = text(w.must(200, "POST", "/sites/"+x["site"]+"/deploy", key, nil), "deploymentId")
	x["hook"] = text(w.must(201, "POST", "/sites/"+x["site"]+"/hooks", key, m{"name": "ci"}), "id")
	x["database"] = text(w.must(201, "POST", "/sites/"+x["site"]+"/databases", key, m{"engine": "mariadb"}), "id")
	x["key"] = text(w.must(201, "POST", "/keys", key, m{"name": "spare", "scopes": []string{"keys:write"}}), "id")
	w.must(201, "POST", "/sites/"+x["site"]+"/env", key, m{"key": "A", "value": "a"})
	x["domain"] = text(
		w.must(201, "POST", "/sites/"+x["site"]+"/domains", key, m{"name": strings.ReplaceAll(string(u), "_", "") + ".example-4711.com"}),
		"id",
	)
	x["webhook"] = text(
		w.must(201, "POST", "/webhooks", key, m{
			"url":    "https://example.test/hook",
			"events": []string{"deployment.completed"},
			"secret": "planted-webhook-secret",
		}),
		"id",
	)
	x["delivery"] = text(w.must(200, "POST", "/webhooks/"+x["webhook"]+"/ping", key, nil), "deliveryId")
	x["backup"] = text(w.must(201, "POST", "/sites/"+x["site"]+"/backups", key, nil), "id")
	x["listener"] = text(w.must(201, "POST", "/webhook-listeners", key, m{"secret": "planted-webhook-secret"}), "id")
	x["connection"] = text(w.must(201, "POST", "/git/accounts", key, m{"provider": "github", "token": "good-token"}), "id")
	x["channel"] = text(
		w.must(201, "POST", "/notifications", key, m{"kind": "slack", "target": "https://hooks.example.test/planted-address"}),
		"id",
	)
	x["app"] = text(w.must(201, "POST", "/oauth/apps", key, m{"name": "Planned", "confidential": true}), "id")
	x["grant"], _ = w.grant(u, account.SitesRead)
	x["identity"] = w.identity(u, "")
	err := w.db.Write(w.t.Context(), func(tx *db.Tx) error {
		o, err := w.c.Operations.OpenTx(w.t.Context(), tx, w.caller(u).Owner, operation.NewOperation{Kind: "test", Site: site.ID(x["site"])})
		x["operation"] = string(o.ID)
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return x
}

// log returns the audit log, newest first.
func (w *world) log() []audit.Entry {
	w.t.Helper()
	list, err := w.c.Accounts.Audit(w.t.Context(), audit.Filter{Limit: 200})
	if err != nil {
		w.t.Fatal(err)
	}
	return list
}

func (x things) fill(s string) string {
	for name, v := range x {
		s = strings.ReplaceAll(s, "{"+name+"}", v)
	}
	return s
}

// matrixWorld is a world with two users who have the same resources.
type matrixWorld struct {
	*world
	u, other       account.UserID
	mine, otherKey string // keys with all scopes
	x, theirs      things
	spare          string // another site of the first user

	teams    [2]things // of each user, with keys
	teamKeys [2]string
}

func newMatrixWorld(t *testing.T) *matrixWorld {
	w := &matrixWorld{world: newWorld(t)}
	w.u, w.mine = w.user("a@example.test")
	w.x = w.belongings(w.u, w.mine)
	w.other, w.otherKey = w.user("b@example.test")
	w.theirs = w.belongings(w.other, w.otherKey)
	w.spare = w.site(w.mine, "spare")
	w.teams[0], w.teamKeys[0] = w.team(w.u, w.mine)
	w.teams[1], w.teamKeys[1] = w.team(w.other, w.otherKey)
	w.x["team"], w.theirs["team"] = w.teams[0]["team"], w.teams[1]["team"]
	return w
}

func TestAuthorizationMatrix(t *testing.T) {
	t.Parallel()
	var reads []api.Route
	for _, r := range api.New(newWorld(t).c).Routes() {
		if r.Open || r.Hook || r.Operator { // operators' routes have their own tests
			continue
		}
		row, ok := matrix[r.ID]
		switch {
		case !ok:
			t.Errorf("%s %s (%s) has no row in the matrix", r.Method, r.Path, r.ID)
		case r.Method == "GET" && row.prep == nil:
			reads = append(reads, r)
		default:
			t.Run(r.ID, func(t *testing.T) {
				t.Parallel()
				newMatrixWorld(t).try(t, r, row)
			})
		}
	}
	t.Run("reads", func(t *testing.T) { // these change nothing and can share a world
		t.Parallel()
		w := newMatrixWorld(t)
		for _, r := range reads {
			t.Run(r.ID, func(t *testing.T) { w.try(t, r, matrix[r.ID]) })
		}
	})
	routes := map[string]bool{}
	for _, r := range api.New(newWorld(t).c).Routes() {
		routes[r.ID] = true
	}
	for id := range matrix {
		if !routes[id] {
			t.Errorf("the matrix has a row for %s, which is no route", id)
		}
	}
}

// try calls a route with every credential that must be refused, then as the owner.
func (w *matrixWorld) try(t *testing.T, r api.Route, row row) {
	if r.Scope == "" {
		t.Fatal("a route without a scope")
	}
	own := *w.world
	own.t = t
	w = &matrixWorld{&own, w.u, w.other, w.mine, w.otherKey, w.x, w.theirs, w.spare, w.teams, w.teamKeys}
	u, key, x, other, otherKey, theirs, spare := w.u, w.mine, w.x, w.other, w.otherKey, w.theirs, w.spare
	as, asOther := w.caller(u), w.caller(other)
	if row.team {
		key, x, otherKey, theirs, spare = w.teamKeys[0], w.teams[0], w.teamKeys[1], w.teams[1], w.teams[0]["spare"]
		as, asOther = w.acting(u, x["team"]), w.acting(other, theirs["team"])
	}
	reads := account.Scopes{}
	for _, s := range account.AllScopes {
		if strings.HasSuffix(string(s), ":read") {
			reads = append(reads, s)
		}
	}
	if row.prep != nil {
		row.prep(w.world, key, x)
	}
	others := account.Scopes{}
	for _, s := range account.AllScopes {
		if s != account.All && !(account.Scopes{s}).Include(r.Scope) {
			others = append(others, s)
		}
	}
	ask := func(key string) answer {
		var body any = row.body
		if b, ok := body.(m); ok {
			filled := m{}
			for k, v := range b {
				if s, ok := v.(string); ok {
					v = x.fill(s)
				}
				filled[k] = v
			}
			body = filled
		}
		var headers []string
		if row.header != "" {
			headers = append(headers, row.header)
		}
		a := w.api(r.Method, x.fill(row.path), key, body, headers...)
		common(t, r.ID, a)
		valid(t, w.world, r, a)
		return a
	}
	check := func(who, key string, want int) {
		t.Helper()
		a := ask(key)
		if a.status != want {
			t.Errorf("%s: %s, want %d", who, a, want)
		}
		if want >= 400 {
			for name, v := range x { // the response contains nothing of the owner's
				if strings.Contains(a.body, v) {
					t.Errorf("%s: the refusal holds the %s: %s", who, name, a.body)
				}
			}
		}
		if want == 403 && len(r.Scope) > 0 && strings.Contains(who, "scope") && !strings.Contains(a.body, string(r.Scope)) {
			t.Errorf("%s: %s does not name the scope %s", who, a, r.Scope)
		}
	}
	secret := func(n account.NewKey) string { return w.keyAs(as, n) }
	otherSecret := func(n account.NewKey) string { return w.keyAs(asOther, n) }
	// Keys restricted to one site.
	sited := slices.ContainsFunc([]string{"{site}", "{deployment}", "{hook}", "{domain}", "{database}", "{backup}", "{operation}", "{upload}"},
		func(thing string) bool { return strings.Contains(row.path, thing) })
	begun := len(w.log())
	check("nobody", "", 401)
	revoked := secret(account.NewKey{})
	keys, err := w.c.Accounts.ListKeys(t.Context(), as)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.c.Accounts.RevokeKey(t.Context(), as, keys[0].ID); err != nil {
		t.Fatal(err)
	}
	check("a revoked key", revoked, 401)
	check("a key without the scope", secret(account.NewKey{Scopes: others}), 403)
	if !reads.Include(r.Scope) {
		check("a key whose scope is to read", secret(account.NewKey{Scopes: reads}), 403)
	}
	if !row.own {
		check("another user", otherKey, 404)
		check("another user without the scope", otherSecret(account.NewKey{Scopes: others}), 403)
	}
	if sited {
		check("a key for another site", secret(account.NewKey{Sites: []site.ID{site.ID(spare)}}), 403)
		check("another user's key for another site", otherSecret(account.NewKey{Sites: []site.ID{site.ID(theirs["site"])}}), 404)
	}
	if r.Wide {
		check("a key for some sites", secret(account.NewKey{Sites: []site.ID{site.ID(x["site"])}}), 403)
	}
	if n := len(w.log()) - begun; n != 0 {
		t.Errorf("refused requests left %d entries in the audit log", n)
	}
	if row.own {
		check("another user", otherKey, row.status)
		if a := ask(otherKey); strings.Contains(a.body, x["site"]) || strings.Contains(a.body, x["key"]) {
			t.Errorf("another user sees things of the owner: %s", a)
		}
	}
	if r.Method != "GET" && row.did == "" && !row.quiet && row.status < 300 && r.ID != "checkDomain" && r.ID != "verifyDomain" {
		t.Error("the matrix does not say what the audit log holds of it")
	}
	n := account.NewKey{Scopes: account.Scopes{r.Scope}}
	if !r.Wide {
		n.Sites = []site.ID{site.ID(x["site"])}
	}
	if r.ID == "createKey" {
		n.Sites = nil
	}
	who := "the owner, with just the scope and for just the site"
	if strings.Contains(row.path, "{") && !sited {
		who, n.Sites = "the owner, with just the scope", nil
	}
	if row.whole {
		who, n = "the owner, with all scopes", account.NewKey{Scopes: account.Scopes{account.All}}
	}
	before := w.log()
	if r.ID == "listGrants" {
		n.Sites = nil
	}
	last := secret(n)
	check(who, last, row.status)
	// The audit log has exactly this change, with the user and the credential.
	var did []string
	for _, e := range w.log()[:len(w.log())-len(before)] {
		did = append(did, e.Action)
		if e.User != u || e.Key == "" || e.Via != "test ("+last[:10]+"…)" || e.Addr != "127.0.0.1" || e.Subject == "" {
			t.Errorf("the log says %+v", e)
		}
	}
	if strings.Join(did, " ") != row.did {
		t.Errorf("the log says %q, want %q", did, row.did)
	}
}

// identity links a user to the installation's Google provider and also gives the user a password.
func (w *world) identity(u account.UserID, owner account.OwnerID) string {
	w.t.Helper()
	id := db.NewID("idn")
	for _, q := range []string{
		`INSERT INTO sso_providers (id, kind, name, issuer, client_id, secret, domains, created_at, owner_id, join_role)
			VALUES ('google', 'google', 'Google', 'https://accounts.google.com', 'c', '', '', 1, '', '') ON CONFLICT DO NOTHING`,
		`INSERT INTO sso_identities (owner_id, issuer, subject, id, user_id, email, created_at, used_at)
			VALUES ('` + string(owner) + `', 'https://accounts.google.com', '` + id + `', '` + id + `', '` + string(u) + `', 'elsewhere@example.test', 1, 0)`,
		`UPDATE users SET password = 'x' WHERE id = '` + string(u) + `'`,
	} {
		if err := w.db.Admin(w.t.Context(), q); err != nil {
			w.t.Fatal(err)
		}
	}
	return id
}
