package mcp

import (
	"context"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"slipway/internal/tenant/account"
)

// tool is a tool's definition.
type tool struct {
	name   string
	scope  account.Scope // scope the caller needs. Empty: any credential.
	reads  bool
	shown  sdk.Tool
	schema *jsonschema.Resolved
	do     func(ctx context.Context, c *call, args map[string]any) (any, error)
}

// param is an argument of a tool, with the API's name.
type param struct {
	name, about string
	kind        string // JSON type. Optional: string.
	pattern     string // Optional.
	values      string // allowed values, separated by spaces. Optional.
	required    bool
	max         int // characters, or the greatest number. Optional: 300.
}

// The kinds of tools, from which clients decide what to confirm with their user.
const (
	reading = iota
	adding
	replacing // changes what visitors see, or replaces something
)

// Arguments shared by many tools. An ID only allows the API's characters, so that it can't change the path.
var (
	site       = id("site", "Site id, site_…")
	deployment = id("deployment", "Deployment id, dep_…")
	domain     = id("domain", "Domain id, dom_…")
	backup     = id("backup", "Backup id, bkp_…")
	cursor     = param{name: "cursor", about: "nextCursor of the previous result.", pattern: `^[0-9]{1,9}(\.[0-9]{1,3})?$`}
	since      = param{name: "since", about: "A time (RFC 3339) or an age such as 90m, 24h or 7d.", max: 40}
	once       = param{
		name: "idempotencyKey", about: "Repeat a call with the same key to get the same result instead of acting twice.",
		pattern: `^[A-Za-z0-9_.:-]{1,200}$`,
	}
)

func id(name, about string) param {
	return param{name: name, about: about, pattern: `^[A-Za-z0-9_]{1,100}$`, required: true}
}

// allTools returns the tools. Their descriptions are constants, and a test knows their digest, since clients ask their
// user again when one changes. No tool reveals secrets or creates credentials. Irreversible calls require confirmation
// by a person.
func allTools() []*tool {
	return []*tool{
		entry("whoami", "", reading, "Show the credential",
			"Shows which account this connection acts for, its scopes and its sites.", whoami),
		entry("list_sites", account.SitesRead, reading, "List sites", "Lists sites, newest first.", pages("/sites"), cursor),
		entry("get_site", account.SitesRead, reading, "Get a site",
			"Reads a site: its status, URL, repository, domains and certificate.", request("GET", "/sites/{site}"),
			site),
		entry("list_deployments", account.DeploymentsRead, reading, "List deployments",
			"Lists a site's deployments, newest first.", pages("/sites/{site}/deployments"), site, cursor,
			param{name: "branch", about: "Only deployments of this branch."},
			param{name: "target", about: "Only deployments for this target.", values: "production preview"},
			param{
				name: "status", about: "Only deployments with this status.",
				values: "pending building deploying success failed canceled",
			}),
		entry("get_deployment", account.DeploymentsRead, reading, "Get a deployment",
			"Reads a deployment with the last lines of its log: why it failed, its stages and its URL.", getDeployment,
			deployment),
		entry("get_build_log", account.DeploymentsRead, reading, "Get a build log",
			"Reads the last 200 lines of a deployment's log; with cursor, the lines after it. Cursor 0 is the beginning.",
			buildLog, deployment, cursor),
		entry("search_logs", account.SitesRead, reading, "Search application logs",
			"Reads the latest lines that a site's application printed.", siteLog, site, since, cursor,
			param{name: "search", about: "Only lines that contain this text, ignoring case.", max: 200},
			param{name: "level", about: "Only lines of this level.", values: "debug info warn error"},
			param{name: "stream", about: "Only lines of this stream.", values: "stdout stderr system"},
			param{
				name:  "process",
				about: "Only lines of this process: web, worker:name, cron:name, release or command.", max: 64,
			}),
		entry("get_metrics", account.SitesRead, reading, "Get application metrics",
			"Reads requests, response times, memory and CPU of a site's application.",
			request("GET", "/sites/{site}/metrics"), site, since),
		entry("get_traffic", account.SitesRead, reading, "Get traffic", "Reads a site's requests and bytes over time.",
			request("GET", "/sites/{site}/traffic"), site, since),
		entry("list_domains", account.DomainsRead, reading, "List domains", "Lists a site's domains.",
			pages("/sites/{site}/domains"), site, cursor),
		entry("get_domain", account.DomainsRead, reading, "Diagnose a domain",
			"Reads a domain: which DNS records it needs, what was found, and its certificate.",
			request("GET", "/domains/{domain}"), domain),
		entry("list_env", account.EnvRead, reading, "List environment variables",
			"Lists the names and targets of a site's variables, without values.", pages("/sites/{site}/env"), site,
			cursor),
		entry("list_databases", account.SitesRead, reading, "List databases",
			"Lists a site's databases and their sizes.", pages("/sites/{site}/databases"), site, cursor),
		entry("list_backups", account.BackupsRead, reading, "List backups", "Lists a site's backups, newest first.",
			pages("/sites/{site}/backups"), site, cursor),
		entry("deploy", account.PreviewsWrite, adding, "Deploy a site",
			"Builds the latest commit of a branch and makes it live: production for the production branch, else a preview. "+
				"Returns at once; read the deployment for its progress.",
			request("POST", "/sites/{site}/deploy"), site, once,
			param{name: "branch", about: "Default: the production branch."},
			param{name: "commit", about: "Full id of a commit of the branch. Default: the latest.", pattern: `^[0-9a-f]{40,64}$`},
			param{name: "target", about: "Default: production for the production branch, else preview.", values: "production preview"},
			param{name: "clearCache", about: "Build without the cache.", kind: "boolean"},
			param{name: "title", about: "Title of the deployment.", max: 200}),
		entry("retry_deployment", account.PreviewsWrite, adding, "Redeploy",
			"Builds the same commit again, for the same target.", request("POST", "/deployments/{deployment}/retry"),
			deployment, once),
		entry("cancel_deployment", account.PreviewsWrite, adding, "Cancel a deployment",
			"Cancels a deployment that waits or runs. What is live stays.",
			request("POST", "/deployments/{deployment}/cancel"), deployment, once),
		entry("rollback", account.DeploymentsWrite, replacing, "Roll back",
			"Makes an earlier deployment live again, at once and without building. Without deploymentId, the one before the current one.",
			request("POST", "/sites/{site}/rollback"), site, once,
			param{name: "deploymentId", about: "The deployment to return to.", pattern: `^[A-Za-z0-9_]{1,100}$`}),
		entry("promote", account.DeploymentsWrite, replacing, "Promote a preview",
			"Makes a successful preview live, without building it again.",
			request("POST", "/deployments/{deployment}/promote"), deployment, once),
		entry("set_env", account.EnvWrite, replacing, "Set an environment variable",
			"Sets a variable of a site, and replaces its value if there is one. Takes effect on the next deployment.",
			request("POST", "/sites/{site}/env"), site, once,
			param{name: "key", about: "Letters, digits and underscores.", pattern: `^[A-Za-z_][A-Za-z0-9_]*$`, required: true},
			param{name: "value", about: "The value.", max: 32 << 10, required: true},
			param{name: "secret", about: "Never show the value again, and redact it from logs.", kind: "boolean"}),
		entry("add_domain", account.DomainsWrite, adding, "Add a domain",
			"Adds a domain to a site. The result says which DNS records it needs.",
			request("POST", "/sites/{site}/domains"), site, once,
			param{name: "name", about: "A host name, or a wildcard such as *.example.com.", max: 253, required: true},
			param{name: "redirectTo", about: "Redirect visitors to this host.", max: 253}),
		entry("verify_domain", account.DomainsWrite, adding, "Check a domain now", "Checks a domain's DNS records now.",
			request("POST", "/domains/{domain}/verify"), domain, once),
		entry("create_backup", account.BackupsWrite, adding, "Create a backup", "Backs a site up.",
			request("POST", "/sites/{site}/backups"), site, once,
			param{name: "note", about: "Note shown with the backup.", max: 500}),
		confirmed("delete_site", account.SitesWrite, "Delete a site",
			"Deletes a site with its deployments, domains, databases and files.", "/sites/{site}",
			request("DELETE", "/sites/{site}"), site,
			param{
				name: "backup", about: "Back up the site first, and keep the backup for 30 days.",
				values: "true false", required: true,
			}),
		confirmed("remove_domain", account.DomainsWrite, "Remove a domain", "Removes a domain from its site, at once.",
			"/domains/{domain}", request("DELETE", "/domains/{domain}"), domain),
		confirmed("unset_env", account.EnvWrite, "Delete an environment variable",
			"Deletes a variable of a site for every target.", "/sites/{site}",
			request("DELETE", "/sites/{site}/env/{key}"), site,
			param{name: "key", about: "Letters, digits and underscores.", pattern: `^[A-Za-z_][A-Za-z0-9_]*$`, required: true}),
		confirmed("restore_backup", account.BackupsWrite, "Restore a backup",
			"Replaces the site's files, database and settings by those of a backup. The current state is backed up first.",
			"/backups/{backup}", request("POST", "/backups/{backup}/restore"), backup),
		confirmed("delete_backup", account.BackupsWrite, "Delete a backup", "Deletes a backup.", "/backups/{backup}",
			request("DELETE", "/backups/{backup}"), backup),
		confirmed("run_command", account.SitesWrite, "Run a command",
			"Runs a command once in the files of the site's live deployment, with its variables. Its output is in the application's log.",
			"/sites/{site}", request("POST", "/sites/{site}/commands"), site,
			param{name: "command", about: "Run without a shell unless it needs one.", max: 4096, required: true}),
	}
}

type work = func(ctx context.Context, c *call, args map[string]any) (any, error)

func entry(name string, scope account.Scope, kind int, title, about string, do work, params ...param) *tool {
	in := &jsonschema.Schema{
		Type: "object", Properties: map[string]*jsonschema.Schema{},
		AdditionalProperties: &jsonschema.Schema{Not: &jsonschema.Schema{}},
	}
	for _, p := range params {
		in.Properties[p.name] = p.schema()
		if p.required {
			in.Required = append(in.Required, p.name)
		}
	}
	schema, err := in.Resolve(nil)
	if err != nil {
		panic(err) // an invalid definition
	}
	no, destroys := false, kind == replacing
	hints := &sdk.ToolAnnotations{Title: title, ReadOnlyHint: kind == reading, IdempotentHint: kind != adding, OpenWorldHint: &no}
	if kind != reading {
		hints.DestructiveHint = &destroys
	}
	return &tool{
		name: name, scope: scope, reads: kind == reading, schema: schema, do: do,
		shown: sdk.Tool{Name: name, Title: title, Description: about, InputSchema: in, Annotations: hints},
	}
}

func (p param) schema() *jsonschema.Schema {
	s := &jsonschema.Schema{Type: p.kind, Description: p.about, Pattern: p.pattern}
	if s.Type == "" {
		s.Type = "string"
		limit := p.max
		if limit == 0 {
			limit = 300
		}
		s.MaxLength = &limit
	}
	for _, v := range strings.Fields(p.values) {
		s.Enum = append(s.Enum, v)
	}
	return s
}
