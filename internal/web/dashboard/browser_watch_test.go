//go:build browser

package dashboard

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"slipway/internal/platform/db"
	"slipway/internal/tenant/site"
	"slipway/internal/web/dashboard/sites"
)

// A crashed application is marked wherever its site appears. Its log opens at the newest line, shows each line's time,
// level and process in the process's color, follows until the reader scrolls up, and highlights search matches. Each
// line has its own URL.
func TestBrowserCrashAndLog(t *testing.T) {
	t.Parallel()
	var lines atomic.Int64
	lines.Store(420)
	w := newWorld(t, func(c *Config) {
		c.Programs = programs{
			process: func(site.Site) sites.Process {
				return sites.Process{State: "crashed", Message: "The process exited: exit code 1, 5 times in a row", Restarts: 5, Since: db.Now()}
			},
			tasks: []sites.ProgramTask{{Kind: "worker", Name: "mail", Command: "node mail.js", State: "running"}},
			log: func(_ site.ID, f sites.ProgramFilter) ([]sites.ProgramLine, error) {
				return printed(lines.Load(), f), nil
			},
		}
	})
	const ada = "ada@example.test"
	u := w.user(ada, false)
	s := w.site(u, "Shop")
	w.program(s, w.deployment(s))
	b := w.window("watch", w.srv.URL)
	signIn(b, ada)
	b.Sees("@card-"+string(s.ID)+" @status-crashed", "Crashed")
	b.Look("card-crashed")
	base := "/sites/" + string(s.ID)
	b.Go(base)
	b.Sees("@head-crashed", "Crashed")
	b.Until("the overview is green", `!document.querySelector('main .status.ok')?.innerText.includes('Live')`)
	b.Look("overview-crashed")
	b.Go(base + "/logs")
	const log = `document.querySelector('[data-test="program-log"]')`
	inSight := func(n int) string {
		return fmt.Sprintf(`(() => {
			const line = document.getElementById('P%d'), l = line?.getBoundingClientRect(), box = %s.getBoundingClientRect();
			return l && l.top >= box.top - 1 && l.bottom <= box.bottom + 1;
		})()`, n, log)
	}
	b.Until("the newest line isn't in sight", inSight(420))
	b.Until("the line has no date, level or process", `/\d{1,2} [A-Z][a-z]{2} \d\d:\d\d:\d\d[\s\S]*error[\s\S]*web/.test(document.getElementById('P420').innerText)`)
	b.Until("the processes have one color", `getComputedStyle(document.querySelector('#P420 .proc')).color !== getComputedStyle(document.querySelector('#P419 .proc')).color`)
	b.Look("log")
	lines.Store(421)
	b.Until("the log doesn't follow", inSight(421))
	b.Eval(log+`.dispatchEvent(new WheelEvent('wheel', { deltaY: -400 })), void (`+log+`.scrollTop -= 400)`, nil)
	b.Until("it still says that it follows", `document.querySelector('[data-log-follow]').getAttribute('aria-pressed') === 'false'`)
	lines.Store(430)
	b.Until("new lines don't come", `document.getElementById('P430') !== null`)
	b.Until("the reader was moved", "!"+inSight(430))
	b.Click("[data-log-follow]")
	b.Until("the newest line isn't in sight again", inSight(430))

	b.Press("@older")
	b.Until("lines of the newest page are among the older ones", `document.getElementById('P150') !== null && document.getElementById('P420') === null`)
	b.Press("@newest")
	b.Type("#log-search", "NUMBER 7")
	b.KeysLead("Enter")
	b.Until("what was searched for isn't marked", `[...document.querySelectorAll('.ln mark')].every((m) => m.innerText === 'number 7') && document.querySelectorAll('.ln mark').length === 11`)
	b.Look("log-search")
	b.Press("#P77 > a")
	b.Until("the line that was named isn't in sight", inSight(77)+` && location.hash === '#P77' && document.querySelector('#P77.at') !== null`)
	b.Go(base + "/logs?level=debug")
	b.Sees("@no-lines", "No matching log lines")
	b.Look("log-none")
}

// The message after an action is visible even if the page scrolled to a fragment, and disappears when dismissed.
func TestBrowserToast(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const ada = "ada@example.test"
	u := w.user(ada, false)
	s := w.site(u, "Shop")
	b := w.window("toast", w.srv.URL)
	signIn(b, ada)
	base := "/sites/" + string(s.ID)
	b.Go(base + "/settings")
	b.Eval(`void document.querySelector('[data-test="save-build"]').form.setAttribute('action', location.pathname + '#danger')`, nil)
	b.Type("#f-build_command", "make")
	b.Press("@save-all")
	b.Sees("@flash", "Saved")
	b.Eval(`void document.querySelector('.flash button').focus()`, nil) // focus keeps it from disappearing by itself
	b.Eval(`void scrollTo(0, document.body.scrollHeight)`, nil)
	b.Until("the toast is out of sight", `(() => {
		const r = document.querySelector('.flash').getBoundingClientRect();
		return r.width > 0 && r.top >= 0 && r.bottom <= innerHeight && r.left >= 0 && r.right <= innerWidth;
	})()`)
	b.Look("toast")
	b.Eval(`void document.querySelector('.flash button').click()`, nil)
	b.Misses("@flash")
	if strings.Contains(b.Path(), "sign-in") {
		t.Error("signed out")
	}
}

// When the first deployment ends, its whole page updates: the header links to the site, and cancellation is no longer
// offered.
func TestBrowserDeploymentEnds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const ada = "ada@example.test"
	u := w.user(ada, false)
	s := w.site(u, "Shop")
	dep := w.deployment(s)
	b := w.window("ends", w.srv.URL)
	signIn(b, ada)
	b.Go(sites.DeploymentPath(s.ID, dep))
	b.Sees("@open-cancel")
	tab := func(state, icon string) string {
		return `document.title.startsWith('` + state + `') && document.querySelector('link[rel="icon"]').href.includes('mark-` + icon + `')`
	}
	b.Until("the tab doesn't show that it is in progress", tab("Queued: ", "busy"))
	b.Eval(`Object.defineProperty(document, 'hidden', { get: () => true }), window.told = [],
		void (window.Notification = class extends EventTarget {
			static permission = 'default';
			static async requestPermission() { return Notification.permission = 'granted'; }
			constructor(title, options) { super(); told.push(title + ': ' + options.body); }
		})`, nil)
	b.Eval(`void (document.querySelector('[data-notify]').hidden = false)`, nil) // headless Chromium denies notifications
	b.Click("@notify")
	b.Until("the button doesn't say that it notifies", `document.querySelector('[data-notify]').getAttribute('aria-pressed') === 'true'`)
	visit := `[...document.querySelectorAll('.head-actions a')].some((a) => a.innerText === 'Visit')`
	b.Until("a site that isn't live can be visited", "!"+visit)
	b.Until("the call to cancel is missing", `document.querySelector('[data-fresh="calls"]').textContent.includes('/cancel')`)
	must(t, w.db.Write(t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), `UPDATE deployments SET commit_message = 'Lay the keel' WHERE id = $1`, dep)
		tx.Notify("deployment/" + string(dep))
		return err
	}))
	b.Until("the heading or the breadcrumb isn't of the commit", `['h1', '.crumb-sub'].every((at) => document.querySelector(at).innerText === 'Lay the keel')`)
	w.live(s, dep)
	b.Sees("@live-link")
	b.Until("the tab doesn't show that it is ready", tab("Ready: ", "ok"))
	b.Until("nobody was notified", `told.length === 1 && told[0] === 'Deployment ready: Lay the keel'`)
	b.Until("the buttons don't lead to the site", visit)
	b.Until("the API still offers to cancel", `!document.querySelector('[data-fresh="calls"]').textContent.includes('/cancel')`)
	b.Look("ended")
}
