//go:build browser

package browser

import (
	"net/http"
	"strings"
)

// first is the program of a site that npm builds. It prints a line before each gate.
const first = `console.log('Charting the course')
await pass('first')
console.log('Weighing anchor')
await pass('second')
console.log('Under way')
page('Hello from the harbor')
`

func (s *story) newSite() {
	s.step("from a repository to a live page, with a live log")
	s.commit("acme/harbor", "Lay the keel", s.project(first))
	s.Press("@empty a.primary")
	s.Look("new-site")
	s.Type("#f-repository", "git.test/acme/nowhere")
	s.Expect(http.StatusNotFound)
	s.Press("@continue")
	s.Sees("@wrong-repository")
	s.Look("new-site-wrong")
	s.Type("#f-repository", "git.test/acme/harbor")
	s.Press("@continue")
	s.Sees("@plan", "npm run build", "dist")
	s.Look("new-site-found")
	s.Press("@create")
	s.stays(func() {
		s.Sees("@log", "Charting the course")
		s.Sees("@deployment @status-building")
		s.Misses("@live-link")
		s.Look("building")
		s.open("first")
		s.Sees("@log", "Weighing anchor")
		s.Sees("@deployment @status-building")
		s.open("second")
		s.Sees("@log", "Under way")
		s.Sees("@deployment @status-success")
		s.Sees("@live-link", "harbor.localhost")
	})
	s.Look("live")
	s.site, _, _ = strings.Cut(s.Path(), "/deployments/")
	if got := s.Attr("@live-link", "href"); got != s.live {
		s.t.Errorf("the link leads to %s, want %s", got, s.live)
	}
	s.Press("@live-link")
	s.Sees("h1", "Hello from the harbor")
	s.answers(http.StatusOK, "Hello from the harbor")
	s.Go(s.site)
	s.Look("site")
}

// plainSite creates a site from files that need no build.
func (s *story) plainSite() {
	s.step("a site of plain files")
	s.commit("acme/leaflet", "Print it", map[string]string{
		"index.html": `<!doctype html><html lang="en"><title>Leaflet</title><link rel="icon" href="data:,"><h1>Just a leaflet</h1>`,
	})
	s.Go("/new")
	s.Type("#f-repository", "https://git.test/acme/leaflet.git")
	s.Press("@continue")
	s.Sees("@plan", "files are published as they are")
	s.Press("@create")
	s.Sees("@deployment @status-success")
	s.Press("@live-link")
	s.Sees("h1", "Just a leaflet")
}

// deployed presses a button that starts a deployment, and waits until it is live.
func (s *story) deployed(button string) {
	s.t.Helper()
	s.Press(button)
	s.Sees("@deployment @status-success")
}

func (s *story) variables() {
	s.step("variables: readable, secret, imported; in effect with a deployment")
	s.commit(
		"acme/harbor",
		"Say what the variables say",
		s.project(`page((process.env.GREETING ?? 'no greeting') + ' ' + (process.env.PORTS ?? ''))
console.log('the token is ' + process.env.TOKEN)
`),
	)
	s.Go(s.site + "/env")
	s.Look("env-empty")
	s.Type("#f-key", "GREETING")
	s.Type("#f-value", "Ahoy")
	s.Press("@add-var")
	s.Sees("@vars", "GREETING", "Ahoy")
	const secret = "tok-3c1f9d27ab"
	s.Type("#f-key", "TOKEN")
	s.Type("#f-value", secret)
	s.Until("the name ticks the box", `document.querySelector('[data-test="secret"]').checked`)
	s.Press("@add-var")
	s.Sees("@vars", "TOKEN")
	s.Sees("@needs-redeploy")
	s.hides(secret)
	s.Press(`a[href$="/env/var/TOKEN"]`)
	s.hides(secret)
	s.Look("env-secret")
	s.Go(s.site + "/env/import")
	s.Type("#f-text", "# harbours\nexport GREETING=\"Ahoy\"\nPORTS='Oslo, Bergen'\nTOKEN="+secret+"\n")
	s.Press("@preview")
	s.Sees("@changes", "PORTS", "Oslo, Bergen", "New", "GREETING")
	s.Look("env-import")
	s.Press("@apply")
	s.Sees("@vars", "PORTS", "Oslo, Bergen")
	s.hides(secret)
	s.Look("env")
	s.deployed("@deploy") // the banner's button would rebuild the live commit, but there is a newer commit
	s.Sees("@log", "the token is")
	s.hides(secret)
	s.Go(s.site + "/env")
	s.Misses("@needs-redeploy")
	s.answers(http.StatusOK, "Ahoy Oslo, Bergen")
}

// hides checks that the document doesn't contain a text.
func (s *story) hides(text string) {
	s.t.Helper()
	var shown bool
	if s.Eval(`document.documentElement.outerHTML.includes(`+quoted(text)+`)`, &shown); shown {
		s.t.Errorf("%s shows %q", s.Path(), text)
	}
}

func (s *story) goBack() {
	s.step("a second version, and back")
	s.commit("acme/harbor", "A second greeting", s.project(`page('A second greeting')`))
	s.Go(s.site)
	s.deployed("@deploy")
	s.answers(http.StatusOK, "A second greeting")
	s.Go(s.site + "/deployments")
	s.Look("deployments")
	s.Click(".dep:nth-child(2) @open-roll-*")
	s.Sees("dialog:popover-open", "Roll back to this deployment?", "harbor.localhost")
	s.Look("roll-back")
	s.Press("dialog:popover-open @do-roll-*")
	s.Sees("@flash", "Rolled back")
	s.answers(http.StatusOK, "Ahoy Oslo, Bergen")
	s.Go(s.live)
	s.Sees("h1", "Ahoy")
}

// members restricts the site to its members for a while. A browser is redirected to the sign-in page and returns to the
// requested page.
func (s *story) members() {
	s.step("only members see the site")
	choose := func(who string) {
		s.Go(s.site + "/rules")
		s.Eval(`void (document.querySelector('#f-sign-in').value = '`+who+`')`, nil)
		s.Press("@save-serving")
		s.Sees("@flash")
	}
	choose("all")
	s.answers(http.StatusUnauthorized, "Only members of this site can see this page")
	other := s.window()
	other.Allow(s.live)
	other.Expect(http.StatusUnauthorized)
	other.Go(s.live + "?from=mail")
	other.Sees("#f-email")
	other.Type("#f-email", email)
	other.Type("#f-password", password)
	other.Press("@submit")
	other.Sees("h1", "Ahoy")
	var at string
	if other.Eval(`location.href`, &at); at != s.live+"?from=mail" {
		s.t.Errorf("a member comes back to %s", at)
	}
	other.Go("/account")
	other.Click("details.menu summary")
	other.Press("@sign-out")
	other.Sees("#f-email")
	choose("none")
	s.answers(http.StatusOK, "Ahoy")
}

func (s *story) brokenBuild() {
	s.step("a build that fails says why, and takes nothing down")
	s.commit("acme/harbor", "Run aground", s.project(`// All by one way: what goes out by two comes in any order.
for (let i = 1; i <= 120; i++) console.error('sounding ' + i + ' fathoms')
console.error('Error: there is no water under the keel')
for (let i = 1; i <= 60; i++) console.error('pumping ' + i)
process.exit(3)
`))
	s.Go(s.site)
	s.Press("@deploy")
	s.Sees("@deployment @status-failed")
	s.Sees("@why", "exit code 3")
	s.Sees("@log", "pumping 60")
	s.Look("failed")
	inView := func(what, line string) {
		s.t.Helper()
		s.Until(
			what+" is not in sight",
			`(() => { const log = document.querySelector('.log').getBoundingClientRect(), at = document.querySelector('.ln.at'), r = at && at.getBoundingClientRect();
			return at && at.innerText.includes(`+quoted(
				line,
			)+`) && r.top >= log.top && r.bottom <= log.bottom; })()`,
		)
	}
	s.Click("[data-log-error]")
	inView("the first error", "no water under the keel")
	s.Type("#log-q", "pumping 42")
	inView("what is searched", "pumping 42")
	s.Sees(".log-count", "1 of 1")
	s.Type("#log-q", "sounding")
	s.Sees(".log-count", "1 of 120")
	s.Keys("Enter")
	s.Sees(".log-count", "2 of 120")
	s.Click("[data-log-wrap]")
	s.Sees(".log.nowrap")
	s.Click("[data-log-wrap]")
	s.Misses(".log.nowrap")
	var text string
	s.Eval(`fetch(document.querySelector('.log-bar a[download]').href).then((r) => r.text())`, &text)
	if !strings.Contains(text, "no water under the keel") || strings.Count(text, "\n") < 180 {
		s.t.Errorf("the downloaded log is not whole:\n%s", text)
	}
	s.Go(s.site)
	s.Sees("@trouble", "still live")
	s.Look("site-trouble")
	s.answers(http.StatusOK, "Ahoy")
}

func (s *story) domain() {
	s.step("a domain says what to set")
	s.Go(s.site + "/domains")
	s.Look("domains-empty")
	s.Type("#f-domain", "www.harbor.test")
	s.Press("@add-domain")
	s.Sees("@domain", "www.harbor.test", "CNAME", "Not found")
	if got := s.Copied("@domain .records:nth-of-type(1) .record:first-child .record-value .copy"); got == "" || !strings.Contains(
		s.Text("@domain"),
		got,
	) {
		s.t.Errorf("copied is %q, which the page doesn't show", got)
	}
	s.Look("domain")
	s.Go(s.site + "/domains")
	s.Type("#f-domain", "a-rather-long-name-of-a-department.another-long-name-of-a-branch-office.harbor-and-sons.test")
	s.Press("@add-domain")
	s.Sees("@domain", "a-rather-long-name", "CNAME", "Not found")
	s.Look("domain-long") // even with a long domain, no page scrolls sideways on a phone
	s.Go(s.site + "/domains")
	s.Look("domains")
}

func (s *story) search() {
	s.step("sites are found while their names are typed")
	s.Go("/")
	harbor := "@card-" + s.site[len("/sites/"):]
	s.Sees(harbor)
	s.Sees("@cards", "leaflet")
	s.stays(func() {
		s.Type("@search", "leaf")
		s.Misses(harbor)
		s.Sees("@cards", "leaflet")
		s.Type("@search", "no site of this name")
		s.Sees("@cards", "No matching sites")
		s.Type("@search", "HARB")
		s.Sees(harbor)
		s.Until("the address does not say what was searched", `location.search === '?q=HARB'`)
	})
	s.Focused("@search")
	s.Go("/?q=HARB") // a link with the query finds the same site
	s.Sees(harbor)
	var others int
	if s.Eval(`document.querySelectorAll('[data-test="cards"] .card').length`, &others); others != 1 {
		s.t.Errorf("%d sites are found by the link", others)
	}
}

func (s *story) delete() {
	s.step("delete the site by typing its name")
	s.Go(s.site + "/settings")
	s.Look("settings")
	s.Click("@open-delete-site")
	s.Type("#delete-site-confirm", "not harbor")
	s.Expect(http.StatusUnprocessableEntity)
	s.Press("@do-delete-site")
	s.answers(http.StatusOK, "Ahoy")
	s.Go(s.site + "/settings")
	s.Click("@open-delete-site")
	s.Type("#delete-site-confirm", "harbor")
	s.Look("delete")
	s.Press("@do-delete-site")
	s.Sees("@flash", "harbor")
	s.Sees("@cards", "leaflet")
	s.Misses("@card-" + s.site[len("/sites/"):])
	s.answers(http.StatusNotFound, "")
}
