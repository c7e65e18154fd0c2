package webhook

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	standard "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"slipway/internal/platform/db"
	"slipway/internal/platform/dbtest"
	"slipway/internal/tenant/webhook/event"
)

// mains turn each language's function of docs/webhooks.md into a program that reads cases as JSON and prints y or n for
// each.
var mains = map[string]struct {
	file, before, after string
	run                 []string
}{
	"go": {"main.go", "", `
func main() {
	var cases []struct{ Secret string; Headers map[string]string; Body []byte }
	json.NewDecoder(os.Stdin).Decode(&cases)
	for _, c := range cases {
		h := http.Header{}
		for k, v := range c.Headers { h.Set(k, v) }
		if Verify(c.Secret, h, c.Body) { fmt.Print("y") } else { fmt.Print("n") }
	}
}`, []string{"go", "run", "main.go"}},
	"js": {
		"main.js",
		"",
		`
for (const c of JSON.parse(require("fs").readFileSync(0))) process.stdout.write(verify(c.Secret, c.Headers, Buffer.from(c.Body, "base64")) ? "y" : "n");`,
		[]string{"node", "main.js"},
	},
	"php": {
		"main.php",
		"<?php\n",
		`
foreach (json_decode(stream_get_contents(STDIN), true) as $c) echo verify($c['Secret'], $c['Headers'], base64_decode($c['Body'])) ? 'y' : 'n';`,
		[]string{"php", "main.php"},
	},
	"python": {
		"main.py",
		"",
		`
import json, sys
for c in json.load(sys.stdin): print("y" if verify(c["Secret"], c["Headers"], base64.b64decode(c["Body"])) else "n", end="")`,
		[]string{"python3", "main.py"},
	},
}

// testCase is a delivery and whether a receiver with the secret must accept it.
type testCase struct {
	Secret  string
	Headers map[string]string
	Body    []byte
	good    bool
}

// The receivers in the docs, and the public library, accept real deliveries before, during and after a rotation, and
// refuse changed ones.
func TestReceiversOfTheDocument(t *testing.T) {
	t.Parallel()
	r := receive(t, nil)
	w := newWebhooks(t, dbtest.New(t), r, nil)
	start(t, w)
	made, err := w.Create(t.Context(), anna, NewWebhook{URL: r.URL + "/generated", Events: []string{"site.created"}})
	if err != nil {
		t.Fatal(err)
	}
	given := create(t, w, r.URL+"/given", "site.created")
	generated, err := w.Reveal(t.Context(), anna, made.ID)
	if err != nil {
		t.Fatal(err)
	}
	emit(t, w, event.SiteCreated(someSite))
	r.wait(t, 2)
	next := "a newer one of theirs"
	if err := w.c.DB.Write(t.Context(), func(tx *db.Tx) error {
		return second(w.RotateTx(t.Context(), tx, anna, given.ID, &next, time.Hour))
	}); err != nil {
		t.Fatal(err)
	}
	emit(t, w, event.SiteCreated(event.Site{ID: "site_2", Name: "ümlaut & <tag> \u2028"}))
	var cases []testCase
	for i, q := range r.wait(t, 4) {
		h := map[string]string{}
		for k, v := range q.header {
			h[strings.ToLower(k)] = v[0]
		}
		add := func(secret, body string, good bool, change ...string) {
			of := map[string]string{}
			for k, v := range h {
				of[k] = v
			}
			for i := 0; i < len(change); i += 2 {
				of[change[i]] = change[i+1]
			}
			cases = append(cases, testCase{secret, of, []byte(body), good})
		}
		mine := generated
		if q.path == "/given" {
			mine = secret
			add(next, q.body, i >= 2)
		}
		add(mine, q.body, true)
		add("whsec_"+base64.StdEncoding.EncodeToString([]byte("somebody else's secret")), q.body, false)
		add(mine, q.body+" ", false)
		add(mine, q.body, false, "webhook-timestamp", "1767225600")
		add(mine, q.body, false, "webhook-id", "evt_other")
		add(mine, q.body, false, "webhook-signature", "v1,AAAA")
		add(mine, q.body, false, "webhook-signature", "")
		add(mine, q.body, false, "webhook-timestamp", "now")
	}
	want := ""
	for _, c := range cases {
		letter := "n"
		if c.good {
			letter = "y"
		}
		want += letter
		key := c.Secret
		if !strings.HasPrefix(key, "whsec_") {
			key = "whsec_" + base64.StdEncoding.EncodeToString([]byte(key))
		}
		library, err := standard.NewWebhook(key)
		if err != nil {
			if c.good {
				t.Errorf("the library refuses the secret: %v", err)
			}
			continue
		}
		h := http.Header{}
		for k, v := range c.Headers {
			h.Set(k, v)
		}
		if err := library.Verify(c.Body, h); (err == nil) != c.good {
			t.Errorf("the library says %v, want good: %v", err, c.good)
		}
	}
	input, err := json.Marshal(cases)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "webhooks.md"))
	if err != nil {
		t.Fatal(err)
	}
	blocks := map[string]string{}
	for _, m := range regexp.MustCompile("(?s)```(go|js|php|python)\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		blocks[m[1]] = m[2]
	}
	for language, m := range mains {
		t.Run(language, func(t *testing.T) {
			code := blocks[language]
			if code == "" {
				t.Fatal("the document has no receiver")
			}
			if language == "go" {
				code = strings.Replace(
					strings.Replace(code, "package receiver", "package main", 1),
					"import (",
					"import (\n\t\"encoding/json\"\n\t\"fmt\"\n\t\"os\"",
					1,
				)
			}
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, m.file), []byte(m.before+code+m.after), 0o600); err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), m.run[0], m.run[1:]...)
			cmd.Dir, cmd.Stdin = dir, bytes.NewReader(input)
			out, err := cmd.CombinedOutput()
			if err != nil || string(out) != want {
				t.Errorf("%s: %v\ngot  %s\nwant %s", strings.Join(m.run, " "), err, out, want)
			}
		})
	}
}
