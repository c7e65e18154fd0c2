package builds

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// leaky prints a secret in many encodings, on stdout and stderr.
const leaky = `
const s = process.env.API_TOKEN, { spawnSync } = require('child_process')
console.log('plain ' + s)
console.error('twice ' + s + s)
for (const c of s) { process.stdout.write(c); Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 3) }
console.log()
process.stdout.write('split ' + s.slice(0, 9)); Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 250); console.log(s.slice(9))
for (let pad = 0; pad < 3; pad++) console.log('base64 ' + Buffer.from('x'.repeat(pad) + s + 'yz').toString('base64'))
console.log('base64url ' + Buffer.from(s).toString('base64url'))
console.log('url ' + encodeURIComponent(s))
console.log('query ' + new URLSearchParams({ s }))
console.log('hex ' + Buffer.from(s).toString('hex') + ' ' + Buffer.from(s).toString('hex').toUpperCase())
console.log('json ' + JSON.stringify({ s }))
console.log('colors \x1b[31m' + s.slice(0, 7) + '\x1b[0m' + s.slice(7))
console.log('env ' + JSON.stringify(process.env))
const r = spawnSync('ls', ['--no-such-' + s], { stdio: 'inherit' })
throw new Error('failing with ' + s)
`

// Values of secret variables don't appear in any log, stream, API response or database, nor in the program's own log,
// in whatever encoding a build prints them.
func TestSecrets(t *testing.T) {
	t.Parallel()
	h := newHarness(t, 0, "--builds", "2")
	secret := `tok+en/with=odd "chars" & 7f3a9c21`
	lines := "-----BEGIN KEY-----\nc2VjcmV0IGtleSBvZiBzZXZlcmFsIGxpbmVz\nYW5vdGhlciBsaW5lIG9mIHRoYXQga2V5\n-----END KEY-----"
	h.commit("acme/leaky", node(leaky+"\n"))
	// The failing command contains the secret too.
	s := h.site("acme/leaky", map[string]any{
		"build": map[string]any{"command": "node build.cjs || { echo \"$KEY_FILE\"; ls --no-\"$API_TOKEN\"; exit 3; }"},
	})
	id := h.first(s)
	h.cancel(s, id)
	h.wait(s, id)
	for k, v := range map[string]string{"API_TOKEN": secret, "KEY_FILE": lines} {
		h.call(h.key, "POST", "/sites/"+s.ID+"/env", map[string]any{"key": k, "value": v, "secret": true, "target": []string{"build"}}, nil)
	}
	id = h.deploy(s, nil)
	stream := h.follow(s, id)
	d := h.failed(s, id, "exit code 3")
	log := h.log(s, id)
	for _, want := range []string{"plain [secret]", "env {", "Error: failing with [secret]"} {
		if !strings.Contains(log, want) {
			t.Errorf("the log does not say %q:\n%s", want, log)
		}
	}
	forms := map[string]string{
		"plain":                 secret,
		"half":                  secret[:14],
		"base64":                base64.StdEncoding.EncodeToString([]byte(secret))[:36],
		"raw":                   base64.RawURLEncoding.EncodeToString([]byte(secret))[:36],
		"base64 after one byte": base64.StdEncoding.EncodeToString([]byte("x" + secret))[4:36],
		"base64 after two":      base64.StdEncoding.EncodeToString([]byte("xx" + secret))[4:36],
		"url":                   url.QueryEscape(secret),
		"path":                  url.PathEscape(secret),
		"hex":                   hex.EncodeToString([]byte(secret)),
		"HEX":                   strings.ToUpper(hex.EncodeToString([]byte(secret))),
		"json":                  strings.ReplaceAll(secret, `"`, `\"`),
		"line of a key":         "c2VjcmV0IGtleSBvZiBzZXZlcmFsIGxpbmVz",
	}
	shown := map[string]string{
		"the log":           log,
		"the stream":        <-stream,
		"the reason":        d.Error,
		"the plan":          string(d.Plan),
		"the program's log": h.Log(1 << 20),
	}
	var list bytes.Buffer
	a, err := h.Do(t.Context(), worldGet(h.key, "/sites/"+s.ID+"/env"))
	if err != nil {
		t.Fatal(err)
	}
	list.Write(a.Body)
	shown["the list of variables"] = list.String()
	for where, text := range shown {
		for form, value := range forms {
			if strings.Contains(text, value) {
				t.Errorf("%s shows the secret (%s)", where, form)
			}
		}
	}
	if !strings.Contains(shown["the stream"], "plain [secret]") {
		t.Errorf("the stream has nothing of the build: %.2000s", shown["the stream"])
	}
	if err := filepath.WalkDir(h.Data, func(name string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() || strings.Contains(name, "/builds/") && strings.Contains(name, "/tools/") {
			return err
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		for form, value := range forms {
			if bytes.Contains(text, []byte(value)) {
				t.Errorf("%s holds the secret (%s)", name, form)
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// follow returns the content of a deployment's live log, after it has ended.
func (h *harness) follow(s aSite, id string) <-chan string {
	h.t.Helper()
	out := make(chan string, 1)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	h.t.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, "GET", "http://"+h.Listen+"/api/v1/deployments/"+id+"/logs", nil)
	if err != nil {
		h.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+s.key)
	r.Header.Set("Accept", "text/event-stream")
	a, err := http.DefaultClient.Do(r)
	if err != nil {
		h.t.Fatal(err)
	}
	go func() {
		defer a.Body.Close()
		var text strings.Builder
		for lines := bufio.NewScanner(a.Body); lines.Scan(); {
			text.WriteString(lines.Text() + "\n")
			if strings.HasPrefix(lines.Text(), "event: end") {
				break
			}
		}
		out <- text.String()
	}()
	return out
}
