package builds

import (
	"encoding/json"
	"strings"
	"testing"
)

// reader is a build program that requests a small document from the registry with various clients. None of them is
// configured to use a proxy.
const reader = `
const fs = require('fs'), https = require('https'), http = require('http'), dns = require('dns'), { spawnSync } = require('child_process')
const host = fs.readFileSync('host', 'utf8').trim(), url = 'https://' + host + '/is-odd'
const got = { node: process.version, proxy: Object.keys(process.env).filter((k) => /proxy/i.test(k)).join(' ') }
const name = (text) => JSON.parse(text).name
const get = (how, options) => new Promise((done) => how.get(url, options, (r) => {
  let text = ''
  r.on('data', (d) => { text += d }); r.on('end', () => { try { done(name(text)) } catch (e) { done(String(e)) } })
}).on('error', (e) => done(String(e))))
;(async () => {
  try { got.fetch = name(await (await fetch(url)).text()) } catch (e) { got.fetch = String(e.cause || e) }
  got.get = await get(https, {})
  got.agent = await get(https, { agent: new https.Agent({ keepAlive: false, family: 4 }) })
  const py = spawnSync('python3', ['-c', 'import json,sys,urllib.request; print(json.load(urllib.request.urlopen(sys.argv[1]))["name"])', url], { encoding: 'utf8' })
  got.python = py.stdout.trim() || py.stderr
  // Not by fetch, which gives up on a connection after 10 s, however busy the machine is.
  // A registry may refuse one of so many at once, so each is tried twice.
  const twice = async () => { const n = await get(https, { agent: false }); return n === 'is-odd' ? n : get(https, { agent: false }) }
  got.many = (await Promise.all(Array.from({ length: 60 }, twice))).filter((n) => n !== 'is-odd').join()
  got.plain = await new Promise((done) => http.get('http://' + host + '/is-odd', (r) => { r.resume(); done(r.statusCode > 0 ? 'answered' : '') }).on('error', (e) => done(String(e))))
  got.missing = await dns.promises.lookup('no-such-host.invalid').then(String, (e) => e.code)
  got.resolve = await dns.promises.resolve4(host).then((a) => a[0].split('.')[0], (e) => e.code)
  got.six = await dns.promises.resolve6(host).then(String, (e) => e.code)
  got.refused = await fetch('https://' + host + ':8443/').then(String, (e) => e.cause.code)
  fs.mkdirSync('dist'); fs.writeFileSync('dist/got.json', JSON.stringify(got)); fs.writeFileSync('dist/index.html', 'read')
})()
`

// Programs in a build reach public hosts without knowing about the proxy, with old and new versions of Node.js, as root
// and as a plain user.
func TestNetwork(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, as int) {
		h := newHarness(t, as, "--builds", "2")
		// The version that isn't the host's is exact, because finding the newest 18.x would download a document of many
		// megabytes.
		for _, version := range []string{"18.20.8", "20"} {
			t.Run(version, func(t *testing.T) {
				t.Parallel()
				h := *h
				h.t = t
				files := node(reader)
				files["host"], files["package.json"] = registryHost(
					t,
				), `{"name": "reader", "private": true, "engines": {"node": "`+version+`"}}`
				h.commit("acme/reader-"+version, files)
				s := h.site("acme/reader-"+version, nil)
				h.built(s, h.first(s))
				got := map[string]string{}
				if err := json.Unmarshal(h.shows(s.URL+"/got.json", "{").Body, &got); err != nil {
					t.Fatal(err)
				}
				for what, want := range map[string]string{
					"fetch":   "is-odd",
					"get":     "is-odd",
					"agent":   "is-odd",
					"python":  "is-odd",
					"many":    "",
					"plain":   "answered",
					"proxy":   "",
					"missing": "ENOTFOUND",
					"resolve": "198",
					"six":     "ENODATA",
					"refused": "ECONNREFUSED",
				} {
					if got[what] != want {
						t.Errorf("%s: %q, want %q", what, got[what], want)
					}
				}
				if !strings.HasPrefix(got["node"]+".", "v"+version+".") {
					t.Errorf("the build ran on Node %s", got["node"])
				}
			})
		}
	})
}
