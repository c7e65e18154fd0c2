package sites

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"reflect"

	"github.com/danielgtaylor/huma/v2"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/audit"
	"slipway/internal/tenant/site"
	"slipway/internal/web/api/contract"
)

type varBody struct {
	ID        string   `json:"id" example:"env_25o5kzh3mc7yw4tn6pqd2xlfae"`
	Key       string   `json:"key" example:"API_TOKEN"`
	Value     *string  `json:"value" doc:"Null for secrets."`
	Secret    bool     `json:"secret"`
	Target    []string `json:"target" doc:"Where it is available: build, runtime or both; production or preview restrict it to that target."`
	Branch    *string  `json:"branch" doc:"Branch or branch pattern of the previews that get it. Null: not limited to branches."`
	CreatedAt string   `json:"createdAt" format:"date-time"`
	UpdatedAt string   `json:"updatedAt" format:"date-time"`
}

// newVar is a variable in a request.
type newVar struct {
	Key    string   `json:"key" pattern:"^[A-Za-z_][A-Za-z0-9_]*$" patternDescription:"letters, digits and underscores, not beginning with a digit" doc:"Letters, digits and underscores, not beginning with a digit."`
	Value  string   `json:"value" doc:"At most 32 KiB."`
	Secret bool     `json:"secret,omitempty" doc:"Never shown again, and redacted from logs."`
	Target []string `json:"target,omitempty" enum:"build,runtime,production,preview" doc:"Where it is available: build, runtime, or both by default. production or preview restrict it to deployments for that target."`
	Branch string   `json:"branch,omitempty" maxLength:"244" doc:"Only previews of this branch, or of branches that match: * matches any characters. If a key has several values, the longest matching pattern wins; a value without a branch is the fallback." example:"feature/*"`
}

// newVars is one variable or an array of them, not yet decoded.
type newVars struct{ raw json.RawMessage }

// Schema returns its schema in the document.
func (newVars) Schema(r huma.Registry) *huma.Schema {
	one := r.Schema(reflect.TypeFor[newVar](), true, "")
	return &huma.Schema{OneOf: []*huma.Schema{one, {Type: huma.TypeArray, Items: one}}}
}

// UnmarshalJSON stores the text: the handler decodes it, so that errors name the variable.
func (n *newVars) UnmarshalJSON(b []byte) error {
	n.raw = bytes.Clone(b)
	return nil
}

// read checks and decodes the variables, and reports whether they were an array.
func (n newVars) read(r huma.Registry) (list []newVar, many bool, err error) {
	odd := fault.New(fault.Invalid, "invalid_body", "Invalid variables", "send one variable or an array of them")
	var v any
	if json.Unmarshal(n.raw, &v) != nil { // such as a number that is too large
		return nil, false, odd
	}
	schema := r.Schema(reflect.TypeFor[newVar](), true, "")
	_, many = v.([]any)
	if many {
		schema = &huma.Schema{Type: huma.TypeArray, Items: schema}
	}
	path, result := huma.NewPathBuffer([]byte("body"), 4), &huma.ValidateResult{}
	huma.Validate(r, schema, path, huma.ModeWriteToServer, v, result)
	if len(result.Errors) > 0 {
		return nil, many, contract.Invalid(&huma.Operation{Metadata: map[string]any{"noun": "variable"}}, r, result.Errors)
	}
	into := any(&list)
	if !many {
		list = make([]newVar, 1)
		into = &list[0]
	}
	if json.Unmarshal(n.raw, into) != nil {
		return nil, many, odd
	}
	return list, many, nil
}

// setVars is the answer: an object, or {"data": […]} for an array.
type setVars struct {
	list []varBody
	many bool
}

// Schema returns its schema in the document.
func (setVars) Schema(r huma.Registry) *huma.Schema {
	return &huma.Schema{OneOf: []*huma.Schema{
		r.Schema(reflect.TypeFor[varBody](), true, ""),
		r.Schema(reflect.TypeFor[contract.Data[varBody]](), true, ""),
	}}
}

// MarshalJSON writes one of the two forms.
func (s setVars) MarshalJSON() ([]byte, error) {
	if s.many {
		return contract.Encode(contract.Data[varBody]{Data: s.list})
	}
	return contract.Encode(s.list[0])
}

func (a *API) envRoutes() {
	r := func(path, id, summary, doc string, s account.Scope) contract.Route {
		return contract.Route{Path: path, ID: id, Tag: "Environment variables", Summary: summary, Doc: doc, Scope: s, Noun: "variable"}
	}
	contract.Get(a.API, r("/sites/{id}/env", "listEnv", "List variables", "By key. Values of secret variables are null.",
		account.EnvRead), a.listEnv)
	set := r("/sites/{id}/env", "setEnv", "Set variables",
		"One variable, or an array of up to 1,000. Existing keys are replaced. A key can have one value for both targets or one "+
			"each for `production` and `preview`, and one more for each branch pattern. Either all are set or none. Values are "+
			"encrypted at rest and take effect on the next deployment.",
		account.EnvWrite)
	set.Status, set.Loose = 201, true
	set.Limited = true
	contract.PostPrepared(a.API, set, a.sealEnv, a.setEnv)
	contract.Change(a.API, "PATCH",
		r("/sites/{id}/env/{key}", "updateEnv", "Change a variable",
			"By key, or by id if the key exists more than once. A secret can be changed to a plain variable only together with a new value.",
			account.EnvWrite),
		a.updateEnv)
	contract.Change(a.API, "DELETE",
		r("/sites/{id}/env/{key}", "deleteEnv", "Delete a variable", "By its key, for every target, or by its id.", account.EnvWrite),
		a.deleteEnv)
}

func (a *API) listEnv(ctx context.Context, c account.Caller, in *contract.PartOf[site.ID]) (contract.Data[varBody], error) {
	if _, err := a.Site(ctx, c, in.ID); err != nil {
		return contract.Data[varBody]{}, err
	}
	vars, err := a.Sites.Env(ctx, c.Owner, in.ID)
	return contract.Part(in.PartIn, contract.Each(vars, showVar), err)
}

type setEnvIn struct {
	contract.ByID[site.ID]
	Body newVars
}

// sealedEnv holds encrypted variables, ready to be written.
type sealedEnv struct {
	vars   site.SealedVars
	many   bool   // they were an array
	detail string // for the audit log
}

// sealEnv does the work that doesn't need the database's only writer.
func (a *API) sealEnv(ctx context.Context, c account.Caller, in *setEnvIn) (p sealedEnv, err error) {
	if _, err := a.Site(ctx, c, in.ID); err != nil {
		return p, err
	}
	list, many, err := in.Body.read(a.Schemas())
	if err != nil {
		return p, err
	}
	if len(list) == 0 {
		return p, fault.New(fault.Invalid, "variables_required", "No variables were sent",
			"send one variable or an array of at least one")
	}
	p.many, p.detail = many, fmt.Sprintf("%d variables", len(list))
	if len(list) == 1 {
		p.detail = list[0].Key
	}
	p.vars, err = a.Sites.SealEnv(in.ID, contract.Each(list, func(v newVar) site.NewVar { return site.NewVar(v) }))
	return p, err
}

func (a *API) setEnv(
	ctx context.Context,
	tx *db.Tx,
	c account.Caller,
	in *setEnvIn,
	p sealedEnv,
) (_ setVars, did audit.Event, _ error) {
	if err := a.Allowed(ctx, tx, c, in.ID); err != nil {
		return setVars{}, did, err
	}
	did = audit.Event{Action: "env.set", Subject: string(in.ID), Detail: p.detail}
	vars, err := a.Sites.SetSealedEnvTx(ctx, tx, c.Owner, in.ID, p.vars)
	return setVars{contract.Each(vars, showVar), p.many}, did, err
}

type EnvIn struct {
	contract.ByID[site.ID]
	Key string `path:"key"`
}

type updateEnvIn struct {
	EnvIn
	Body struct {
		Value  *string  `json:"value,omitempty"`
		Secret *bool    `json:"secret,omitempty"`
		Target []string `json:"target,omitempty" enum:"build,runtime,production,preview"`
		Branch *string  `json:"branch,omitempty" maxLength:"244" doc:"Empty: not limited to branches."`
	}
}

func (a *API) updateEnv(ctx context.Context, tx *db.Tx, c account.Caller, in *updateEnvIn) (_ varBody, did audit.Event, _ error) {
	if err := a.Allowed(ctx, tx, c, in.ID); err != nil {
		return varBody{}, did, err
	}
	now, err := a.Sites.VarTx(ctx, tx, c.Owner, in.ID, in.Key)
	if err != nil {
		return varBody{}, did, err
	}
	if err := contract.CheckPatch(ctx, "variable", []string{
		"value",
		"secret",
		"target",
		"branch",
	}, showVar(now), map[string]string{"key": "set a variable with the other key and delete this one"}); err != nil {
		return varBody{}, did, err
	}
	did = audit.Event{Action: "env.set", Subject: string(in.ID), Detail: in.Key}
	v, err := a.Sites.UpdateEnvTx(ctx, tx, c.Owner, in.ID, in.Key, site.PatchVar(in.Body))
	return showVar(v), did, err
}

func (a *API) deleteEnv(ctx context.Context, tx *db.Tx, c account.Caller, in *EnvIn) (_ contract.Message, did audit.Event, _ error) {
	if err := a.Allowed(ctx, tx, c, in.ID); err != nil {
		return contract.Message{}, did, err
	}
	did = audit.Event{Action: "env.deleted", Subject: string(in.ID), Detail: in.Key}
	return contract.Message{Message: "Variable deleted"}, did, a.Sites.DeleteEnvTx(ctx, tx, c.Owner, in.ID, in.Key)
}

func showVar(v site.Var) varBody {
	b := varBody{v.ID, v.Key, &v.Value, v.Secret, v.Target, contract.Some(v.Branch), v.CreatedAt.String(), v.UpdatedAt.String()}
	if v.Secret {
		b.Value = nil
	}
	return b
}
