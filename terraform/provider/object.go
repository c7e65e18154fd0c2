package provider

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"github.com/hashicorp/terraform-plugin-go/tftypes"
)

// kind describes a resource. Its functions use Terraform's names, except that read and made return the server's
// response.
type kind struct {
	name, about string
	attributes  map[string]schema.Attribute
	local       []string            // attributes unknown to the server
	known       map[string][]string // attribute values known to this version

	all  func(v values) string // path for creation
	item func(v values) string // path for changes and deletion
	read func(ctx context.Context, c *client, v values) (values, error)

	// find returns the identifying fields of the object to import, from the server's response, or nil.
	find func(ctx context.Context, c *client, id string) (values, error)

	// Optional: special behavior. change sends the differences; secrets holds the configuration's write-only values
	// that must be sent.
	check   func(config values, say *diag.Diagnostics)
	plan    func(config, plan values) values
	create  func(ctx context.Context, c *client, plan, body values) (values, error)
	change  func(ctx context.Context, c *client, state, body values) (values, error)
	destroy func(ctx context.Context, c *client, state values) error
}

// object is a resource of a kind.
type object struct {
	kind
	c *client
}

// versionOf is the suffix of the attribute that triggers sending a write-only attribute again.
const (
	writeOnly = "_wo"
	versionOf = "_wo_version"
)

// Metadata implements resource.Resource.
func (o *object) Metadata(_ context.Context, req resource.MetadataRequest, resp *resource.MetadataResponse) {
	resp.TypeName = req.ProviderTypeName + "_" + o.name
}

// Schema implements resource.Resource.
func (o *object) Schema(_ context.Context, _ resource.SchemaRequest, resp *resource.SchemaResponse) {
	resp.Schema = schema.Schema{Description: o.about, Attributes: o.attributes}
}

// Configure receives the provider's client.
func (o *object) Configure(_ context.Context, req resource.ConfigureRequest, _ *resource.ConfigureResponse) {
	o.c, _ = req.ProviderData.(*client) // nil during validation
}

// ValidateConfig checks conditions that attributes' types can't express.
func (o *object) ValidateConfig(_ context.Context, req resource.ValidateConfigRequest, resp *resource.ValidateConfigResponse) {
	if o.check == nil {
		return
	}
	if config, ok := readInto(&resp.Diagnostics, req.Config.Raw); ok {
		o.check(config, &resp.Diagnostics)
	}
}

// ModifyPlan sets values that follow from other attributes.
func (o *object) ModifyPlan(_ context.Context, req resource.ModifyPlanRequest, resp *resource.ModifyPlanResponse) {
	if o.plan == nil || req.Plan.Raw.IsNull() {
		return
	}
	config, ok := readInto(&resp.Diagnostics, req.Config.Raw)
	plan, fine := readInto(&resp.Diagnostics, resp.Plan.Raw)
	if ok && fine {
		resp.Plan.Raw = write(o.plan(config, plan), resp.Plan.Raw.Type())
	}
}

// Create creates the object.
func (o *object) Create(ctx context.Context, req resource.CreateRequest, resp *resource.CreateResponse) {
	plan, ok := readInto(&resp.Diagnostics, req.Plan.Raw)
	config, fine := readInto(&resp.Diagnostics, req.Config.Raw)
	if !ok || !fine {
		return
	}
	body := values{}
	for name := range o.settable() {
		if v := toJSON(plan[name]); v != nil {
			body[camel(name)] = v
		}
	}
	o.addSecrets(body, config, nil, plan)
	create := o.create
	if create == nil {
		create = func(ctx context.Context, c *client, plan, body values) (values, error) {
			return c.change(ctx, http.MethodPost, o.all(plan), body)
		}
	}
	got, err := create(ctx, o.c, plan, body)
	if got != nil {
		o.keep(&resp.State, &resp.Diagnostics, plan, got)
	}
	if err != nil {
		resp.Diagnostics.AddError("Create "+o.title(), err.Error())
	}
}

// Read updates the state from the server.
func (o *object) Read(ctx context.Context, req resource.ReadRequest, resp *resource.ReadResponse) {
	state, ok := readInto(&resp.Diagnostics, req.State.Raw)
	if !ok {
		return
	}
	got, err := o.read(ctx, o.c, state)
	switch {
	case err != nil && !missing(err):
		resp.Diagnostics.AddError("Read "+o.title(), err.Error())
	case got == nil:
		resp.State.RemoveResource(ctx)
	default:
		resp.State.Raw = o.merge(&resp.Diagnostics, state, got, resp.State.Raw.Type())
	}
}

// Update sends only the differences between state and plan.
func (o *object) Update(ctx context.Context, req resource.UpdateRequest, resp *resource.UpdateResponse) {
	state, ok := readInto(&resp.Diagnostics, req.State.Raw)
	plan, fine := readInto(&resp.Diagnostics, req.Plan.Raw)
	config, good := readInto(&resp.Diagnostics, req.Config.Raw)
	if !ok || !fine || !good {
		return
	}
	body := values{}
	for name := range o.settable() {
		if v, changes := changed(state[name], plan[name]); changes {
			body[camel(name)] = v
		}
	}
	o.addSecrets(body, config, state, plan)
	var got values
	var err error
	switch {
	case len(body) == 0: // only attributes unknown to the server changed
		got, err = o.read(ctx, o.c, state)
	case o.change != nil:
		got, err = o.change(ctx, o.c, state, body)
	default:
		got, err = o.c.change(ctx, http.MethodPatch, o.item(state), body)
	}
	if err == nil && got == nil {
		err = fmt.Errorf("the %s was deleted meanwhile", o.title())
	}
	if err != nil {
		resp.Diagnostics.AddError("Change "+o.title(), err.Error())
		return
	}
	o.keep(&resp.State, &resp.Diagnostics, plan, got)
}

// Delete deletes the object unless it is protected.
func (o *object) Delete(ctx context.Context, req resource.DeleteRequest, resp *resource.DeleteResponse) {
	state, ok := readInto(&resp.Diagnostics, req.State.Raw)
	if !ok {
		return
	}
	if protected, _ := state[protection].(bool); protected {
		resp.Diagnostics.AddAttributeError(path.Root(protection), "The "+o.title()+" is protected",
			"Nothing was deleted. Set deletion_protection = false, apply that, and then delete it.")
		return
	}
	var err error
	if o.destroy != nil {
		err = o.destroy(ctx, o.c, state)
	} else {
		_, err = o.c.change(ctx, http.MethodDelete, o.item(state), nil)
	}
	if err != nil && !missing(err) {
		resp.Diagnostics.AddError("Delete "+o.title(), err.Error())
	}
}

// ImportState finds an existing object.
func (o *object) ImportState(ctx context.Context, req resource.ImportStateRequest, resp *resource.ImportStateResponse) {
	got, err := o.find(ctx, o.c, req.ID)
	if err == nil && got == nil {
		err = fmt.Errorf("there is no %s %q", o.title(), req.ID)
	}
	if err != nil {
		resp.Diagnostics.AddError("Import "+o.title(), err.Error())
		return
	}
	state := values{}
	if got["secret"] == true { // with version 0 nothing is sent
		state["value"+versionOf] = zero
	}
	if _, has := o.attributes[protection]; has {
		state[protection] = true
	}
	resp.State.Raw = o.merge(&resp.Diagnostics, state, got, resp.State.Raw.Type())
}

func (o *object) title() string { return strings.ReplaceAll(o.name, "_", " ") }

// settable returns the attributes that are sent to the server.
func (o *object) settable() map[string]schema.Attribute {
	out := maps.Clone(o.attributes)
	maps.DeleteFunc(out, func(name string, a schema.Attribute) bool {
		return !a.IsRequired() && !a.IsOptional() || slices.Contains(o.local, name) || name == protection ||
			strings.HasSuffix(name, writeOnly) || strings.HasSuffix(name, versionOf)
	})
	return out
}

// addSecrets adds the write-only values whose version changed.
func (o *object) addSecrets(body, config, state, plan values) {
	for name := range o.attributes {
		of, is := strings.CutSuffix(name, writeOnly)
		if is && config[name] != nil && (state == nil || !same(state[of+versionOf], plan[of+versionOf])) {
			body[camel(of)] = toJSON(config[name])
		}
	}
}

// changed returns the value to send for an attribute, and whether to send it. For an object, only the differences are sent. A
// value removed from the configuration is sent as empty, which resets it.
func changed(state, plan any) (any, bool) {
	if _, open := plan.(unknown); open || same(state, plan) {
		return nil, false
	}
	switch now := plan.(type) {
	case nil:
		switch state.(type) {
		case string:
			return "", true
		case []any:
			return []any{}, true
		}
		return nil, false
	case values:
		was, _ := state.(values)
		out := values{}
		for name := range now {
			if v, differs := changed(was[name], now[name]); differs {
				out[camel(name)] = v
			}
		}
		return out, len(out) > 0
	}
	return toJSON(plan), true
}

// keep stores the plan, completed from the response.
func (o *object) keep(state *tfsdk.State, say *diag.Diagnostics, plan, got values) {
	t := state.Schema.Type().TerraformType(context.Background())
	answered := fromJSON(got, t).(values)
	for name := range o.settable() {
		if v := plan[name]; v != nil && !within(v, answered[name]) {
			say.AddAttributeWarning(path.Root(name), "The server stores another value",
				fmt.Sprintf("It stores %s = %v while the configuration has %v. Use the server's form, or each plan shows a change.", name, answered[name], v))
		}
	}
	o.warn(say, answered)
	state.Raw = write(complete(plan, answered), t)
}

// complete sets a plan's unknown values from the response.
func complete(plan, answered any) any {
	switch p := plan.(type) {
	case unknown:
		return answered
	case values:
		a, _ := answered.(values)
		out := values{}
		for name := range p {
			out[name] = complete(p[name], a[name])
		}
		return out
	}
	return plan
}

// within reports whether a response contains what a plan requests.
func within(plan, answered any) bool {
	switch p := plan.(type) {
	case unknown:
		return true
	case values:
		a, _ := answered.(values)
		for name, v := range p {
			if !within(v, a[name]) {
				return false
			}
		}
		return true
	}
	return plan == nil || answered == nil || same(plan, answered) // null: a secret, or an older server
}

// merge returns the state updated from the server's response. Values missing in the response stay, as do empty values
// that the server omits.
func (o *object) merge(say *diag.Diagnostics, state, got values, t tftypes.Type) tftypes.Value {
	answered := fromJSON(got, t).(values)
	o.warn(say, answered)
	return write(refresh(state, answered), t)
}

func refresh(state, answered any) any {
	a, ok := answered.(values)
	if !ok {
		if same(state, answered) {
			return state
		}
		return answered
	}
	s, _ := state.(values)
	out := maps.Clone(s)
	if out == nil {
		out = values{}
	}
	for name := range a {
		out[name] = refresh(s[name], a[name])
	}
	return out
}

// warn reports values of a newer server unknown to this provider. They are kept.
func (o *object) warn(say *diag.Diagnostics, answered values) {
	for name, known := range o.known {
		if v := text(answered[name]); v != "" && !slices.Contains(known, v) {
			say.AddAttributeWarning(path.Root(name), "Unknown "+name,
				fmt.Sprintf("The server has %q, which this version of the provider doesn't know. It is kept. A newer provider may support it.", v))
		}
	}
}

func readInto(say *diag.Diagnostics, v tftypes.Value) (values, bool) {
	got, err := readObject(v)
	if err != nil {
		say.AddError("Read attributes", err.Error())
	}
	return got, err == nil
}
