package e2e

import (
	"archive/zip"
	"bytes"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"slipway/e2e/world"
	"slipway/internal/tenant/domain/dnstest"
)

var updateDocs = flag.Bool("update-docs", false, "write what the terminal shows into the guides, where it shows something else than they do")

// guides returns the guides. They share an installation, so their sites have different names.
func guides(t *testing.T, w *world.World, zone *dnstest.Zone) []world.Guide {
	page := map[string]string{"index.html": "<h1>Harbor</h1>\n"}
	return []world.Guide{
		{Name: "cli-sign-in", Email: "ada@example.com", Files: map[string]string{"key.txt": "$KEY\n"}},
		{
			Name: "cli-deploy", Email: "bea@example.com", Files: map[string]string{
				"harbor/index.html": "<h1>Harbor</h1>\n", "harbor/style.css": "h1 { color: navy }\n", "harbor/.env": "SECRET=1\n",
				"harbor/.gitignore": "*.log\n", "harbor/debug.log": "x\n",
			},
			Setup: []string{world.SignIn, "cd harbor"},
		},
		{
			Name: "cli-logs", Email: "cyd@example.com", Files: map[string]string{
				"clock/package.json": `{"name": "clock", "private": true, "scripts": {"start": "node server.js"}}`,
				"clock/server.js": `const http = require('http')
console.log('Listening on port', process.env.PORT)
console.log('No time zone is set')
http.createServer((q, r) => r.end('up')).listen(process.env.PORT)
`,
				"quay/index.html": "<h1>Quay</h1>\n",
			},
			Setup: []string{world.SignIn, "cd quay", "slipway init", "slipway deploy", "cd ../clock", "slipway init", "slipway deploy", "until slipway logs | grep -q zone; do sleep 0.1; done"},
		},
		{
			Name: "cli-env", Email: "dan@example.com", Files: map[string]string{
				"shop/index.html": "<h1>Shop</h1>\n", "shop/print.js": "console.log(process.env.GREETING)\n", "shop/mailbox-key.txt": "sk_live_0123456789\n",
			},
			Setup: []string{world.SignIn, "cd shop", "slipway init"},
		},
		{
			Name: "cli-domains", Email: "eve@example.com", Files: page,
			Setup: []string{world.SignIn, "slipway init --name Journal"},
		},
		{
			Name: "cli-backups", Email: "fay@example.com", Files: page,
			Setup: []string{world.SignIn, "slipway init --name Archive", "slipway deploy"},
		},
		{
			Name: "cli-databases", Email: "lea@example.com", Files: page, Setup: []string{
				world.SignIn, "slipway init --name Ledger",
				`slipway api POST "/sites/$(grep -o 'site_[a-z0-9]*' .slipway/project.json)/databases" -f engine=mariadb`,
				"until slipway db list | grep -q 'active[[:space:]]*[0-9]'; do sleep 0.2; done",
			},
		},
		changingOver(t, w, zone),
		listening(t, w),
		imported(t, "netlify", "gus@example.com", map[string]string{
			"/sites?filter=all&page=1&per_page=100": `[{"id": "n1", "name": "harbor", "account_id": "a1", "custom_domain": "harbor.example", "domain_aliases": ["www.harbor.example"],
				"build_settings": {"repo_url": "https://github.com/acme/harbor", "repo_branch": "main", "cmd": "npm run build", "dir": "web/dist", "base": "web"}}]`,
			"/accounts/a1/env?site_id=n1": `[{"key": "GREETING", "values": [{"value": "hello", "context": "all"}]},
				{"key": "API_TOKEN", "values": [{"value": "t0ken", "context": "production"}]}, {"key": "MAILBOX_KEY", "is_secret": true, "values": [{"value": "", "context": "all"}]}]`,
			"/sites/n1/forms": `[{"name": "contact"}]`, "/sites/n1/snippets": `[]`,
		}),
		imported(t, "vercel", "hal@example.com", map[string]string{
			"/v10/projects?limit=100": `{"projects": [{"id": "prj_1", "name": "shop", "framework": "nextjs", "rootDirectory": "apps/shop", "nodeVersion": "22.x",
				"link": {"type": "github", "org": "acme", "repo": "shop", "productionBranch": "main"},
				"crons": {"definitions": [{"path": "/api/cron", "schedule": "0 3 * * *"}]}}], "pagination": {"next": null}}`,
			"/v10/projects/prj_1/env": `{"envs": [{"id": "e1", "key": "SITE_NAME", "value": "Shop", "type": "plain", "target": ["production", "preview"]},
				{"id": "e2", "key": "PAYMENT_SECRET", "value": "", "type": "sensitive", "target": ["production"]}]}`,
			"/v9/projects/prj_1/domains": `{"domains": [{"name": "shop.vercel.app"}, {"name": "shop.example"}]}`,
		}),
		{Name: "from-kinsta", Email: "jon@example.com", Files: map[string]string{"kinsta-backup.zip": kinsta(t)}, Setup: []string{world.SignIn}},
	}
}

// changingOver returns the guide for moving a domain: it is verified, but its DNS still points to an old site, which
// has one more page.
func changingOver(t *testing.T, w *world.World, zone *dnstest.Zone) world.Guide {
	old := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		page := map[string]string{
			"/": "<title>Harbor</title>", "/about": "<title>About us</title>",
			"/sitemap.xml": "<urlset><url><loc>http://HOST/</loc></url><url><loc>http://HOST/about</loc></url></urlset>",
		}[r.URL.Path]
		fmt.Fprint(rw, strings.ReplaceAll(page, "HOST", r.Host))
	}))
	t.Cleanup(old.Close)
	zone.Authoritative(true)
	zone.Set("harbor.example", "A 192.0.2.1")
	zone.Tamper(func(q dns.Question, m *dns.Msg) {
		for _, rr := range m.Answer {
			if rr.Header().Name == "harbor.example." {
				rr.Header().Ttl = 3600
			}
		}
	})
	value := regexp.MustCompile(`slipway-[a-z0-9]{32}`)
	const plan = "slipway domains plan harbor.example -s lighthouse"
	return world.Guide{
		Name: "moving", Email: "max@example.com", Files: map[string]string{"index.html": "<title>Harbor</title>\n"},
		Setup: []string{
			world.SignIn, "export SSL_CERT_FILE=" + root(t, w) + " HTTPS_PROXY=" + toSites(t, w).URL, "slipway init --name Lighthouse",
			// The edge serves a new site a moment later.
			`curl -s -o /dev/null --retry 60 --retry-delay 1 --retry-all-errors "$(slipway deploy)"`, "slipway domains add harbor.example",
			"slipway domains verify harbor.example",
		},
		Replace: []string{plan, plan + " --from " + old.URL, "https://harbor.example", old.URL, "203.0.113.5", "127.0.0.1"},
		React: func(shown string) string {
			if v := value.FindString(shown); v != "" {
				zone.Set("_slipway.harbor.example", `TXT "`+v+`"`)
			}
			return ""
		},
	}
}

// root returns a file with the certificate authority of the sites.
func root(t *testing.T, w *world.World) string {
	t.Helper()
	out, err := w.CLI("", "ca", "export")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "root.pem")
	if err := os.WriteFile(file, []byte(out), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// toSites starts a proxy that forwards every connection to the sites, because not all systems resolve names under
// localhost.
func toSites(t *testing.T, w *world.World) *httptest.Server {
	s := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		site, err := net.Dial("tcp", w.HTTPS)
		if err != nil {
			rw.WriteHeader(http.StatusBadGateway)
			return
		}
		defer site.Close()
		rw.WriteHeader(http.StatusOK)
		client, buffered, err := http.NewResponseController(rw).Hijack()
		if err != nil {
			return
		}
		defer client.Close()
		go func() {
			_, _ = io.Copy(site, buffered) // the client's first bytes may be buffered already
			site.Close()
		}()
		_, _ = io.Copy(client, site)
	}))
	t.Cleanup(s.Close)
	return s
}

// listening returns a guide in which events are created while the terminal listens for them. It stops listening after
// they were shown.
func listening(t *testing.T, w *world.World) world.Guide {
	created, ended := false, false
	return world.Guide{
		Name: "cli-webhooks", Email: "kim@example.com", Setup: []string{world.SignIn, "export SLIPWAY_KEY=$KEY"},
		React: func(shown string) string {
			switch {
			case strings.Contains(shown, "Listening") && !created:
				created = true
				key, err := w.Key("kim@example.com")
				if err == nil {
					err = w.Call(t.Context(), key, "POST", "/sites", map[string]string{"name": "Ferry", "type": "static", "source": "upload"}, nil)
				}
				if err != nil {
					t.Error(err)
				}
			case strings.Contains(shown, `"event":"site.created"`) && strings.HasSuffix(shown, "}\n") && !ended:
				ended = true
				return "\x03"
			}
			return ""
		},
	}
}

// imported returns the guide for importing from a platform, with the platform's responses by path and query.
func imported(t *testing.T, platform, email string, answers map[string]string) world.Guide {
	srv := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if answer, ok := answers[r.URL.RequestURI()]; ok {
			fmt.Fprint(rw, answer)
			return
		}
		t.Logf("%s: nobody expected %s", platform, r.URL.RequestURI())
		rw.WriteHeader(http.StatusNotFound)
	}))
	t.Cleanup(srv.Close)
	command := "slipway import " + platform
	return world.Guide{
		Name: "from-" + platform, Email: email, Setup: []string{world.SignIn},
		Replace: []string{command, command + " --api " + srv.URL},
	}
}

// kinsta returns a backup like Kinsta's: the site's files and a database dump.
func kinsta(t *testing.T) string {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for _, f := range [][2]string{
		{"public/index.php", "<?php\n"},
		{"public/wp-config.php", "<?php\n$table_prefix = 'wp_';\n"},
		{"public/wp-content/themes/harbor/style.css", "/* Theme Name: Harbor */\n"},
		{"public/wp-content/uploads/2026/11/boat.txt", "a boat\n"},
		{"harbor.sql", "CREATE TABLE `wp_options` (\n  option_id bigint\n);\nINSERT INTO `wp_options` VALUES (1,'siteurl','https://harbor.example','yes');\n"},
	} {
		file, err := z.Create(f[0])
		if err == nil {
			_, err = file.Write([]byte(f[1]))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// Guides show what a terminal shows: the commands in their blocks are run in order, in a terminal, with a real
// installation. -update-docs writes the current output into the guides.
func TestDocumentedTerminal(t *testing.T) {
	t.Parallel()
	w, err := world.New(binary, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	zone := dnstest.New(t)
	w.Flags = append(w.Flags, "--base-url", "http://"+w.Listen, "--dns-resolver", zone.Addr)
	ctx, cancel := deadline()
	defer cancel()
	if err := w.Start(ctx); err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{"cli-wordpress": true} // tested in e2e/wordpress
	for _, g := range guides(t, w, zone) {
		known[g.Name] = true
		t.Run(g.Name, func(t *testing.T) {
			if err := w.RunGuide(t.Context(), g, t.TempDir(), *updateDocs); err != nil {
				t.Error(err)
			}
		})
	}
	all, err := filepath.Glob(world.GuidePath("*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range all {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if name := strings.TrimSuffix(filepath.Base(file), ".md"); world.TerminalBlock.Match(text) && !known[name] {
			t.Errorf("%s shows a terminal, and no test runs its commands: add it to guides", name)
		}
	}
}
