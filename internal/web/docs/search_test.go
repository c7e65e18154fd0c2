package docs

import (
	"strings"
	"testing"
)

// Each query's first result is the page that answers it. A page is a guide's name, with #section for long guides.
func TestSearch(t *testing.T) {
	t.Parallel()
	d := small()
	for _, tt := range []struct{ query, first string }{
		{"SPA", "redirects"},
		{"single page app 404 on reload", "redirects"},
		{"move from Netlify", "from-netlify"},
		{"migrate from vercel", "from-vercel"},
		{"heroku", "from-heroku"},
		{"moving from kinsta", "from-kinsta"},
		{"nextjs", "applications"},
		{"deploy next.js", "applications"},
		{"connect to database", "applications#databases"},
		{"mysql password", "applications#databases"},
		{"postgres", "configuration#postgresql"},
		{"redis", "applications#redis"},
		{"cron", "applications#workers-scheduled-commands-and-one-off-commands"},
		{"cron jobs", "applications#workers-scheduled-commands-and-one-off-commands"},
		{"background worker", "applications#workers-scheduled-commands-and-one-off-commands"},
		{"custom domain", "domains"},
		{"add a domain", "domains"},
		{"CNAME record", "domains"},
		{"ssl certificate", "domains#certificates"},
		{"let's encrypt", "domains"},
		{"wildcard", "domains#wildcards"},
		{"www redirect", "domains#www-and-the-apex"},
		{"environment variables", "cli-env"},
		{"env vars", "cli-env"},
		{"secrets", "cli-env#secrets"},
		{"build failed", "builds"},
		{"build settings", "builds"},
		{"build cache", "builds#caches"},
		{"redirects", "redirects"},
		{"redirect", "redirects"},
		{"_redirects file", "redirects"},
		{"custom headers", "redirects"},
		{"cors", "redirects"},
		{"basic auth", "redirects#protection"},
		{"password protect", "redirects#protection"},
		{"preview deployments", "git"},
		{"pull request from fork", "git#pull-requests-from-forks"},
		{"github actions", "github-actions"},
		{"deploy a folder", "cli-deploy"},
		{"rollback", "applications#deployments-rollbacks-restarts"},
		{"roll back", "applications#deployments-rollbacks-restarts"},
		{"logs", "cli-logs"},
		{"tail logs", "applications#logs"},
		{"verify webhook signature", "webhooks#verify-the-signature"},
		{"webhook retries", "webhooks"},
		{"hmac", "webhooks"},
		{"backup", "backups"},
		{"restore a backup", "backups"},
		{"download a backup", "backups"},
		{"terraform", "terraform"},
		{"mcp", "mcp"},
		{"claude", "mcp"},
		{"kubernetes", "kubernetes"},
		{"laravel", "php"},
		{"composer", "php"},
		{"wordpress staging", "wordpress#staging"},
		{"import wordpress", "wordpress#import"},
		{"plugin updates", "wordpress#updates"},
		{"page cache", "wordpress#page-cache"},
		{"invite a colleague", "teams#invitations"},
		{"two-factor", "teams#two-factor-authentication"},
		{"transfer site", "teams#transfer-a-site"},
		{"roles", "teams#roles"},
		{"saml", "sso"},
		{"oauth", "oauth"},
		{"upgrade slipway", "upgrades"},
		{"first hour after the installation", "install#the-first-hour"},
		{"s3 bucket", "configuration#files-in-an-object-store"},
		{"rate limit", "#limits"},
		{"idempotency", "#idempotency"},
		{"pagination", "#paging"},
		{"authentication", "#authentication"},
		{"scopes", "#scopes"},
		{"redirets", "redirects"},
		{"databse", "applications#databases"},
		{"wordpres", "wordpress"},
		{"kuberntes", "kubernetes"},
		{"terraf", "terraform"},
	} {
		hits := d.index.search(tt.query)
		if len(hits) == 0 {
			t.Errorf("%q finds nothing", tt.query)
			continue
		}
		got := strings.TrimPrefix(strings.TrimPrefix(hits[0].Href, "/docs"), "/guides/")
		if page, section, _ := strings.Cut(got, "#"); got != tt.first && !(page == tt.first && (section != "" && !strings.Contains(tt.first, "#"))) {
			var all []string
			for _, h := range hits[:min(len(hits), 4)] {
				all = append(all, strings.TrimPrefix(strings.TrimPrefix(h.Href, "/docs"), "/guides/"))
			}
			t.Errorf("%q finds %q first, want %s", tt.query, all, tt.first)
		}
	}
	for _, query := range []string{"zeppelin", "", "   ", "\x00", "日本", "'\"<>", strings.Repeat("qx", 50)} {
		if hits := d.index.search(query); len(hits) != 0 {
			t.Errorf("%q finds %v", query, hits[0])
		}
	}
}

func TestNear(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		a, b string
		n    int
		want bool
	}{
		{"same", "same", 0, true},
		{"databse", "database", 1, true}, // one letter missing
		{"domainn", "domain", 1, true},   // one letter added
		{"dimain", "domain", 1, true},    // one letter changed
		{"doamin", "domain", 1, true},    // two letters swapped
		{"dimian", "domain", 1, false},   // two changes
		{"kuberntse", "kubernetes", 2, true},
		{"a", "abc", 1, false},
		{"", "", 0, true},
	} {
		if got := near(tt.a, tt.b, tt.n); got != tt.want {
			t.Errorf("near(%q, %q, %d) = %v", tt.a, tt.b, tt.n, got)
		}
	}
}

func BenchmarkSearch(b *testing.B) { // the worst case: eight words that are on no page
	d := small()
	for b.Loop() {
		d.index.search("kuberntse databsae dimian wordprses terrafrom redircets certificta backpus")
	}
}
