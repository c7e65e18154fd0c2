package sites

import (
	"cmp"
	"context"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"slipway/internal/build/framework"
	"slipway/internal/git/fetch"
	"slipway/internal/git/forge"
	"slipway/internal/platform/db"
	"slipway/internal/platform/dotenv"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/audit"
	"slipway/internal/tenant/connection"
	"slipway/internal/tenant/site"
	"slipway/internal/web/dashboard/shell"
	"slipway/internal/wordpress/wordpress"
)

// lookTime limits the inspection of a new site's repository.
const lookTime = 45 * time.Second

// pickTime limits listing an account's repositories.
const pickTime = 10 * time.Second

// dropType is the form's type of a site with uploaded files.
const dropType = "upload"

// newData is the form of a new site. One page has all steps and returns the values in each, including the credential,
// which is only stored with the site.
type newData struct {
	Step       int    // 1: source, 2: inspection's result
	Type       string // static, wordpress or upload
	Name       string
	Repository string
	Token      string
	TokenUser  string
	DeployKey  string
	Branch     string
	Connection connection.ID           // connected account that reads it; empty: none
	Accounts   []connection.Connection // selectable accounts
	Search     string
	Found      []connection.Repository // of the selected account; nil: not loaded
	Branches   []string                // nil: not loaded
	Default    string
	Framework  string
	Env        string            // variables in .env format
	Build      map[string]string // root, install, command, output, node; empty: as detected
	Changed    bool              // whether a build setting was entered
	Plan       *planView         // nil: nothing was detected
	PlanWhy    *shell.Problem    // why nothing was detected
	Presets    []framework.Preset
}

// Account returns the selected connected account, or nil.
func (n newData) Account() *connection.Connection {
	for i, c := range n.Accounts {
		if c.ID == n.Connection {
			return &n.Accounts[i]
		}
	}
	return nil
}

// Private reports whether a credential was entered.
func (n newData) Private() bool { return n.Token != "" || n.DeployKey != "" }

// Rest returns the body of the equivalent API call.
func (n newData) Rest() map[string]any {
	if n.Type == dropType {
		return map[string]any{"name": cmp.Or(n.Name, "My site"), "type": site.Static, "source": site.SourceUpload}
	}
	body := map[string]any{"name": cmp.Or(n.Name, "My site"), "type": n.Type}
	if n.Type == string(site.Static) && n.Repository == "" {
		body["repository"] = "github.com/you/site"
	}
	for key, v := range map[string]string{"repository": n.Repository, "branch": n.Branch, "framework": n.Framework} {
		if v != "" {
			body[key] = v
		}
	}
	build := map[string]string{}
	for key, v := range n.Build {
		if v != "" {
			build[key] = v
		}
	}
	if len(build) > 0 {
		body["build"] = build
	}
	if n.Connection != "" {
		body["connectionId"] = string(n.Connection)
	}
	switch {
	case n.DeployKey != "":
		body["credential"] = map[string]any{"deployKey": shell.Variable("DEPLOY_KEY")}
	case n.Token != "":
		body["credential"] = map[string]any{"token": shell.Variable("GIT_TOKEN")}
	}
	return body
}

var buildFields = []string{"root", "install", "command", "output", "node"}

// planView is a plan with display texts.
type planView struct {
	framework.Plan
	InstallText, CommandText string // one line each; empty: no command
}

// Static reports whether the output is served as files.
func (p planView) Static() bool { return p.Runtime == framework.Static }

// StartText returns the program's start command, or "" for static sites.
func (p planView) StartText() string {
	if p.Start == nil || len(p.Start.Command.Argv) == 0 && p.Start.Command.Shell == "" {
		return ""
	}
	return p.Start.Command.String()
}

// Unsupported returns why the output can't be served, or "".
func (p planView) Unsupported() string {
	switch {
	case p.Runtime == framework.PHP:
		return "PHP applications are not supported yet. The deployment will fail."
	case p.Runtime == framework.Node && p.Start == nil:
		return "No start command found. Add a start script to package.json, or set run.command with the API."
	}
	return ""
}

// OutputText returns the served folder.
func (p planView) OutputText() string {
	if o := path.Join(p.Root, p.Output); o != "" && o != "." {
		return o
	}
	return "Repository root"
}

func viewOf(p framework.Plan) planView {
	line := func(list []framework.Command) string {
		var out []string
		for _, c := range list {
			out = append(out, c.String())
		}
		return strings.Join(out, " && ")
	}
	return planView{p, line(p.Install), line(p.Build)}
}

func readNew(q *shell.Request) newData {
	n := newData{
		Step:       1,
		Type:       q.Query("type"),
		Name:       q.Query("name"),
		Repository: strings.TrimSpace(q.Query("repository")),
		Branch:     q.Query("branch"),
		Connection: connection.ID(q.Query("account")),
		Search:     shell.Short(100, q.Query("search")),
		Build:      map[string]string{},
		Presets:    framework.Presets(),
	}
	if q.PostForm != nil {
		n.Type, n.Name, n.Repository = q.Value("type"), strings.TrimSpace(q.Value("name")), strings.TrimSpace(q.Value("repository"))
		n.Token, n.TokenUser = strings.TrimSpace(q.Value("token")), strings.TrimSpace(q.Value("token_user"))
		n.DeployKey = strings.TrimSpace(q.Value("deploy_key"))
		n.Connection, n.Env = connection.ID(q.Value("account")), q.Value("env")
		n.Branch, n.Framework = strings.TrimSpace(q.Value("branch")), q.Value("framework")
		for _, f := range buildFields {
			n.Build[f] = strings.TrimSpace(q.Value("build_" + f))
			n.Changed = n.Changed || n.Build[f] != ""
		}
		n.Changed = n.Changed || n.Framework != ""
		if n.DeployKey != "" {
			n.DeployKey += "\n" // OpenSSH requires a final newline
		}
	}
	if n.Type != string(site.WordPress) && n.Type != dropType {
		n.Type = string(site.Static)
	}
	return n
}

func (n newData) credential() *fetch.Credential {
	if !n.Private() {
		return nil
	}
	return &fetch.Credential{Token: n.Token, User: n.TokenUser, DeployKey: n.DeployKey}
}

func (n newData) build() site.Build {
	some := func(f string) *string {
		if v := n.Build[f]; v != "" {
			return &v
		}
		return nil
	}
	return site.Build{Root: some("root"), Install: some("install"), Command: some("command"), Output: some("output"), Node: some("node")}
}

// newVars caps the variables of a new site. They are sealed for the site's ID inside the transaction that creates it;
// larger files can be imported later.
const newVars = 100

// variables parses the site's first variables. Variables with secret-looking names become secret.
func (n newData) variables() ([]site.NewVar, error) {
	if strings.TrimSpace(n.Env) == "" || n.Type != string(site.Static) {
		return nil, nil
	}
	pairs, err := dotenv.Parse(n.Env)
	if err == nil && len(pairs) > newVars {
		err = fault.New(fault.Invalid, "invalid_env", "Too many variables",
			"a new site takes up to "+strconv.Itoa(newVars)+"; import the others on its Environment page")
	}
	if err != nil {
		return nil, err
	}
	var out []site.NewVar
	for _, p := range pairs {
		out = append(out, site.NewVar{Key: p.Key, Value: p.Value, Secret: dotenv.Secret(p.Key, p.Value)})
	}
	return out, nil
}

// newPage shows the form, after a failure with its values and at the failed step.
func (d *Pages) newPage(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	n := readNew(q)
	if err := d.pick(ctx, q, &n); err != nil {
		return shell.Answer{}, err
	}
	if q.Problem != nil && q.Value("step") == "create" && n.Type == string(site.Static) {
		n.Step = 2
		if err := d.inspect(ctx, q.Caller.Owner, &n); err != nil {
			n.Step = 1 // step 1 shows the problem
		}
	}
	return shell.Page("new_site", "New site", n), nil
}

// newStep handles the form's buttons: "look" inspects the repository, "back" returns to the source, "create" creates
// the site.
func (d *Pages) newStep(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	n := readNew(q)
	if err := d.pick(ctx, q, &n); err != nil {
		return shell.Answer{}, err
	}
	switch step := q.Value("step"); {
	case n.Type != string(site.Static), step == "create":
	case step == "back":
		if repo, err := fetch.ParseRepository(n.Repository); err == nil {
			ours, err := d.Sites.FreeName(ctx, d.DB, q.Caller.Owner, path.Base(repo.Path()))
			if err != nil {
				return shell.Answer{}, err
			}
			if n.Name == ours {
				n.Name = "" // it was derived from the previous repository
			}
		}
		return shell.Page("new_site", "New site", n), nil
	default:
		n.Step = 2
		if err := d.inspect(ctx, q.Caller.Owner, &n); err != nil {
			return shell.Answer{}, err
		}
		return shell.Page("new_site", "New site", n), nil
	}
	if free, err := d.Sites.FreeName(ctx, d.DB, q.Caller.Owner, n.Name); err != nil {
		return shell.Answer{}, err
	} else if free != n.Name {
		return shell.Answer{}, NameTaken(n.Name, free)
	}
	vars, err := n.variables()
	if err != nil {
		return shell.Answer{}, shell.At("env", err)
	}
	kind, source := n.Type, ""
	if n.Type == dropType {
		kind, source = string(site.Static), site.SourceUpload
		n = newData{Type: n.Type, Name: n.Name}
	}
	var s site.Site
	err = d.ActOn(ctx, q, func(tx *db.Tx) (_ audit.Event, err error) {
		s, err = d.Sites.CreateTx(ctx, tx, q.Caller.Owner, site.NewSite{
			Name:       n.Name,
			Type:       kind,
			Source:     source,
			Repository: n.Repository,
			Branch:     n.Branch,
			Framework:  n.Framework,
			Build:      n.build(),
			Credential: n.credential(),
		})
		if err == nil && n.Connection != "" && s.Repository != "" {
			err = d.Connections.UseTx(ctx, tx, q.Caller.Owner, s.ID, s.Repository, connection.Use{
				Connection: n.Connection,
				Report:     true,
			})
		}
		if err == nil && len(vars) > 0 {
			_, err = d.Sites.SetEnvTx(ctx, tx, q.Caller.Owner, s.ID, vars)
			err = shell.At("env", err)
		}
		if err == nil && s.Type == site.WordPress {
			err = d.startWordPress(ctx, tx, q, s)
		}
		return audit.Event{Action: "site.created", Subject: string(s.ID), Detail: s.Name}, err
	})
	if err != nil {
		return shell.Answer{}, AtBuild(err)
	}
	return shell.GoTo("/sites/"+string(s.ID)+"/first", ""), nil
}

// NameTaken refuses another site's name and suggests a free one.
func NameTaken(name, free string) error {
	return shell.At("name", fault.New(fault.Conflict, "name_taken", "You already have a site named "+name,
		"“"+free+"” is free"))
}

// pick loads the connected accounts and the repositories of the selected one. If the provider doesn't respond, it
// leaves the list empty and sets the reason.
func (d *Pages) pick(ctx context.Context, q *shell.Request, n *newData) error {
	if d.Connections == nil || n.Type != string(site.Static) {
		return nil
	}
	var err error
	if n.Accounts, err = d.Connections.List(ctx, d.DB, q.Caller.Owner); err != nil {
		return err
	}
	if len(n.Accounts) == 1 && n.Connection == "" && n.Repository == "" && q.PostForm == nil { // there is only one choice
		n.Connection = n.Accounts[0].ID
	}
	if n.Account() == nil {
		n.Connection = ""
		return nil
	}
	if q.PostForm != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, pickTime)
	defer cancel()
	n.Found, err = d.Connections.Repositories(ctx, q.Caller.Owner, n.Connection, n.Search)
	if fault.As(err) != nil && q.Problem == nil {
		q.Problem, _ = shell.Describe(err, "")
		return nil
	}
	return err
}

// inspect checks access to the repository and detects its framework.
func (d *Pages) inspect(ctx context.Context, who account.OwnerID, n *newData) error {
	if web, ok := forge.ParseWebAddress(n.Repository); ok { // URL of a page of the repository, copied from the browser
		n.Repository = web.Repository
		if n.Branch == "" {
			n.Branch = web.Branch
		}
		if n.Build["root"] == "" {
			n.Build["root"] = web.Dir
		}
	}
	repo, err := fetch.ParseRepository(n.Repository)
	if err != nil {
		return shell.At("repository", err)
	}
	credential := n.credential()
	if credential == nil && n.Connection != "" {
		if credential, err = d.Connections.CredentialFor(ctx, who, n.Connection, repo.String()); err != nil {
			return shell.At("repository", err)
		}
	}
	n.Repository = repo.String()
	if n.Name == "" {
		if n.Name, err = d.Sites.FreeName(ctx, d.DB, who, path.Base(repo.Path())); err != nil {
			return err
		}
	}
	if d.Repositories == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	if n.Branches, n.Default, err = d.Repositories.Branches(ctx, who, n.Repository, credential); err != nil {
		return atRepository(ctx, err)
	}
	if len(n.Branches) == 0 {
		return shell.At("repository", fault.New(fault.Invalid, "", "The repository has no branches",
			"push a commit first"))
	}
	if !slices.Contains(n.Branches, n.Branch) {
		n.Branch = n.Default
		if n.Branch == "" {
			n.Branch = n.Branches[0]
		}
	}
	o := framework.Overrides{
		Root:    n.build().Root,
		Install: n.build().Install,
		Command: n.build().Command,
		Output:  n.build().Output,
		Node:    n.build().Node,
	}
	if n.Framework != "" {
		o.Framework = &n.Framework
	}
	plan, err := d.Repositories.Detect(ctx, who, n.Repository, n.Branch, credential, o)
	switch {
	case err == nil:
		v := viewOf(plan)
		n.Plan = &v
	case fault.As(err) != nil: // don't block the owner, who may know better
		n.PlanWhy, _ = shell.Describe(err, "")
	case ctx.Err() != nil:
		n.PlanWhy = &shell.Problem{Message: "Detection timed out", Details: "deploy the site to see the detected settings in the log"}
	default:
		return err
	}
	return nil
}

// atRepository assigns a failed inspection to a form field.
func atRepository(ctx context.Context, err error) error {
	if fault.As(err) == nil && ctx.Err() == context.DeadlineExceeded {
		err = &fault.Error{
			Kind:       fault.Unavailable,
			Message:    "Repository timed out",
			Details:    "try again in a moment",
			RetryAfter: 5 * time.Second,
		}
	}
	if f := fault.As(err); f != nil && f.Code == "credential_refused" {
		return shell.At("credential", err)
	}
	return shell.At("repository", err)
}

// AtBuild assigns a fault to a build setting's field.
func AtBuild(err error) error {
	if f := fault.As(err); f != nil && f.Code == "invalid_build" {
		for _, name := range buildFields {
			if strings.HasPrefix(f.Message, "build."+name+" ") {
				shown := *f
				shown.Message = "This" + strings.TrimPrefix(f.Message, "build."+name)
				return shell.At("build_"+name, &shown)
			}
		}
	}
	return err
}

// startWordPress stores the settings of a WordPress site created in tx.
func (d *Pages) startWordPress(ctx context.Context, tx *db.Tx, q *shell.Request, s site.Site) error {
	u, err := d.Accounts.User(ctx, q.Caller.User)
	if err != nil {
		return err
	}
	return d.WordPress.CreateTx(ctx, tx, s, wordpress.Settings{Locale: strings.TrimSpace(q.Value("locale"))}, u.Email)
}

// Repositories inspects a repository before a site is created. It is implemented by git.Look.
type Repositories interface {
	// Branches returns a repository's branches and default branch, or a fault if they can't be read.
	Branches(
		ctx context.Context, who account.OwnerID, repository string, c *fetch.Credential,
	) (branches []string, byDefault string, err error)
	// Detect returns the build plan of a branch.
	Detect(
		ctx context.Context, who account.OwnerID, repository, branch string, c *fetch.Credential,
		o framework.Overrides,
	) (framework.Plan, error)
}
