package contract

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"slices"

	"slipway/internal/platform/fault"
)

// CheckPatch refuses what a PATCH would otherwise ignore: null for a field of the body
// where null means nothing, and fields that the answer shows but a PATCH can't change,
// unless they have the value that they have. fixed holds what to do instead of sending
// such a field, by its name; fields that nobody knows stay ignored.
func CheckPatch(ctx context.Context, noun string, changeable []string, now any, fixed map[string]string) error {
	var sent, shown map[string]json.RawMessage
	if json.Unmarshal(From(ctx).Body, &sent) != nil {
		return nil // no object: decoding says so
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

// cleared lists fields that null clears; with .*, those inside of a field.
var cleared = map[string]bool{
	"expiresAt": true, "notification channel siteIds": true, "sign-in provider joinRole": true, "site build.*": true, "site run.*": true,
	"WordPress setting php.*": true, // refused by its own check
}

// Nulls returns the members that are null inside of a field of the body, at any depth, as JSON that has nothing else: what a merge patch
// (RFC 7396) removes. It is nil if there are none.
func Nulls(ctx context.Context, field string) json.RawMessage {
	var sent map[string]json.RawMessage
	if json.Unmarshal(From(ctx).Body, &sent) != nil {
		return nil
	}
	return nulls(sent[field], nil)
}

// nulls is Nulls of an object, without members that are null in shown too.
func nulls(value, shown json.RawMessage) json.RawMessage {
	var members, have map[string]json.RawMessage
	if json.Unmarshal(value, &members) != nil {
		return nil // no object
	}
	_ = json.Unmarshal(shown, &have) // what is no object has no members
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
	text, _ := json.Marshal(found) // of valid JSON
	return text
}

// Sends reports whether the request's body has a field, null included.
func Sends(ctx context.Context, name string) bool {
	var sent map[string]json.RawMessage
	_ = json.Unmarshal(From(ctx).Body, &sent) // what is no object has none
	_, ok := sent[name]
	return ok
}

// sameJSON compares two values whatever their white space.
func sameJSON(a, b json.RawMessage) bool {
	var x, y bytes.Buffer
	return json.Compact(&x, a) == nil && json.Compact(&y, b) == nil && bytes.Equal(x.Bytes(), y.Bytes())
}

// IsNull reports whether the body has null for a field.
func IsNull(ctx context.Context, name string) bool {
	var sent map[string]json.RawMessage
	return json.Unmarshal(From(ctx).Body, &sent) == nil && bytes.Equal(bytes.TrimSpace(sent[name]), []byte("null"))
}
