package configure

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"slipway/internal/platform/db"
	"slipway/internal/platform/dotenv"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/text"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/audit"
	"slipway/internal/tenant/site"
	"slipway/internal/web/dashboard/shell"
	"slipway/internal/web/dashboard/sites"
)

const varsPerPage = 100

func (d *Pages) envRoutes() []shell.Route {
	return []shell.Route{
		shell.Get("/sites/{id}/env", shell.User, d.envPage).Takes(account.EnvRead),
		shell.Post("/sites/{id}/env", shell.User, d.setVar, d.envPage).Takes(account.EnvWrite),
		shell.Post("/sites/{id}/env/delete", shell.User, d.deleteVars, d.envPage).Takes(account.EnvWrite),
		shell.Get("/sites/{id}/env/import", shell.User, d.importPage).Takes(account.EnvWrite),
		shell.Post("/sites/{id}/env/import", shell.User, d.importEnv, d.importPage).Takes(account.EnvWrite),
		shell.Get("/sites/{id}/env/export", shell.User, d.exportEnv).Takes(account.EnvRead),
		shell.Get("/sites/{id}/env/var/{var}", shell.User, d.varPage).Takes(account.EnvRead),
		shell.Post("/sites/{id}/env/var/{var}", shell.User, d.changeVar, d.varPage).Takes(account.EnvWrite),
		shell.Post("/sites/{id}/env/var/{var}/delete", shell.User, d.deleteVar, d.varPage).Takes(account.EnvWrite),
	}
}

type envData struct {
	sites.SiteHead
	Vars  []site.Var // on this page
	Total int
	Pages shell.Pages
}

// SecretName, PublicName and SecretValue return patterns for the page's script.
func (envData) SecretName() string  { return dotenv.SecretName }
func (envData) PublicName() string  { return dotenv.PublicName }
func (envData) SecretValue() string { return dotenv.SecretValue }

// Both reports whether a variable is for builds and the running site.
func (e envData) Both(v site.Var) bool { return e.Only(v) == "" }

// Only returns build or runtime if a variable is limited to it, otherwise "".
func (envData) Only(v site.Var) string {
	build, runtime := slices.Contains(v.Target, "build"), slices.Contains(v.Target, "runtime")
	switch {
	case build && !runtime:
		return "build"
	case runtime && !build:
		return "runtime"
	}
	return ""
}

func (d *Pages) envPage(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	head, err := d.Head(ctx, q, "env")
	if err != nil {
		return shell.Answer{}, err
	}
	all, err := d.Sites.Env(ctx, q.Caller.Owner, head.Site.ID)
	if err != nil {
		return shell.Answer{}, err
	}
	n := shell.PageNumber(q)
	from := min((n-1)*varsPerPage, len(all))
	return shell.Page("site_env", "Environment of "+head.Site.Name, envData{
		head, all[from:min(from+varsPerPage, len(all))], len(all),
		shell.Turn(n, len(all), varsPerPage, func(p int) string { return head.Base() + "/env?page=" + strconv.Itoa(p) }),
	}), nil
}

// scopeOf reads a variable's deployments (production, preview or all) and branch pattern, which the form only has for
// previews.
func scopeOf(q *shell.Request) (scope []string, branch string) {
	switch q.Value("scope") {
	case "production":
		return []string{"production"}, ""
	case "preview":
		return []string{"preview"}, ""
	case "branch":
		return []string{"preview"}, strings.TrimSpace(q.Value("env_branch"))
	}
	return nil, ""
}

// targetsOf reads a variable's targets. The service refuses an empty list.
func targetsOf(q *shell.Request) []string {
	out := []string{}
	for _, t := range []string{"build", "runtime"} {
		if slices.Contains(q.PostForm["target"], t) {
			out = append(out, t)
		}
	}
	return out
}

func (d *Pages) setVar(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	head, err := d.Head(ctx, q, "env")
	if err != nil {
		return shell.Answer{}, err
	}
	vars, err := d.Sites.Env(ctx, q.Caller.Owner, head.Site.ID)
	if err != nil {
		return shell.Answer{}, err
	}
	key := q.Value("key")
	n := site.NewVar{Key: key, Value: q.Value("value"), Secret: q.Checked("secret"), Target: targetsOf(q)}
	scope, branch := scopeOf(q)
	n.Branch = branch
	if branch == "" && q.Value("scope") == "branch" {
		return shell.Answer{}, shell.At("env_branch", &fault.Error{Kind: fault.Invalid, Message: "Enter a branch or a pattern such as feature/*"})
	}
	if len(n.Target) > 0 {
		n.Target = append(n.Target, scope...)
	}
	if slices.ContainsFunc(vars, func(v site.Var) bool {
		same := len(scope) == 0 || v.Scope() == "" || slices.Contains(scope, v.Scope())
		return v.Key == key && v.Branch == branch && (branch != "" || same)
	}) {
		return shell.Answer{}, shell.At("key", fault.New(fault.Conflict, "",
			"A variable with this name already exists", "edit it or choose another name"))
	}
	err = d.setVars(ctx, q, head.Site.ID, []site.NewVar{n})
	if err != nil {
		return shell.Answer{}, shell.At(varField(err), err)
	}
	return d.thenDeploy(ctx, q, shell.GoTo(head.Base()+"/env", "Added "+key))
}

// thenDeploy deploys if the form's button requests it. The change stays if the deployment can't start; the resulting
// page then says why.
func (d *Pages) thenDeploy(ctx context.Context, q *shell.Request, done shell.Answer) (shell.Answer, error) {
	if q.Value("then") != "deploy" {
		return done, nil
	}
	watch, err := d.DeploySite(ctx, q)
	if f := fault.As(err); f != nil {
		return shell.GoTo(done.To, done.Flash+". Not deployed: "+f.Message), nil
	}
	return watch, err
}

// varField returns the form field of a fault.
func varField(err error) string {
	f := fault.As(err)
	switch {
	case f == nil:
		return ""
	case f.Message == "The variable has no target":
		return "target"
	case f.Message == "Invalid branch pattern":
		return "env_branch"
	case f.Received == nil:
		return "value"
	}
	return "key"
}

func (d *Pages) setVars(ctx context.Context, q *shell.Request, id site.ID, vars []site.NewVar) error {
	sealed, err := d.Sites.SealEnv(id, vars)
	if err != nil {
		return err
	}
	return d.ActOn(ctx, q, func(tx *db.Tx) (audit.Event, error) {
		_, err := d.Sites.SetSealedEnvTx(ctx, tx, q.Caller.Owner, id, sealed)
		detail := text.Count(len(vars), "variable")
		if len(vars) == 1 {
			detail = vars[0].Key
		}
		return audit.Event{Action: "env.set", Subject: string(id), Detail: detail}, err
	})
}

type varData struct {
	sites.SiteHead
	Var site.Var
}

// Sees reports whether the variable has a target.
func (v varData) Sees(target string) bool { return slices.Contains(v.Var.Target, target) }

// variable loads the variable selected in the URL.
func (d *Pages) variable(ctx context.Context, q *shell.Request) (varData, error) {
	head, err := d.Head(ctx, q, "env")
	if err != nil {
		return varData{}, err
	}
	all, err := d.Sites.Env(ctx, q.Caller.Owner, head.Site.ID)
	if err != nil {
		return varData{}, err
	}
	for _, v := range all {
		if v.ID == q.PathValue("var") || v.Key == q.PathValue("var") {
			return varData{head, v}, nil
		}
	}
	return varData{}, fault.Missing("variable")
}

func (d *Pages) varPage(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	data, err := d.variable(ctx, q)
	data.Sub = data.Var.Key
	return shell.Page("site_var", data.Var.Key, data), err
}

// changeVar updates a variable. An empty value leaves a secret unchanged.
func (d *Pages) changeVar(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	data, err := d.variable(ctx, q)
	if err != nil {
		return shell.Answer{}, err
	}
	secret := q.Checked("secret")
	scope, branch := scopeOf(q)
	p := site.PatchVar{Secret: &secret, Target: targetsOf(q), Branch: &branch}
	if len(p.Target) > 0 {
		p.Target = append(p.Target, scope...)
	}
	if branch == "" && q.Value("scope") == "branch" {
		return shell.Answer{}, shell.At("env_branch", &fault.Error{Kind: fault.Invalid, Message: "Enter a branch or a pattern such as feature/*"})
	}
	if value := q.Value("value"); !data.Var.Secret || value != "" {
		p.Value = &value
	}
	err = d.ActOn(ctx, q, func(tx *db.Tx) (audit.Event, error) {
		_, err := d.Sites.UpdateEnvTx(ctx, tx, q.Caller.Owner, data.Site.ID, data.Var.ID, p)
		return audit.Event{Action: "env.set", Subject: string(data.Site.ID), Detail: data.Var.Key}, err
	})
	if err != nil {
		return shell.Answer{}, shell.At(varField(err), err)
	}
	return d.thenDeploy(ctx, q, shell.GoTo(data.Base()+"/env", "Updated "+data.Var.Key))
}

func (d *Pages) deleteVar(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	data, err := d.variable(ctx, q)
	if err != nil {
		return shell.Answer{}, err
	}
	err = d.ActOn(ctx, q, func(tx *db.Tx) (audit.Event, error) {
		return audit.Event{Action: "env.deleted", Subject: string(data.Site.ID), Detail: data.Var.Key},
			d.Sites.DeleteEnvTx(ctx, tx, q.Caller.Owner, data.Site.ID, data.Var.ID)
	})
	return shell.GoTo(data.Base()+"/env", "Deleted "+data.Var.Key), err
}

// deleteVars deletes the selected variables, all or none.
func (d *Pages) deleteVars(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	head, err := d.Head(ctx, q, "env")
	if err != nil {
		return shell.Answer{}, err
	}
	ids := q.PostForm["var"]
	if len(ids) == 0 || len(ids) > varsPerPage {
		return shell.Answer{}, fault.New(fault.Invalid, "", "No variables selected",
			"select 1 to "+strconv.Itoa(varsPerPage)+" variables to delete")
	}
	slices.Sort(ids)
	ids = slices.Compact(ids)
	err = d.ActOn(ctx, q, func(tx *db.Tx) (audit.Event, error) {
		for _, id := range ids {
			if err := d.Sites.DeleteEnvTx(ctx, tx, q.Caller.Owner, head.Site.ID, id); err != nil {
				return audit.Unchanged, err
			}
		}
		return audit.Event{Action: "env.deleted", Subject: string(head.Site.ID), Detail: text.Count(len(ids), "variable")}, nil
	})
	return shell.GoTo(head.Base()+"/env", "Deleted "+text.Count(len(ids), "variable")), err
}

// exportEnv downloads the variables as a .env file, with secrets' names but not their values.
func (d *Pages) exportEnv(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	head, err := d.Head(ctx, q, "env")
	if err != nil {
		return shell.Answer{}, err
	}
	all, err := d.Sites.Env(ctx, q.Caller.Owner, head.Site.ID)
	if err != nil {
		return shell.Answer{}, err
	}
	vars := make([]dotenv.Var, len(all))
	for i, v := range all {
		vars[i] = dotenv.Var{Key: v.Key, Value: v.Value, Secret: v.Secret}
	}
	text := "# Environment of " + shell.Clean(head.Site.Name) + "\n" + dotenv.Format(vars)
	return shell.Raw(func(w http.ResponseWriter) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("Content-Disposition", `attachment; filename="`+head.Site.Slug+`.env"`)
		fmt.Fprint(w, text)
	}), nil
}
