package docs

// scenarios holds the examples of the reference. An operation shows the first step that calls it.
var scenarios = []Scenario{
	{"sites", []Step{
		{
			Operation: "createSite",
			Body: `{
  "name": "My site",
  "type": "static",
  "repository": "github.com/acme/site"
}`,
			Keep:  []string{"SITE_ID=data.id"},
			Until: [3]string{"/sites/$SITE_ID", "status", "active"},
		},
		{Operation: "listSites", Query: "status=active&limit=25"},
		{Operation: "getSite"},
		{Operation: "updateSite", Body: `{
  "name": "Storefront",
  "backups": {"every": "daily", "at": "03:00"}
}`},
		{
			Operation: "deploySite", Body: `{
  "title": "Release 12",
  "clearCache": true
}`,
			Keep: []string{"DEPLOYMENT_ID=deploymentId"}, Until: [3]string{"/deployments/$DEPLOYMENT_ID", "status", "success"},
		},
		{Operation: "listDeployments", Query: "status=success&limit=25"},
		{Operation: "getDeployment"},
		{Operation: "getDeploymentLogs", Query: "after=0"},
		{
			Operation: "retryDeployment",
			Keep:      []string{"LATER_ID=deploymentId"}, Until: [3]string{"/deployments/$LATER_ID", "status", "success"},
		},
		{Operation: "rollbackSite", Body: `{"deploymentId": "$DEPLOYMENT_ID"}`},
		{
			Operation: "deploySite", Body: `{"branch": "redesign"}`,
			Keep: []string{"DEPLOYMENT_ID=deploymentId"}, Until: [3]string{"/deployments/$DEPLOYMENT_ID", "status", "success"},
		},
		{Operation: "promoteDeployment"},
		{Operation: "getSiteTraffic", Query: "since=24h"},
		{Operation: "getSiteTopTraffic", Query: "since=7d"},
		{Operation: "getSiteAccessLog", Query: "since=24h"},
		{Operation: "stopSite"},
		{Operation: "startSite"},
		{Operation: "testSiteRules", Body: `{
  "path": "/old-page",
  "headers": {"Accept-Language": "de"}
}`},
		{Operation: "getSiteServing"},
		{Operation: "updateSiteServing", Body: `{
  "protection": "previews",
  "password": "a password for visitors"
}`},
		{Operation: "setEnv", Body: `{
  "key": "API_TOKEN",
  "value": "a secret value",
  "secret": true
}`},
		{Operation: "listEnv"},
		{Operation: "updateEnv", With: map[string]string{"key": "API_TOKEN"}, Body: `{"value": "another secret value"}`},
		{Operation: "deleteEnv", With: map[string]string{"key": "API_TOKEN"}},
		{Operation: "createHook", Body: `{"name": "CMS"}`, Keep: []string{"HOOK_ID=id"}},
		{
			Operation: "callHook", Query: "title=Nightly",
			Keep: []string{"LATER_ID=deploymentId"}, Until: [3]string{"/deployments/$LATER_ID", "status", "success"},
		},
		{Operation: "listHooks"},
		{Operation: "updateHook", Body: `{"rotate": true}`, Keep: []string{"HOOK_ID=id"}},
		{Operation: "deleteHook"},
		{Operation: "getGit"},
		{Operation: "updateGit", Body: `{
  "autoDeploy": true,
  "previews": "all"
}`},
		{Operation: "createGitHook", Keep: []string{"GIT_HOOK=url/", "GIT_HOOK_SECRET=secret"}},
		{
			Operation: "callGitHook", With: map[string]string{"hook": "$GIT_HOOK"},
			Headers: []string{"X-Gitlab-Event: Push Hook", "X-Gitlab-Token: $GIT_HOOK_SECRET"},
			Body: `{
  "object_kind": "push",
  "ref": "refs/heads/main",
  "after": "$COMMIT",
  "project": {"git_http_url": "https://github.com/acme/site.git", "default_branch": "main"}
}`,
			Keep: []string{"LATER_ID=deploymentId"}, Until: [3]string{"/deployments/$LATER_ID", "status", "success"},
		},
		{Operation: "listGitEvents"},
		{Operation: "listPulls"},
		{Operation: "checkDomain", Body: `{"domain": "acme-shop.com"}`},
		{Operation: "createDomain", Body: `{"name": "www.example.com"}`, Keep: []string{"DOMAIN_ID=id"}},
		{Operation: "listSiteDomains"},
		{Operation: "listDomains"},
		{Operation: "getDomain"},
		{Operation: "verifyDomain"},
		{Operation: "updateDomain", Body: `{"redirectTo": "example.com"}`},
		{Operation: "deleteDomain"},
		{
			Operation: "createBackup",
			Body: `{
  "includes": ["config", "files", "database"],
  "note": "Before the redesign"
}`,
			Keep: []string{"BACKUP_ID=id"}, Until: [3]string{"/backups/$BACKUP_ID", "status", "completed"},
		},
		{Operation: "listBackups"},
		{Operation: "listAllBackups", Query: "type=manual"},
		{Operation: "getBackup"},
		{
			Operation: "verifyBackup",
			Keep:      []string{"OPERATION_ID=id"}, Until: [3]string{"/operations/$OPERATION_ID", "status", "success"},
		},
		{Operation: "getOperation"},
		{Operation: "listOperations"},
		{Operation: "downloadBackup", Query: "format=zip", Output: "backup.zip"},
		{
			Operation: "restoreBackup", Body: `{"newSite": {"name": "Restored copy"}}`,
			Keep: []string{"OPERATION_ID=id"}, Until: [3]string{"/operations/$OPERATION_ID", "status", "success"},
		},
		{Operation: "deleteBackup"},
		{Operation: "deleteSite", Query: "backup=true", Status: 202},
	}},
	{"applications", []Step{
		{
			Operation: "createSite", Body: `{"name": "App", "type": "static", "repository": "github.com/acme/app"}`,
			Keep: []string{"SITE_ID=data.id"}, Until: [3]string{"/sites/$SITE_ID", "status", "active"},
		},
		{Operation: "getSiteProcesses"},
		{Operation: "getSiteLogs", Query: "since=1h&level=error"},
		{Operation: "getSiteMetrics", Query: "since=1h"},
		{
			Operation: "runCommand", Body: `{"command": "node --version"}`,
			Keep: []string{"OPERATION_ID=id"}, Until: [3]string{"/operations/$OPERATION_ID", "status", "success"},
		},
		{Operation: "listCrons"},
		{
			Operation: "runCron", With: map[string]string{"name": "cleanup"},
			Keep: []string{"OPERATION_ID=id"}, Until: [3]string{"/operations/$OPERATION_ID", "status", "success"},
		},
		{
			Operation: "restartSite",
			Keep:      []string{"OPERATION_ID=id"}, Until: [3]string{"/operations/$OPERATION_ID", "status", "success"},
		},
		{
			Operation: "createDatabase", Body: `{"engine": "mariadb"}`,
			Keep: []string{"DATABASE_ID=id"}, Until: [3]string{"/databases/$DATABASE_ID", "status", "active"},
		},
		{Operation: "listDatabases"},
		{Operation: "getDatabase"},
		{Operation: "dumpDatabase", Output: "main.sql"},
		{Operation: "updateSite", Body: `{"run": {"terminal": true}}`},
		{Operation: "queryDatabase", Body: `{
  "sql": "CREATE TABLE posts (id INT PRIMARY KEY, title TEXT)",
  "write": true
}`},
		{Operation: "getDatabaseTables"},
		{Operation: "getDatabaseRows", Query: "table=posts&sort=id&order=desc"},
		{Operation: "exportTable", Query: "table=posts&format=csv", Output: "posts.csv"},
		{Operation: "rotateDatabasePassword"},
		{Operation: "deleteDatabase"},
		{Operation: "updateSite", Body: `{"build": {"command": "sleep 600"}}`},
		{Operation: "deploySite", Keep: []string{"DEPLOYMENT_ID=deploymentId"}},
		{Operation: "cancelDeployment"},
	}},
	{"webhooks", []Step{
		{Operation: "listEvents"},
		{
			Operation: "createWebhook",
			Body: `{
  "url": "https://example.com/webhooks",
  "events": ["deployment.completed", "deployment.failed"]
}`,
			Keep: []string{"WEBHOOK_ID=id"},
		},
		{Operation: "listWebhooks"},
		{Operation: "getWebhook"},
		{Operation: "pingWebhook", Keep: []string{"DELIVERY_ID=deliveryId"}},
		{Operation: "listDeliveries", Query: "limit=25"},
		{Operation: "redeliver"},
		{Operation: "redeliverAll", Body: `{
  "since": "24h",
  "state": "failed"
}`},
		{Operation: "rotateWebhookSecret", Body: `{"overlapSeconds": 86400}`},
		{Operation: "updateWebhook", Body: `{"active": false}`},
		{Operation: "enableWebhook", Body: `{"redeliverSince": "24h"}`},
		{Operation: "deleteWebhook"},
		{
			Operation: "createListener",
			Body: `{
  "events": ["deployment.completed"],
  "secret": "a secret for development"
}`,
			Keep: []string{"LISTENER_ID=id"},
		},
		{Operation: "fetchDeliveries", Query: "after=0"},
		{Operation: "deleteListener"},
	}},
	{"account", []Step{
		{Operation: "getOpenAPI", Output: "openapi.json"},
		{Operation: "getTypeScriptClient", Output: "slipway.ts"},
		{Operation: "getGoClient", Output: "slipway.go"},
		{Operation: "getAccount"},
		{Operation: "getUsage", Query: "meter=bandwidth.bytes&step=1d"},
		{
			Operation: "createKey",
			Body: `{
  "name": "acme/site CI",
  "scopes": ["deployments:write", "sites:read"]
}`,
			Keep: []string{"KEY_ID=id"},
		},
		{Operation: "listKeys"},
		{Operation: "revokeKey"},
		{Operation: "listSignInProviders"},
		{Operation: "unlinkIdentity"},
		{Operation: "listIdentities"},
		{
			Operation: "createConnection",
			Body: `{
  "provider": "gitea",
  "baseUrl": "$GITEA_URL",
  "token": "$GITEA_TOKEN"
}`,
			Keep: []string{"CONNECTION_ID=id"},
		},
		{Operation: "listConnections"},
		{Operation: "findRepositories", Query: "search=site"},
		{Operation: "deleteConnection"},
		{
			Operation: "createChannel",
			Body: `{
  "kind": "slack",
  "name": "Deployments",
  "target": "$SLACK_WEBHOOK_URL"
}`,
			Keep: []string{"CHANNEL_ID=id"},
		},
		{Operation: "listChannels"},
		{Operation: "updateChannel", Body: `{"events": ["deployment.failed"]}`},
		{Operation: "testChannel"},
		{Operation: "deleteChannel"},
		{
			Operation: "createChannel", Body: `{"kind": "email", "target": "team@example.com"}`,
			Keep: []string{"CHANNEL_ID=id"},
		},
		{Operation: "sendConfirmation"},
	}},
	{"uploads", []Step{
		{
			Operation: "createSite", Body: `{"name": "Harbor", "type": "static", "source": "upload"}`,
			Keep: []string{"SITE_ID=data.id"},
		},
		{Operation: "createUpload", Body: `{"kind": "output"}`, Keep: []string{"UPLOAD_ID=id"}},
		{Operation: "putUploadManifest", Upload: "manifest.ndjson"},
		{Operation: "getUpload"},
		{Operation: "getUploadMissing"},
		{Operation: "getUploadBlob"},
		{Operation: "sendUploadPart", Headers: []string{"Upload-Offset: 0"}, Upload: "index.html"},
		{Operation: "sendUploadBlobs", Upload: "files.blobs"},
		{Operation: "putUploadBlob", Upload: "index.html"},
		{
			Operation: "deployUpload",
			Keep:      []string{"DEPLOYMENT_ID=deploymentId"}, Until: [3]string{"/deployments/$DEPLOYMENT_ID", "status", "success"},
		},
		{
			Operation: "createUpload", Body: `{"kind": "output", "branch": "draft"}`,
			Keep: []string{"UPLOAD_ID=id"},
		},
		{Operation: "deleteUpload"},
		{
			Operation: "deployArchive", Query: "kind=output", Upload: "site.zip",
			Keep: []string{"DEPLOYMENT_ID=deploymentId"}, Until: [3]string{"/deployments/$DEPLOYMENT_ID", "status", "success"},
		},
	}},
	{"wordpress", []Step{
		{
			Operation: "createSite", Body: `{"name": "Blog", "type": "wordpress"}`,
			Keep: []string{"SITE_ID=data.id"}, Until: [3]string{"/sites/$SITE_ID", "status", "active"},
		},
		{Operation: "getWordPress"},
		{Operation: "updateWordPress", Body: `{
  "autoUpdate": "minor",
  "php": {"memoryMiB": 256}
}`},
		{Operation: "listWordPressUsers"},
		{
			Operation: "manageWordPressPlugins", Body: `{
  "action": "activate",
  "plugins": ["akismet"]
}`,
			Keep: []string{"OPERATION_ID=id"}, Until: [3]string{"/operations/$OPERATION_ID", "status", "success"},
		},
		{
			Operation: "manageWordPressThemes", Body: `{
  "action": "enable_auto_update",
  "themes": ["twentytwentythree"]
}`,
			Keep: []string{"OPERATION_ID=id"}, Until: [3]string{"/operations/$OPERATION_ID", "status", "success"},
		},
		{
			Operation: "createWordPressUser", Body: `{
  "login": "grace",
  "email": "grace@example.com",
  "role": "editor"
}`,
			Keep: []string{"OPERATION_ID=id"}, Until: [3]string{"/operations/$OPERATION_ID", "status", "success"},
		},
		{
			Operation: "updateWordPressUser", With: map[string]string{"user": "2"}, Body: `{"role": "author"}`,
			Keep: []string{"OPERATION_ID=id"}, Until: [3]string{"/operations/$OPERATION_ID", "status", "success"},
		},
		{ // fails on installations without email
			Operation: "resetWordPressPassword", With: map[string]string{"user": "2"},
			Keep: []string{"OPERATION_ID=id"}, Until: [3]string{"/operations/$OPERATION_ID", "status", "failed"},
		},
		{Operation: "listWordPressCrons"},
		{Operation: "setWordPressRootFiles", Body: `{"files": [{"path": "ads.txt", "content": "google.com, pub-0000000000000000, DIRECT\n"}]}`},
		{Operation: "listWordPressRootFiles"},
		{Operation: "loginWordPress"},
		{
			Operation: "purgeWordPressCache", Body: `{"paths": ["/"]}`,
			Keep: []string{"OPERATION_ID=id"}, Until: [3]string{"/operations/$OPERATION_ID", "status", "success"},
		},
		{
			Operation: "searchReplaceWordPress",
			Body: `{
  "from": "http://old.example.com",
  "to": "https://www.example.com",
  "dryRun": true
}`,
			Keep: []string{"OPERATION_ID=id"}, Until: [3]string{"/operations/$OPERATION_ID", "status", "success"},
		},
		{
			Operation: "cloneSite", Body: `{"name": "Blog staging"}`,
			Keep: []string{"OPERATION_ID=id"}, Until: [3]string{"/operations/$OPERATION_ID", "status", "success"},
		},
		{Operation: "getOperation", Keep: []string{"CLONE_ID=result.siteId"}},
		{
			Operation: "updateWordPressVersions",
			Body: `{
  "core": true,
  "plugins": "all",
  "themes": "all"
}`,
			Keep: []string{"OPERATION_ID=id"}, Until: [3]string{"/operations/$OPERATION_ID", "status", "success"},
		},
		{Operation: "comparePush", Query: "to=$PRODUCTION_ID"},
		{
			Operation: "pushSite", Body: `{
  "to": "$PRODUCTION_ID",
  "files": true,
  "database": true
}`,
			Keep: []string{"OPERATION_ID=id"}, Until: [3]string{"/operations/$OPERATION_ID", "status", "success"},
		},
		{
			Operation: "importWordPress", Upload: "site.tar.gz",
			Keep: []string{"OPERATION_ID=id"}, Until: [3]string{"/operations/$OPERATION_ID", "status", "success"},
		},
	}},
	{"teams", []Step{
		{
			Operation: "createTeam", Body: `{
  "name": "Acme",
  "slug": "acme"
}`,
			Keep: []string{"TEAM_ID=id"},
		},
		{
			Operation: "createKey",
			Body: `{
  "name": "Automation",
  "scopes": ["*"],
  "teamId": "$TEAM_ID"
}`,
			Keep: []string{"TEAM_KEY=key"},
		},
		{Operation: "listTeams"},
		{Operation: "getTeam", Key: teamKey},
		{Operation: "updateTeam", Key: teamKey, Body: `{"name": "Acme Inc."}`},
		{
			Operation: "createInvitation", Key: teamKey,
			Body: `{
  "email": "linus@example.com",
  "role": "developer"
}`,
			Keep: []string{"INVITATION_ID=id"},
		},
		{Operation: "listInvitations", Key: teamKey},
		{Operation: "resendInvitation", Key: teamKey, Keep: []string{"INVITATION_ID=id"}},
		{Operation: "revokeInvitation", Key: teamKey},
		{Operation: "createInvitation", Key: teamKey, Body: `{"email": "grace@example.com", "role": "developer"}`},
		{
			Operation: "acceptInvitation", Key: memberKey, Body: `{"token": "$INVITATION_TOKEN"}`,
			Keep: []string{"MEMBER_ID=member.userId"},
		},
		{Operation: "listMembers", Key: teamKey},
		{Operation: "updateMember", Key: teamKey, Body: `{"role": "contributor"}`},
		{Operation: "setEmergencyOwner", Key: teamKey, Body: `{"enabled": false}`},
		{
			Operation: "createSite", Key: teamKey,
			Body: `{"name": "Team site", "type": "static", "repository": "github.com/acme/site"}`,
			Keep: []string{"SITE_ID=data.id"}, Until: [3]string{"/sites/$SITE_ID", "status", "active"},
		},
		{Operation: "setSiteMember", Key: teamKey, Body: `{"role": "manager"}`},
		{Operation: "listSiteMembers", Key: teamKey},
		{Operation: "removeSiteMember", Key: teamKey},
		{Operation: "getTeamAudit", Key: teamKey, Query: "action=member&limit=25"},
		{Operation: "transferSite", Key: teamKey, Body: `{"to": "linus@example.com"}`, Keep: []string{"TRANSFER_ID=id"}},
		{Operation: "cancelTransfer", Key: teamKey},
		{Operation: "transferSite", Key: teamKey, Body: `{"to": "grace@example.com"}`},
		{Operation: "acceptTransfer", Key: memberKey, Body: `{"code": "$TRANSFER_CODE"}`},
		{Operation: "leaveTeam", Key: memberKey},
		{Operation: "createInvitation", Key: teamKey, Body: `{"email": "grace@example.com", "role": "viewer"}`},
		{
			Operation: "acceptInvitation", Key: memberKey, Body: `{"token": "$INVITATION_TOKEN"}`,
			Keep: []string{"MEMBER_ID=member.userId"},
		},
		{Operation: "removeMember", Key: teamKey},
		{
			Operation: "createTeamProvider", Key: teamKey,
			Body: `{
  "kind": "oidc",
  "name": "Okta",
  "issuer": "https://acme.okta.com",
  "clientId": "0oa1b2c3",
  "clientSecret": "the-secret-from-okta",
  "joinRole": "viewer"
}`,
			Keep: []string{"PROVIDER_ID=id"},
		},
		{Operation: "addTeamDomain", Key: teamKey, Body: `{"domain": "acme.example"}`, Keep: []string{"DOMAIN_ID=id"}},
		{Operation: "verifyTeamDomain", Key: teamKey},
		{Operation: "listTeamProviders", Key: teamKey},
		{Operation: "updateTeamProvider", Key: teamKey, Body: `{"joinRole": null}`},
		{Operation: "deleteTeamDomain", Key: teamKey},
		{Operation: "deleteTeamProvider", Key: teamKey},
		{Operation: "deleteTeam", Key: teamKey, Body: `{"confirm": "acme"}`},
	}},
	{"oauth", []Step{
		{
			Operation: "createApp",
			Body: `{
  "name": "Release bot",
  "redirectUris": ["https://example.com/callback"],
  "confidential": true
}`,
			Keep: []string{"APP_ID=id", "CLIENT_SECRET=clientSecret"},
		},
		{Operation: "listApps"},
		{Operation: "getApp"},
		{Operation: "updateApp", Body: `{"website": "https://example.com"}`},
		{Operation: "rotateAppSecret"},
		{Operation: "listGrants"},
		{Operation: "revokeGrant"},
		{Operation: "deleteApp"},
	}},
}

// Keys of teams and invited members differ from the reader's own.
const (
	teamKey   = "TEAM_KEY"
	memberKey = "MEMBER_KEY"
)
