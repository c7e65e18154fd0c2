package api_test

import (
	"encoding/json"
	"maps"
	"net/url"
	"regexp"
	"strings"
	"testing"
)

// hostile lists values sent in place of the expected ones.
var hostile = []string{
	`null`, `""`, `" "`, `0`, `-1`, `1e400`, `123456789012345678901234567890`, `1.5`, `true`, `[]`, `{}`, `[null]`,
	`[[]]`, `[""]`, `{"a":{"b":[]}}`, `"\ud800"`, `"\u202e\u0007"`,
	`"` + strings.Repeat("ä", 40_000) + `"`,
	`"../../etc/passwd"`, `"'; DROP TABLE sites; --"`, `"--upload-pack=id"`, `"\t\r\n"`, `"%00%ff"`, `"xn--a"`,
	`"https://[::1]:99999/"`, `"2999-13-45T99:99:99Z"`, `["sites:read","sites:read",null]`,
}

// For any value in any field, the response is a success or a client error, never a 5xx.
func TestHostileBodies(t *testing.T) {
	t.Parallel()
	for _, r := range routesOf(newWorld(t)) {
		row := matrix[r.ID]
		fields := map[string]bool{"no-such-field": true}
		if b, ok := row.body.(m); ok {
			for f := range b {
				fields[f] = true
			}
		}
		for _, f := range optional[r.ID] {
			fields[f] = true
		}
		if r.Method != "POST" && r.Method != "PATCH" || r.Hook {
			continue
		}
		t.Run(r.ID, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			u, key := w.user("a@example.test")
			x := w.belongings(u, key)
			try := func(body string) {
				t.Helper()
				a := w.api(r.Method, x.fill(row.path), key, body)
				common(t, r.ID, a)
				if a.status >= 500 {
					t.Errorf("%.200s: %s", body, a)
				}
			}
			for _, v := range hostile {
				try(v)
				for f := range fields {
					whole := map[string]json.RawMessage{}
					if b, ok := row.body.(m); ok {
						for k, v := range b {
							whole[k] = json.RawMessage(mustJSON(t, v))
						}
					}
					maps.Copy(whole, map[string]json.RawMessage{f: json.RawMessage(v)})
					parts := []string{}
					for k, v := range whole { // by hand, because encoding/json refuses some of the values
						parts = append(parts, mustJSON(t, k)+":"+string(v))
					}
					try("{" + strings.Join(parts, ",") + "}")
				}
			}
		})
	}
}

// optional lists fields that the matrix doesn't send.
var optional = map[string][]string{
	"createSite":    {"branch", "framework", "build"},
	"updateSite":    {"repository", "branch", "framework", "build"},
	"deploySite":    {"branch", "commit", "target", "clearCache", "title"},
	"createHook":    {"branch", "anyBranch"},
	"updateHook":    {"name", "branch", "anyBranch", "rotate"},
	"setEnv":        {"secret", "target"},
	"updateEnv":     {"secret", "target"},
	"createWebhook": {"secret"},
	"updateWebhook": {"url", "events"},
	"createKey":     {"sites", "addresses", "expiresAt"},
	"createDomain":  {"redirectTo", "primary"},
	"updateDomain":  {"primary"},
	"rollbackSite":  {"deploymentId"},
}

var placeholder = regexp.MustCompile(`\{[A-Za-z]+\}`)

// For any value in a path or query, the response is never a 5xx, and an invalid ID is a 404.
func TestHostilePaths(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	u, key := w.user("a@example.test")
	x := w.belongings(u, key)
	ids := []string{
		"x", "site_", "'", "%", "_", "..", "a b", "é", "\u202e",
		strings.Repeat("a", 4000),
		"site_" + strings.Repeat("2", 26),
		"dep_", "dpl_", "dhk_", "\\", "null", "0", "*", "{id}", "a;b", "a?b", "a#b",
	}
	for _, r := range routesOf(w) {
		path := "/api/v1" + r.Path
		if r.Hook {
			path = r.Path
		}
		if placeholder.MatchString(path) {
			for _, id := range ids {
				p := placeholder.ReplaceAllLiteralString(path, url.PathEscape(id))
				a := w.send(r.Method, p, key, bodyFor(r.Method, r.ID))
				common(t, p, a)
				if r.Operator && a.status == 403 {
					continue
				}
				if a.status != 404 && !(r.Method == "POST" && a.status == 400) && !(a.status == 400 && (r.Method == "PATCH" || r.Method == "PUT" || r.ID == "deleteTeam")) {
					t.Errorf("%s %.80s: %s", r.Method, p, a)
				}
			}
		}
		if r.Method != "GET" || r.Open {
			continue
		}
		for _, q := range []string{
			"page=99999999999999999999999", "page=+1", "page=1e3", "page=１", "limit=0x10", "limit=-0", "limit=%205",
			"page[]=1", "page=1&page=x", "limit=100&limit=0", "type=static;status=active",
			"a=" + strings.Repeat("b", 8000),
			"page=2147483648&limit=100", "after=9223372036854775808", "&&&=&", "=", "type=STATIC", "status=active%20",
		} {
			a := w.api("GET", x.fill(matrix[r.ID].path)+"?"+q, key, nil)
			common(t, q, a)
			if a.status >= 500 {
				t.Errorf("%s?%.60s: %s", r.Path, q, a)
			}
		}
	}
	if logs := w.logs.String(); strings.Contains(logs, "level=ERROR") {
		t.Error("something was an error of ours")
	}
}

func bodyFor(method, id string) any {
	if method == "POST" || method == "PATCH" {
		if b := matrix[id].body; b != nil {
			return b
		}
	}
	return nil
}
