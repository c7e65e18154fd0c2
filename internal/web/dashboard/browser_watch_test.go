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

// A crashed application shows wherever its site does, and its log begins with the newest line, says when,
// how bad and by which process, and follows.
func TestBrowserCrashAndLog(t *testing.T) {
	t.Parallel()
	var lines atomic.Int64
	lines.Store(120)
	w := newWorld(t, func(c *Config) {
		c.Programs = programs{
			process: func(site.Site) sites.Process {
				return sites.Process{State: "crashed", Message: "The process exited: exit code 1, 5 times in a row", Restarts: 5, Since: db.Now()}
			},
			log: func(site.ID, sites.ProgramFilter) (out []sites.ProgramLine, err error) {
				for n := range lines.Load() {
					level := "info"
					if n%7 == 0 {
						level = "error"
					}
					out = append(out, sites.ProgramLine{
						N: n + 1, At: db.Now(), Level: level, Stream: "stdout", Process: "worker:mail", Message: fmt.Sprintf("line number %d.", n+1),
					})
				}
				return out, nil
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
	b.Sees("@program-log", "line number 120.", "worker:mail", "error")
	first := `document.querySelector('[data-test="program-log"] .ln').innerText`
	b.Until("the newest line isn't the first", first+`.includes('line number 120.')`)
	b.Until("the line has no date", `/\d{1,2} [A-Z][a-z]{2} \d\d:\d\d:\d\d/.test(`+first+`)`)
	b.Look("log")
	lines.Store(121)
	b.Until("the log doesn't follow", first+`.includes('line number 121.')`)
}

// What an action did is said where the eye is, also where the page has scrolled to a fragment, and goes
// when it is dismissed.
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
	b.Press("@save-build")
	b.Sees("@flash", "Saved")
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

// When the first deployment has ended, the whole page of it is up to date: its header leads to the site, and
// the calls offer no cancellation.
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
	visit := `[...document.querySelectorAll('[data-fresh="head"] a')].some((a) => a.innerText === 'Visit')`
	b.Until("a site that isn't live can be visited", "!"+visit)
	b.Until("the call to cancel is missing", `document.querySelector('[data-fresh="calls"]').textContent.includes('/cancel')`)
	w.live(s, dep)
	b.Sees("@live-link")
	b.Until("the header doesn't lead to the site", visit)
	b.Until("the API still offers to cancel", `!document.querySelector('[data-fresh="calls"]').textContent.includes('/cancel')`)
	b.Look("ended")
}
