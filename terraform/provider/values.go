package provider

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"net/url"
	"reflect"
	"strings"

	"github.com/hashicorp/terraform-plugin-go/tftypes"
)

// values holds an object's attributes: strings, json.Numbers, booleans, lists, maps, nil, or unknown. Names are
// Terraform's in plans, states and configurations, and the API's in the server's responses.
type values = map[string]any

// unknown is a value that is determined once another resource exists.
type unknown struct{}

// read converts a Terraform value.
func read(v tftypes.Value) (any, error) {
	switch t := v.Type(); {
	case !v.IsKnown():
		return unknown{}, nil
	case v.IsNull():
		return nil, nil
	case t.Is(tftypes.String):
		var s string
		err := v.As(&s)
		return s, err
	case t.Is(tftypes.Bool):
		var b bool
		err := v.As(&b)
		return b, err
	case t.Is(tftypes.Number):
		var n big.Float
		err := v.As(&n)
		return json.Number(n.Text('f', -1)), err
	case t.Is(tftypes.Object{}) || t.Is(tftypes.Map{}):
		var of map[string]tftypes.Value
		if err := v.As(&of); err != nil {
			return nil, err
		}
		out := values{}
		for name, v := range of {
			got, err := read(v)
			if err != nil {
				return nil, err
			}
			out[name] = got
		}
		return out, nil
	default:
		var of []tftypes.Value
		if err := v.As(&of); err != nil {
			return nil, err
		}
		out := make([]any, len(of))
		for i, v := range of {
			got, err := read(v)
			if err != nil {
				return nil, err
			}
			out[i] = got
		}
		return out, nil
	}
}

// readObject converts a whole object. A null object has no values.
func readObject(v tftypes.Value) (values, error) {
	got, err := read(v)
	out, _ := got.(values)
	return out, err
}

// write converts values for Terraform. A value of the wrong type becomes null, so that a newer server's response
// doesn't break a plan.
func write(v any, t tftypes.Type) tftypes.Value {
	null := tftypes.NewValue(t, nil)
	switch t := t.(type) {
	case tftypes.Object:
		of, ok := v.(map[string]any)
		if !ok {
			return null
		}
		out := map[string]tftypes.Value{}
		for name, t := range t.AttributeTypes {
			out[name] = write(of[name], t)
		}
		return tftypes.NewValue(t, out)
	case tftypes.List:
		return writeList(v, t, t.ElementType)
	case tftypes.Set:
		return writeList(v, t, t.ElementType)
	}
	switch v := v.(type) {
	case unknown:
		return tftypes.NewValue(t, tftypes.UnknownValue)
	case string:
		if t.Is(tftypes.String) {
			return tftypes.NewValue(t, v)
		}
	case bool:
		if t.Is(tftypes.Bool) {
			return tftypes.NewValue(t, v)
		}
	case json.Number:
		if n, err := number(v); err == nil && t.Is(tftypes.Number) {
			return tftypes.NewValue(t, n)
		}
	}
	return null
}

func writeList(v any, t, element tftypes.Type) tftypes.Value {
	of, ok := v.([]any)
	if !ok {
		return tftypes.NewValue(t, nil)
	}
	out := make([]tftypes.Value, 0, len(of))
	for _, v := range of {
		out = append(out, write(v, element))
	}
	return tftypes.NewValue(t, out)
}

// fromJSON converts a response to Terraform's names, limited to those of the type.
func fromJSON(v any, t tftypes.Type) any {
	switch t := t.(type) {
	case tftypes.Object:
		of, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		out := values{}
		for name, t := range t.AttributeTypes {
			if got, has := of[camel(name)]; has {
				out[name] = fromJSON(got, t)
			}
		}
		return out
	case tftypes.List:
		return fromList(v, t.ElementType)
	case tftypes.Set:
		return fromList(v, t.ElementType)
	}
	return v
}

func fromList(v any, element tftypes.Type) any {
	of, ok := v.([]any)
	if !ok {
		return nil
	}
	out := make([]any, len(of))
	for i, v := range of {
		out[i] = fromJSON(v, element)
	}
	return out
}

// toJSON converts values to the API's names. It omits null and unknown values.
func toJSON(v any) any {
	switch v := v.(type) {
	case values:
		out := values{}
		for name, of := range v {
			of = toJSON(of)
			if of != nil {
				out[camel(name)] = of
			}
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = toJSON(v[i])
		}
		return out
	case unknown:
		return nil
	}
	return v
}

// camel returns the API's name of an attribute.
func camel(name string) string {
	words := strings.Split(name, "_")
	for i, w := range words[1:] {
		switch w {
		case "mib":
			words[i+1] = "MiB"
		case "ids":
			words[i+1] = "Ids"
		default:
			words[i+1] = strings.ToUpper(w[:1]) + w[1:]
		}
	}
	return strings.Join(words, "")
}

// same compares values, ignoring the order of lists. Empty strings and lists equal nil.
func same(a, b any) bool {
	if empty(a) && empty(b) {
		return true
	}
	switch x := a.(type) {
	case json.Number:
		y, ok := b.(json.Number)
		p, err := number(x)
		q, err2 := number(y)
		return ok && err == nil && err2 == nil && p.Cmp(q) == 0
	case []any:
		y, ok := b.([]any)
		if !ok || len(x) != len(y) {
			return false
		}
		count := map[string]int{}
		for i := range x {
			count[fmt.Sprint(x[i])]++
			count[fmt.Sprint(y[i])]--
		}
		for _, n := range count {
			if n != 0 {
				return false
			}
		}
		return true
	case values:
		y, ok := b.(values)
		if !ok {
			return false
		}
		for name := range x {
			if !same(x[name], y[name]) {
				return false
			}
		}
		for name := range y {
			if _, both := x[name]; !both && !empty(y[name]) {
				return false
			}
		}
		return true
	}
	return reflect.DeepEqual(a, b)
}

// number parses a number with Terraform's precision.
func number(n json.Number) (*big.Float, error) {
	f, _, err := big.ParseFloat(n.String(), 10, 512, big.ToNearestEven)
	return f, err
}

func empty(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case string:
		return v == ""
	case []any:
		return len(v) == 0
	}
	return false
}

func cloned(v values) values { return maps.Clone(v) }

func list(v any) []any {
	l, _ := v.([]any)
	return l
}

// text returns a string value, or "".
func text(v any) string {
	s, _ := v.(string)
	return s
}

func escape(id string) string { return url.PathEscape(id) }
