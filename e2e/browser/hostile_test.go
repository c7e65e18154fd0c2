//go:build browser

package browser

import (
	"strings"
	"testing"
)

// Hostile texts are shown on every page without effect. Look fails if one ran or made a page too wide, and the window
// fails if one violated the Content-Security-Policy or sent a request to another host.
func TestBrowserHostileTexts(t *testing.T) {
	t.Parallel()
	h := newHarness(t, "hostile")
	if _, err := h.User(email); err != nil {
		t.Fatal(err)
	}
	const run = Marker + "=1"
	const evil = `<img src=x onerror=` + run + `>"'><svg onload=` + run + `>`
	h.commit(
		"acme/evil",
		"</script><script>"+run+"</script> "+evil+" \u202e gnitsaor "+strings.Repeat(
			"W",
			300,
		)+"\n\n<iframe srcdoc='<script>parent."+run+"</script>'>",
		h.project(`
const say = (text) => process.stdout.write(text + '\n')
say('<script>`+run+`</script>')
say(`+quoted(evil)+`)
say('\x1b[31mred \x1b[1;4;44mbold \x1b[0m plain \x1b[38;2;1;2;3m<b>deep</b> \x1b[999;9999m \x1b[')
say('\x1b]8;;javascript:`+run+`\x07a link\x1b]8;;\x07 \x1b]0;<title>\x07 \x1b]52;c;c3RvbGVu\x07 \x1bP+q\x1b\\ \x9b2J')
say('\x1b[2J\x1b[H\x1b[1A\x1b[2Kup and away')
say('progress 1%\rprogress 50%\rprogress 100%')
say('user \u202e nimda \u2066 \u2067 \u2068 \u200f end \u202c')
say('no bytes \0 \x08\x08\x08 \x7f here')
process.stdout.write(Buffer.from([0xff, 0xfe, 0x3c, 0x69, 0x6d, 0x67, 0xc0, 0x80, 0x0a]))
say('x'.repeat(10000))
say('&lt;b&gt; &amp; {{.Secret}} $'+'{`+run+`}')
for (let i = 0; i < 220; i++) say('line ' + i + ' <b onmouseover="`+run+`">')
say('Error: <img src=x onerror="`+run+`">')
page('harmless')
process.exit(1)
`),
	)
	w := h.window()
	w.Go("/sign-in")
	w.Type("#f-email", email)
	w.Type("#f-password", "correct horse battery staple 9")
	w.Press("@submit")
	w.Go("/new")
	w.Type("#f-repository", "git.test/acme/evil")
	w.Press("@continue")
	w.Type("#f-name", evil)
	w.Press("@create")
	w.Sees("@deployment @status-failed")
	w.Sees("@log", "line 219")
	w.Until("the log's end is missing", `document.querySelector('[data-log-follow]').hidden`)
	w.Look("log")
	w.Click("[data-log-wrap]")
	w.Eval(`void (document.querySelector('.log').scrollTop = 0)`, nil)
	w.Look("log-nowrap")
	w.Click("[data-log-wrap]")
	w.Type("#log-q", "<b onmouse")
	w.Sees(".log-count", "of 220")
	var odd []string
	w.Eval(
		`[...document.querySelectorAll('.log *:not(div, a, span)'), ...document.querySelectorAll('.log a:not([href^="#L"])')].map((e) => e.outerHTML)`,
		&odd,
	)
	if len(odd) > 0 {
		t.Errorf("the log holds elements of the build's: %q", odd)
	}
	site, _, _ := strings.Cut(w.Path(), "/deployments/")

	w.Go(site + "/env")
	w.Type("#f-key", "EVIL")
	w.Type("#f-value", evil+"\n"+strings.Repeat("v", 5000))
	w.Press("@add-var")
	w.Look("env")
	w.Go(site + "/hooks")
	w.Type("#f-name", evil)
	w.Press("@create-hook")
	w.Look("hooks")
	w.Click("@open-delete-0")
	w.Look("hook-delete")
	w.Go("/account/keys/new")
	w.Type("#f-name", evil+" "+strings.Repeat("W", 30))
	w.Click(`input[value="sites:read"]`)
	w.Press("@submit")
	w.Go("/webhooks/new")
	w.Type("#f-url", h.Hooks.URL+"/"+strings.Repeat("w", 400)+"?<script>"+run+"</script>")
	w.Press("@create-webhook")
	w.Press("@ping")
	w.Sees("@deliveries", "Delivered")
	w.Click("@deliveries li:first-child summary")
	w.Look("webhook")
	for _, p := range [][2]string{
		{"/", "home"},
		{site, "site"},
		{site + "/deployments", "deployments"},
		{site + "/settings", "settings"},
		{"/account/keys", "keys"},
		{"/account/audit", "audit"},
	} {
		w.Go(p[0])
		w.Look(p[1])
	}
	w.Go(site + "/settings")
	w.Click("@open-delete-site")
	w.Look("delete")
	w.Type("#delete-site-confirm", evil)
	w.Press("@do-delete-site")
	w.Sees("@flash")
}
