package contract

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"slices"

	"slipway/internal/platform/fault"
)

// CheckPatch refuses what a PATCH would otherwise ignore: null for a field that null doesn't clear, and read-only
// fields of the answer, unless they have their current value. fixed says, by field, what to do instead. Unknown fields
// are ignored.
func CheckPatch(ctx context.Context, noun string, changeable []string, now any, fixed map[string]string) error {
	var sent, shown map[string]json.RawMessage
	if json.Unmarshal(From(ctx).Body, &sent) != nil {
		return nil // decoding reports that it isn't an object
	}
	text, err := Encode(now)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, &shown); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(sent)) {
		value := bytes.TrimSpace(sent[name])
		if slices.Contains(changeable, name) {
			if have, ok := shown[name]; bytes.Equal(value, []byte("null")) && !(ok && sameJSON(value, have)) &&
				!cleared[name] && !cleared[noun+" "+name] {
				return fault.New(fault.Invalid, "invalid_"+Snake(name), "Invalid "+noun+" "+name,
					name+" can't be null; omit it to keep the current value")
			}
			if inside := nulls(value, shown[name]); inside != nil && !cleared[noun+" "+name+".*"] {
				return fault.New(fault.Invalid, "invalid_"+Snake(name), "Invalid "+noun+" "+name,
					"its fields can't be null; omit those that keep their values")
			}
			continue
		}
		instead, known := fixed[name]
		have, visible := shown[name]
		if !known && !visible || visible && sameJSON(value, have) {
			continue
		}
		if !known {
			instead = "it is read-only; omit it"
		}
		return fault.New(fault.Invalid, "field_not_changeable", "This request can't change "+name, string(instead))
	}
	return nil
}

// cleared lists fields that null clears; .* stands for the fields inside an object.
var cleared = map[string]bool{
	"expiresAt": true, "notification channel siteIds": true, "sign-in provider joinRole": true, "site build.*": true, "site run.*": true,
	"WordPress setting php.*": true, // refused with a message of its own
}

// Nulls returns the null members inside a field of the body, at any depth, as JSON without other members: what a merge
// patch (RFC 7396) removes. It is nil if there are none.
func Nulls(ctx context.Context, field string) json.RawMessage {
	var sent map[string]json.RawMessage
	if json.Unmarshal(From(ctx).Body, &sent) != nil {
		return nil
	}
	return nulls(sent[field], nil)
}

// nulls is Nulls for an object, without members that are also null in shown.
func nulls(value, shown json.RawMessage) json.RawMessage {
	var members, have map[string]json.RawMessage
	if json.Unmarshal(value, &members) != nil {
		return nil // not an object
	}
	_ = json.Unmarshal(shown, &have) // anything but an object has no members
	found := map[string]json.RawMessage{}
	for name, v := range members {
		if !bytes.Equal(v, []byte("null")) {
			v = nulls(v, have[name])
		} else if bytes.Equal(have[name], v) {
			v = nil
		}
		if v != nil {
			found[name] = v
		}
	}
	if len(found) == 0 {
		return nil
	}
	text, _ := json.Marshal(found) // the values are valid JSON
	return text
}

// Sends reports whether the request's body has a field, even if it is null.
func Sends(ctx context.Context, name string) bool {
	var sent map[string]json.RawMessage
	_ = json.Unmarshal(From(ctx).Body, &sent) // anything but an object has no members
	_, ok := sent[name]
	return ok
}

// sameJSON compares two values, ignoring whitespace.
func sameJSON(a, b json.RawMessage) bool {
	var x, y bytes.Buffer
	return json.Compact(&x, a) == nil && json.Compact(&y, b) == nil && bytes.Equal(x.Bytes(), y.Bytes())
}

// IsNull reports whether a field of the body is null.
func IsNull(ctx context.Context, name string) bool {
	var sent map[string]json.RawMessage
	return json.Unmarshal(From(ctx).Body, &sent) == nil && bytes.Equal(bytes.TrimSpace(sent[name]), []byte("null"))
}
