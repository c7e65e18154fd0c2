package provider

import (
	"encoding/json"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/booldefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/boolplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/float64planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/int64planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/objectplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/setplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/types"
)

const protection = "deletion_protection"

var zero = json.Number("0")

// use is how an attribute behaves in a configuration.
type use int

const (
	required use = iota
	fixed        // required; changing it replaces the object
	optional     // removing it from the configuration resets it
	kept         // removing it from the configuration leaves it unchanged
	chosen       // like kept; changing it replaces the object
	shown        // set by the server and constant
	live         // set by the server and variable
)

func (u use) required() bool { return u == required || u == fixed }
func (u use) optional() bool { return u == optional || u == kept || u == chosen }
func (u use) computed() bool { return u >= kept }

// modifiers returns the plan modifiers of an attribute from its type's stay and replace.
func modifiers[T any](u use, stay, replace T) (list []T) {
	if u >= kept && u < live {
		list = append(list, stay)
	}
	if u == fixed || u == chosen {
		list = append(list, replace)
	}
	return list
}

func str(u use, doc string) schema.StringAttribute {
	return schema.StringAttribute{
		Required: u.required(), Optional: u.optional(), Computed: u.computed(), Description: doc,
		PlanModifiers: modifiers[planmodifier.String](u, stringplanmodifier.UseStateForUnknown(), stringplanmodifier.RequiresReplace()),
	}
}

func whole(u use, doc string) schema.Int64Attribute {
	return schema.Int64Attribute{
		Required: u.required(), Optional: u.optional(), Computed: u.computed(), Description: doc,
		PlanModifiers: modifiers[planmodifier.Int64](u, int64planmodifier.UseStateForUnknown(), int64planmodifier.RequiresReplace()),
	}
}

func decimal(u use, doc string) schema.Float64Attribute {
	return schema.Float64Attribute{
		Required: u.required(), Optional: u.optional(), Computed: u.computed(), Description: doc,
		PlanModifiers: modifiers[planmodifier.Float64](u, float64planmodifier.UseStateForUnknown(), float64planmodifier.RequiresReplace()),
	}
}

func flag(u use, doc string) schema.BoolAttribute {
	return schema.BoolAttribute{
		Required: u.required(), Optional: u.optional(), Computed: u.computed(), Description: doc,
		PlanModifiers: modifiers[planmodifier.Bool](u, boolplanmodifier.UseStateForUnknown(), boolplanmodifier.RequiresReplace()),
	}
}

// words is a set of strings, whose order doesn't matter.
func words(u use, doc string) schema.SetAttribute { return set(u, types.StringType, doc) }

func set(u use, of attr.Type, doc string) schema.SetAttribute {
	return schema.SetAttribute{
		Required: u.required(), Optional: u.optional(), Computed: u.computed(), Description: doc, ElementType: of,
		PlanModifiers: modifiers[planmodifier.Set](u, setplanmodifier.UseStateForUnknown(), setplanmodifier.RequiresReplace()),
	}
}

// group is a nested object.
func group(u use, doc string, of map[string]schema.Attribute) schema.SingleNestedAttribute {
	return schema.SingleNestedAttribute{
		Required: u.required(), Optional: u.optional(), Computed: u.computed(), Description: doc, Attributes: of,
		PlanModifiers: modifiers[planmodifier.Object](u, objectplanmodifier.UseStateForUnknown(), objectplanmodifier.RequiresReplace()),
	}
}

// records is a list of DNS records that the server requires.
func records(doc string) schema.ListNestedAttribute {
	return schema.ListNestedAttribute{Computed: true, Description: doc, NestedObject: schema.NestedAttributeObject{
		Attributes: map[string]schema.Attribute{
			"type":  str(live, "TXT, CNAME, A or AAAA."),
			"name":  str(live, "The record's full name."),
			"value": str(live, "The value that it must have."),
		},
	}}
}

// secret is a write-only string. Its version attribute is a number that triggers sending it again.
func secret(doc string) schema.StringAttribute {
	return schema.StringAttribute{
		Optional: true, Sensitive: true, WriteOnly: true, Description: doc + " Write-only: it is in no state and in no plan.",
	}
}

func version(of string) schema.Int64Attribute {
	return schema.Int64Attribute{Optional: true, Description: "Increase it to send " + of + " again: a plan can't see that a write-only value changed."}
}

func protected(doc string) schema.BoolAttribute {
	return schema.BoolAttribute{Optional: true, Computed: true, Default: booldefault.StaticBool(true), Description: doc}
}
