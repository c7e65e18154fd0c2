package builds

import "testing"

// A build can run packages that it installs globally, in the same command and in later commands. The package is a
// folder of the repository, so the test needs no registry.
func TestGlobalInstall(t *testing.T) {
	t.Parallel()
	h := newHarness(t, 0, "--builds", "1")
	h.commit("acme/global", map[string]string{
		"package.json":      `{"name":"x","version":"1.0.0","private":true,"scripts":{"build":"greet dist"}}`,
		"slipway.toml":      "[build]\ninstall = \"npm install -g ./tool && greet early\"\ncommand = \"npm run build && npm ls -g\"\noutput = \"dist\"\n",
		"tool/package.json": `{"name":"tool","version":"1.2.3","bin":{"greet":"greet.js"}}`,
		"tool/greet.js":     "#!/usr/bin/env node\nconst fs = require('fs')\nfs.mkdirSync(process.argv[2])\nfs.writeFileSync(process.argv[2] + '/index.html', 'greetings from a global tool')\n",
	})
	s := h.site("acme/global", nil)
	h.built(s, h.first(s))
	h.shows(s.URL+"/", "greetings from a global tool")
}
