package contract

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestCheckJSON(t *testing.T) {
	t.Parallel()
	nest := func(n int) string { return strings.Repeat(`{"a":`, n) + "1" + strings.Repeat("}", n) }
	for body, ok := range map[string]bool{
		`{}`:                                  true,
		`[]`:                                  true,
		" {\n} ":                              true,
		`{"a":{"a":1},"b":[{"a":1},{"a":2}]}`: true,
		nest(32):                              true,
		`{"é":"\u00e9"}`:                      true,
		``:                                    false,
		`null`:                                true,
		`1`:                                   false,
		`"x"`:                                 false,
		`true`:                                false,
		`{`:                                   false,
		`{}{}`:                                false,
		`{} x`:                                false,
		"\xef\xbb\xbf{}":                      false,
		`{"a":1,"a":1}`:                       false,
		`{"a":1,"A":1}`:                       false,
		`{"secret":1,"ſecret":1}`:             false,
		`{"k":1,"\u212a":1}`:                  false,
		`{"b":{"x":1,"x":2}}`:                 false,
		`[{"x":1,"x":2}]`:                     false,
		"{\"a\":1,\"\\u0061\":2}":             false,
		nest(33):                              false,
		strings.Repeat("[", 100_000):          false,
		strings.Repeat("[", 50) + strings.Repeat("]", 50): false,
		"{\"a\":\"\xff\"}": false,
		`{"a":"\u0000"}`:   false,
		`{"a\u0000":1}`:    false,
		"{\"a\":\"\x00\"}": false,
		`{a:1}`:            false,
		`{"a":01}`:         false,
		`{"a":NaN}`:        false,
	} {
		err := error(nil)
		if body == "" {
			err = checkJSON([]byte(" "))
		} else {
			err = checkJSON([]byte(body))
		}
		if (err == nil) != ok {
			t.Errorf("%.60q: %v, want accepted %v", body, err, ok)
		}
	}
}

// An accepted body is a UTF-8 object or array that every parser reads the same way, without NUL and duplicate names.
// checkJSON never panics.
func FuzzCheckJSON(f *testing.F) {
	for _, s := range []string{
		`{"a":[1,{"b":null}]}`, `[`, `{"a":1,"A":2}`, `{"a":"\ud800"}`, "{\"\":\"\\u0000\"}", `[[[[]]]]`,
		`{"a":{"a":{}}}`, `{"k":"v","k2":["x"]}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		if len(bytes.TrimSpace(body)) == 0 || checkJSON(body) != nil {
			return
		}
		var v any
		if !utf8.Valid(body) || json.Unmarshal(body, &v) != nil {
			t.Fatalf("%q was accepted", body)
		}
		names := 0
		var walk func(v any, depth int)
		walk = func(v any, depth int) {
			switch v := v.(type) {
			case map[string]any:
				depth++
				folded := map[string]bool{}
				for k, x := range v {
					names++
					if strings.ContainsRune(k, 0) || folded[strings.ToLower(k)] {
						t.Fatalf("%q holds the name %q", body, k)
					}
					folded[strings.ToLower(k)] = true
					walk(x, depth)
				}
			case []any:
				depth++
				for _, x := range v {
					walk(x, depth)
				}
			case string:
				if strings.ContainsRune(v, 0) {
					t.Fatalf("%q holds NUL", body)
				}
			}
			if depth > maxDepth {
				t.Fatalf("%q is %d deep", body, depth)
			}
		}
		walk(v, 0)
		switch v.(type) {
		case map[string]any, []any:
		default:
			t.Fatalf("%q was accepted", body)
		}
		if err := checkJSON(append([]byte(" "), body...)); err != nil { // white space doesn't matter
			t.Fatal(err)
		}
	})
}
