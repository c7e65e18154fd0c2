package dashboard

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/text"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/site"
)

const varsPerPage = 100

func (d *Dashboard) envRoutes() []route {
	return []route{
		get("/sites/{id}/env", user, d.envPage),
		post("/sites/{id}/env", user, d.setVar, d.envPage),
		get("/sites/{id}/env/import", user, d.importPage),
		post("/sites/{id}/env/import", user, d.importEnv, d.importPage),
		get("/sites/{id}/env/export", user, d.exportEnv),
		get("/sites/{id}/env/var/{var}", user, d.varPage),
		post("/sites/{id}/env/var/{var}", user, d.changeVar, d.varPage),
		post("/sites/{id}/env/var/{var}/delete", user, d.deleteVar, d.varPage),
	}
}

type envData struct {
	siteHead
	Vars  []site.Var // of this page
	Total int
	Pages pages
}

// VarPath is where one variable is edited.
func (h siteHead) VarPath(v site.Var) string {
	name := v.Key
	if v.Scope() != "" { // there may be two
		name = v.ID
	}
	return h.Base() + "/env/var/" + url.PathEscape(name)
}

// Both reports whether a variable is for builds and for the running site.
func (e envData) Both(v site.Var) bool { return e.Only(v) == "" }

// Only names the one of builds and the running site that sees a variable; empty for both.
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

func (d *Dashboard) envPage(ctx context.Context, q *request) (answer, error) {
	head, err := d.head(ctx, q, "env")
	if err != nil {
		return answer{}, err
	}
	all, err := d.Sites.Env(ctx, q.caller.Owner, head.Site.ID)
	if err != nil {
		return answer{}, err
	}
	n := pageNumber(q)
	from := min((n-1)*varsPerPage, len(all))
	return page("site_env", "Environment of "+head.Site.Name, envData{
		head, all[from:min(from+varsPerPage, len(all))], len(all),
		turn(n, len(all), varsPerPage, func(p int) string { return head.Base() + "/env?page=" + strconv.Itoa(p) }),
	}), nil
}

// scopeOf reads which deployments see a variable: production, preview, or all; and the
// pattern of branches, which the form asks for only with previews.
func scopeOf(q *request) (scope []string, branch string) {
	switch q.value("scope") {
	case "production":
		return []string{"production"}, ""
	case "preview":
		return []string{"preview"}, ""
	case "branch":
		return []string{"preview"}, strings.TrimSpace(q.value("env_branch"))
	}
	return nil, ""
}

// Scopes are the choices of scopeOf in people's words.
func (h siteHead) Scopes() [][2]string {
	return [][2]string{
		{"all", "Production and previews"},
		{"production", "Production"},
		{"preview", "Previews"},
		{"branch", "Previews of branches"},
	}
}

// ScopeOf is which of Scopes a variable has.
func (h siteHead) ScopeOf(v site.Var) string {
	switch {
	case v.Branch != "":
		return "branch"
	case v.Scope() == "":
		return "all"
	}
	return v.Scope()
}

// ScopeTag says which deployments see a variable; empty where all do.
func (h siteHead) ScopeTag(v site.Var) string {
	switch {
	case v.Branch != "":
		return "Previews of " + v.Branch
	case v.Scope() == "production":
		return "Production"
	case v.Scope() == "preview":
		return "Previews"
	}
	return ""
}

// targetsOf reads the boxes that say who sees a variable; none is an error of the service.
func targetsOf(q *request) []string {
	out := []string{}
	for _, t := range []string{"build", "runtime"} {
		if slices.Contains(q.PostForm["target"], t) {
			out = append(out, t)
		}
	}
	return out
}

func (d *Dashboard) setVar(ctx context.Context, q *request) (answer, error) {
	head, err := d.head(ctx, q, "env")
	if err != nil {
		return answer{}, err
	}
	vars, err := d.Sites.Env(ctx, q.caller.Owner, head.Site.ID)
	if err != nil {
		return answer{}, err
	}
	key := q.value("key")
	n := site.NewVar{Key: key, Value: q.value("value"), Secret: q.checked("secret"), Target: targetsOf(q)}
	scope, branch := scopeOf(q)
	if n.Branch = branch; branch == "" && q.value("scope") == "branch" {
		return answer{}, at("env_branch", &fault.Error{Kind: fault.Invalid, Message: "Enter a branch or a pattern such as feature/*"})
	}
	if len(n.Target) > 0 {
		n.Target = append(n.Target, scope...)
	}
	if slices.ContainsFunc(vars, func(v site.Var) bool {
		same := len(scope) == 0 || v.Scope() == "" || slices.Contains(scope, v.Scope())
		return v.Key == key && v.Branch == branch && (branch != "" || same)
	}) {
		return answer{}, at("key", &fault.Error{
			Kind:    fault.Conflict,
			Message: "A variable with this name already exists",
			Details: "edit it or choose another name",
		})
	}
	err = d.setVars(ctx, q, head.Site.ID, []site.NewVar{n})
	if err != nil {
		return answer{}, at(varField(err), err)
	}
	return d.thenDeploy(ctx, q, goTo(head.Base()+"/env", "Added "+key))
}

// thenDeploy puts a change in force where the button that made it says so. The change
// stays when no deployment can be asked for; the page it leads to then says why.
func (d *Dashboard) thenDeploy(ctx context.Context, q *request, done answer) (answer, error) {
	if q.value("then") != "deploy" {
		return done, nil
	}
	watch, err := d.deploySite(ctx, q)
	if f := fault.As(err); f != nil {
		return goTo(done.to, done.flash+". Not deployed: "+f.Message), nil
	}
	return watch, err
}

// varField says at which field a fault about a variable belongs.
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

func (d *Dashboard) setVars(ctx context.Context, q *request, id site.ID, vars []site.NewVar) error {
	sealed, err := d.Sites.SealEnv(id, vars)
	if err != nil {
		return err
	}
	return d.actOn(ctx, q, func(tx *db.Tx) (account.AuditEvent, error) {
		_, err := d.Sites.SetSealedEnvTx(ctx, tx, q.caller.Owner, id, sealed)
		detail := text.Count(len(vars), "variable")
		if len(vars) == 1 {
			detail = vars[0].Key
		}
		return account.AuditEvent{Action: "env.set", Subject: string(id), Detail: detail}, err
	})
}

type varData struct {
	siteHead
	Var site.Var
}

// Sees reports whether the variable has a target.
func (v varData) Sees(target string) bool { return slices.Contains(v.Var.Target, target) }

// variable loads one variable of the asker's own site.
func (d *Dashboard) variable(ctx context.Context, q *request) (varData, error) {
	head, err := d.head(ctx, q, "env")
	if err != nil {
		return varData{}, err
	}
	all, err := d.Sites.Env(ctx, q.caller.Owner, head.Site.ID)
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

func (d *Dashboard) varPage(ctx context.Context, q *request) (answer, error) {
	data, err := d.variable(ctx, q)
	return page("site_var", data.Var.Key, data), err
}

// changeVar changes one variable. The value of a secret one that is left empty stays.
func (d *Dashboard) changeVar(ctx context.Context, q *request) (answer, error) {
	data, err := d.variable(ctx, q)
	if err != nil {
		return answer{}, err
	}
	secret := q.checked("secret")
	scope, branch := scopeOf(q)
	p := site.PatchVar{Secret: &secret, Target: targetsOf(q), Branch: &branch}
	if len(p.Target) > 0 {
		p.Target = append(p.Target, scope...)
	}
	if branch == "" && q.value("scope") == "branch" {
		return answer{}, at("env_branch", &fault.Error{Kind: fault.Invalid, Message: "Enter a branch or a pattern such as feature/*"})
	}
	if value := q.value("value"); !data.Var.Secret || value != "" {
		p.Value = &value
	}
	err = d.actOn(ctx, q, func(tx *db.Tx) (account.AuditEvent, error) {
		_, err := d.Sites.UpdateEnvTx(ctx, tx, q.caller.Owner, data.Site.ID, data.Var.ID, p)
		return account.AuditEvent{Action: "env.set", Subject: string(data.Site.ID), Detail: data.Var.Key}, err
	})
	if err != nil {
		return answer{}, at(varField(err), err)
	}
	return d.thenDeploy(ctx, q, goTo(data.Base()+"/env", "Updated "+data.Var.Key))
}

func (d *Dashboard) deleteVar(ctx context.Context, q *request) (answer, error) {
	data, err := d.variable(ctx, q)
	if err != nil {
		return answer{}, err
	}
	err = d.actOn(ctx, q, func(tx *db.Tx) (account.AuditEvent, error) {
		return account.AuditEvent{Action: "env.deleted", Subject: string(data.Site.ID), Detail: data.Var.Key},
			d.Sites.DeleteEnvTx(ctx, tx, q.caller.Owner, data.Site.ID, data.Var.ID)
	})
	return goTo(data.Base()+"/env", "Deleted "+data.Var.Key), err
}

// exportEnv is every readable variable as a .env file. Secrets are named, not told.
func (d *Dashboard) exportEnv(ctx context.Context, q *request) (answer, error) {
	head, err := d.head(ctx, q, "env")
	if err != nil {
		return answer{}, err
	}
	all, err := d.Sites.Env(ctx, q.caller.Owner, head.Site.ID)
	if err != nil {
		return answer{}, err
	}
	text := "# Environment of " + clean(head.Site.Name) + "\n" + formatEnv(all)
	return answer{raw: func(w http.ResponseWriter) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("Content-Disposition", `attachment; filename="`+head.Site.Slug+`.env"`)
		fmt.Fprint(w, text)
	}}, nil
}

// varChange describes the effect of an import on one variable.
type varChange struct {
	Key, Kind      string // new, changed, same
	Before, After  string // empty where secret
	Secret, Hidden bool   // will be secret; is secret now
}

type importData struct {
	siteHead
	Text    string
	Secret  bool
	Changes []varChange // nil before the preview
	Writes  int         // how many of them change something
}

func (d *Dashboard) importPage(ctx context.Context, q *request) (answer, error) {
	head, err := d.head(ctx, q, "env")
	return page("site_import", "Import variables", importData{siteHead: head, Text: q.value("text"), Secret: q.checked("secret")}), err
}

// importEnv shows what a .env text would change; sent again with "apply" it does so.
func (d *Dashboard) importEnv(ctx context.Context, q *request) (answer, error) {
	head, err := d.head(ctx, q, "env")
	if err != nil {
		return answer{}, err
	}
	pairs, err := parseEnv(q.value("text"))
	if err != nil {
		return answer{}, at("text", err)
	}
	have, err := d.Sites.Env(ctx, q.caller.Owner, head.Site.ID)
	if err != nil {
		return answer{}, err
	}
	data := importData{siteHead: head, Text: q.value("text"), Secret: q.checked("secret"), Changes: []varChange{}}
	var write []site.NewVar
	for _, p := range pairs {
		c := varChange{Key: p.key, Kind: "new", After: p.value, Secret: data.Secret}
		n := site.NewVar{Key: p.key, Value: p.value, Secret: data.Secret}
		if i := slices.IndexFunc(have, func(v site.Var) bool { return v.Key == p.key && v.Branch == "" }); i >= 0 {
			v := have[i]
			c.Kind, c.Before, c.Hidden = "changed", v.Value, v.Secret
			c.Secret = data.Secret || v.Secret // what is secret stays so
			n.Secret, n.Target = c.Secret, v.Target
			if !v.Secret && v.Value == p.value && !c.Secret {
				c.Kind = "same"
			}
		}
		if c.Secret {
			c.After = ""
		}
		if c.Kind != "same" {
			write = append(write, n)
		}
		data.Changes = append(data.Changes, c)
	}
	data.Writes = len(write)
	if q.value("step") != "apply" {
		return page("site_import", "Import variables", data), nil
	}
	if len(write) == 0 {
		return goTo(head.Base()+"/env", "No changes to import"), nil
	}
	err = d.setVars(ctx, q, head.Site.ID, write)
	return goTo(head.Base()+"/env", "Imported "+text.Count(len(write), "variable")), at("text", err)
}
