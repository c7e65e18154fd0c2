package provider_test

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/providerserver"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"slipway/terraform/provider"
)

const deadline = 3 * time.Minute

// core calls the provider through Terraform's protocol, as Terraform does, but without Terraform.
type core struct {
	t      *testing.T
	server tfprotov6.ProviderServer
	schema *tfprotov6.GetProviderSchemaResponse
	said   []string // warnings
}

type attrs = map[string]any

// open starts a provider for an installation, as each command of Terraform does.
func open(t *testing.T, server, token string) *core {
	t.Helper()
	c := &core{t: t}
	s, err := providerserver.NewProtocol6WithError(provider.New("test")())()
	if err != nil {
		t.Fatal(err)
	}
	c.server = s
	if c.schema, err = s.GetProviderSchema(t.Context(), &tfprotov6.GetProviderSchemaRequest{}); err != nil {
		t.Fatal(err)
	}
	c.must(c.schema.Diagnostics, nil)
	config := c.encode(c.schema.Provider, attrs{"server": server, "token": token})
	resp, err := s.ConfigureProvider(t.Context(), &tfprotov6.ConfigureProviderRequest{TerraformVersion: "1.11.0", Config: config})
	if err == nil {
		c.must(resp.Diagnostics, nil)
	} else {
		t.Fatal(err)
	}
	return c
}

// must fails the test on errors, and keeps warnings.
func (c *core) must(said []*tfprotov6.Diagnostic, err error) {
	c.t.Helper()
	if text := c.failure(said, err); text != "" {
		c.t.Fatal(text)
	}
}

func (c *core) failure(said []*tfprotov6.Diagnostic, err error) (text string) {
	if err != nil {
		return err.Error()
	}
	for _, d := range said {
		if d.Severity == tfprotov6.DiagnosticSeverityError {
			text += d.Summary + ": " + d.Detail + "\n"
		} else {
			c.said = append(c.said, d.Summary+": "+d.Detail)
		}
	}
	return text
}

func (c *core) encode(s *tfprotov6.Schema, v any) *tfprotov6.DynamicValue {
	c.t.Helper()
	t := s.ValueType()
	text, err := json.Marshal(v)
	if err != nil {
		c.t.Fatal(err)
	}
	if of, ok := v.(attrs); ok { // attributes without a value are null
		all := attrs{}
		for name := range t.(tftypes.Object).AttributeTypes {
			all[name] = of[name]
		}
		for name := range of {
			if _, has := all[name]; !has {
				c.t.Fatalf("there is no attribute %s", name)
			}
		}
		text, _ = json.Marshal(all)
	}
	value, err := tftypes.ValueFromJSON(text, t)
	if err != nil {
		c.t.Fatal(err)
	}
	out, err := tfprotov6.NewDynamicValue(t, value)
	if err != nil {
		c.t.Fatal(err)
	}
	return &out
}

// nested adds null for each attribute that an object in a configuration lacks.
func nested(s []*tfprotov6.SchemaAttribute, config attrs) attrs {
	out := attrs{}
	for _, a := range s {
		out[a.Name] = config[a.Name]
		if of, ok := config[a.Name].(attrs); ok && a.NestedType != nil {
			out[a.Name] = nested(a.NestedType.Attributes, of)
		}
	}
	for name, v := range config {
		if _, has := out[name]; !has {
			out[name] = v
		}
	}
	return out
}

// proposed returns the new state that Terraform core proposes: the configuration, and the old state where the
// configuration says nothing and the provider may choose.
func proposed(s []*tfprotov6.SchemaAttribute, config, state map[string]tftypes.Value) map[string]tftypes.Value {
	out := map[string]tftypes.Value{}
	for _, a := range s {
		v, have := config[a.Name], state[a.Name]
		switch {
		case v.IsNull() && a.Computed && state != nil:
			v = have
		case a.WriteOnly:
			v = tftypes.NewValue(a.ValueType(), nil)
		case !v.IsNull() && a.NestedType != nil && a.NestedType.Nesting == tfprotov6.SchemaObjectNestingModeSingle:
			var now, was map[string]tftypes.Value
			_ = v.As(&now)
			if state != nil && !have.IsNull() {
				_ = have.As(&was)
			}
			v = tftypes.NewValue(v.Type(), proposed(a.NestedType.Attributes, now, was))
		}
		out[a.Name] = v
	}
	return out
}

// plan returns what applying a configuration would do to a state. state is nil if there is none.
func (c *core) plan(of string, state *tfprotov6.DynamicValue, config attrs) (*tfprotov6.PlanResourceChangeResponse, *tfprotov6.DynamicValue) {
	c.t.Helper()
	s, name := c.schema.ResourceSchemas["slipway_"+of], "slipway_"+of
	encoded := c.encode(s, nested(s.Block.Attributes, config))
	checked, err := c.server.ValidateResourceConfig(c.t.Context(), &tfprotov6.ValidateResourceConfigRequest{
		TypeName: name, Config: encoded, ClientCapabilities: &tfprotov6.ValidateResourceConfigClientCapabilities{WriteOnlyAttributesAllowed: true},
	})
	if err != nil {
		c.t.Fatal(err)
	}
	c.must(checked.Diagnostics, nil)
	null, _ := tfprotov6.NewDynamicValue(s.ValueType(), tftypes.NewValue(s.ValueType(), nil))
	prior := state
	if prior == nil {
		prior = &null
	}
	next := tftypes.NewValue(s.ValueType(), proposed(s.Block.Attributes, c.values(of, encoded), c.values(of, prior)))
	dynamic, err := tfprotov6.NewDynamicValue(s.ValueType(), next)
	if err != nil {
		c.t.Fatal(err)
	}
	resp, err := c.server.PlanResourceChange(c.t.Context(), &tfprotov6.PlanResourceChangeRequest{
		TypeName: name, PriorState: prior, ProposedNewState: &dynamic, Config: encoded,
	})
	if err != nil {
		c.t.Fatal(err)
	}
	c.must(resp.Diagnostics, nil)
	return resp, encoded
}

func (c *core) values(of string, v *tfprotov6.DynamicValue) (out map[string]tftypes.Value) {
	c.t.Helper()
	got, err := v.Unmarshal(c.schema.ResourceSchemas["slipway_"+of].ValueType())
	if err == nil && !got.IsNull() {
		err = got.As(&out)
	}
	if err != nil {
		c.t.Fatal(err)
	}
	return out
}

// changes returns the names of the attributes that a plan changes.
func (c *core) changes(of string, state *tfprotov6.DynamicValue, config attrs) (names []string) {
	c.t.Helper()
	planned, _ := c.plan(of, state, config)
	was, next := c.values(of, state), c.values(of, planned.PlannedState)
	for _, name := range slices.Sorted(maps.Keys(next)) {
		if !next[name].Equal(was[name]) {
			names = append(names, name)
		}
	}
	return names
}

// apply plans and applies a configuration, and returns the new state. It fails the test if the plan replaces the
// object.
func (c *core) apply(of string, state *tfprotov6.DynamicValue, config attrs) *tfprotov6.DynamicValue {
	c.t.Helper()
	planned, encoded := c.plan(of, state, config)
	if state == nil {
		s := c.schema.ResourceSchemas["slipway_"+of].ValueType()
		null, _ := tfprotov6.NewDynamicValue(s, tftypes.NewValue(s, nil))
		state = &null
	} else if len(planned.RequiresReplace) > 0 {
		c.t.Fatalf("replaces the object for %v", planned.RequiresReplace)
	}
	resp, err := c.server.ApplyResourceChange(c.t.Context(), &tfprotov6.ApplyResourceChangeRequest{
		TypeName: "slipway_" + of, PriorState: state, PlannedState: planned.PlannedState, Config: encoded, PlannedPrivate: planned.PlannedPrivate,
	})
	if err != nil {
		c.t.Fatal(err)
	}
	c.must(resp.Diagnostics, nil)
	// Terraform checks the same: planned values must be in the new state, and all values must be known.
	want, got := c.values(of, planned.PlannedState), c.values(of, resp.NewState)
	for name, v := range want {
		if v.IsFullyKnown() && !v.Equal(got[name]) || !got[name].IsFullyKnown() {
			c.t.Errorf("slipway_%s.%s was planned as %v and is %v", of, name, v, got[name])
		}
	}
	return resp.NewState
}

// create applies a plan that creates an object, and returns the provider's error.
func (c *core) create(of string, planned *tfprotov6.PlanResourceChangeResponse, config *tfprotov6.DynamicValue) string {
	c.t.Helper()
	s := c.schema.ResourceSchemas["slipway_"+of].ValueType()
	null, _ := tfprotov6.NewDynamicValue(s, tftypes.NewValue(s, nil))
	resp, err := c.server.ApplyResourceChange(c.t.Context(), &tfprotov6.ApplyResourceChangeRequest{
		TypeName: "slipway_" + of, PriorState: &null, PlannedState: planned.PlannedState, Config: config,
	})
	if err != nil {
		c.t.Fatal(err)
	}
	return c.failure(resp.Diagnostics, nil)
}

// refresh reads an object again, and returns nil if it is gone.
func (c *core) refresh(of string, state *tfprotov6.DynamicValue) *tfprotov6.DynamicValue {
	c.t.Helper()
	resp, err := c.server.ReadResource(c.t.Context(), &tfprotov6.ReadResourceRequest{TypeName: "slipway_" + of, CurrentState: state})
	if err != nil {
		c.t.Fatal(err)
	}
	c.must(resp.Diagnostics, nil)
	if c.values(of, resp.NewState) == nil {
		return nil
	}
	return resp.NewState
}

// take imports an object.
func (c *core) take(of, id string) *tfprotov6.DynamicValue {
	c.t.Helper()
	resp, err := c.server.ImportResourceState(c.t.Context(), &tfprotov6.ImportResourceStateRequest{TypeName: "slipway_" + of, ID: id})
	if err != nil {
		c.t.Fatal(err)
	}
	c.must(resp.Diagnostics, nil)
	return c.refresh(of, resp.ImportedResources[0].State)
}

// destroy deletes an object, and returns the provider's error.
func (c *core) destroy(of string, state *tfprotov6.DynamicValue) string {
	c.t.Helper()
	s := c.schema.ResourceSchemas["slipway_"+of].ValueType()
	null, err := tfprotov6.NewDynamicValue(s, tftypes.NewValue(s, nil))
	if err != nil {
		c.t.Fatal(err)
	}
	resp, err := c.server.ApplyResourceChange(context.WithoutCancel(c.t.Context()), &tfprotov6.ApplyResourceChangeRequest{
		TypeName: "slipway_" + of, PriorState: state, PlannedState: &null, Config: &null,
	})
	if err != nil {
		c.t.Fatal(err)
	}
	return c.failure(resp.Diagnostics, nil)
}

// text returns an attribute of a state.
func (c *core) text(of string, state *tfprotov6.DynamicValue, name string) (s string) {
	c.t.Helper()
	if v := c.values(of, state)[name]; !v.IsNull() {
		if err := v.As(&s); err != nil {
			c.t.Fatal(err)
		}
	}
	return s
}
