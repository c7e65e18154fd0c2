//go:build browser

package dashboard

import (
	"strconv"
	"testing"
)

// A .env file pasted anywhere on the page is imported, names that look secret are secret by default, and selected
// variables are deleted together.
func TestBrowserEnvironment(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	u := w.user("ada@example.test", false)
	base := "/sites/" + string(w.site(u, "Harbor Journal").ID) + "/env"
	b := w.window("environment", w.srv.URL)
	signIn(b, u.Email)
	b.Go(base)
	paste := func(selector, text string) {
		var done bool
		b.Eval(`(() => {
			const data = new DataTransfer(); data.setData('text/plain', `+strconv.Quote(text)+`);
			return document.querySelector(`+strconv.Quote(selector)+`).dispatchEvent(new ClipboardEvent('paste', {clipboardData: data, bubbles: true, cancelable: true}));
		})()`, &done)
	}
	checked := `document.querySelector('[name="secret"]').checked`
	b.Type("#f-key", "STRIPE_KEY")
	b.Until("a key is not secret by default", checked)
	b.Type("#f-key", "PORT")
	b.Until("a port is secret", "!"+checked)
	b.Click("@secret")
	b.Type("#f-key", "OTHER")
	b.Until("what was chosen by hand was changed", checked)

	b.Go(base)
	paste("#f-key", "export API_TOKEN='abc'")
	b.Until("one line does not fill in the fields", `document.querySelector('#f-key').value === 'API_TOKEN' &&
		document.querySelector('#f-value').value === 'abc' && `+checked)
	paste("#f-value", "A=1\nB=2") // pasted into the value field it stays a value
	b.Until("a value was taken for a file", `location.pathname === '`+base+`'`)

	b.Go(base)
	paste("body", "# harbors\nPORTS='Oslo, Bergen'\nDB_PASSWORD=s3cret\nGREETING=Ahoy\n")
	b.Sees("@changes", "PORTS", "Oslo, Bergen", "DB_PASSWORD", "Secret", "GREETING")
	b.Press("@apply")
	b.Sees("@vars", "PORTS", "DB_PASSWORD", "GREETING")
	b.Look("environment-select")
	b.Click("@select-PORTS")
	b.Click("@select-GREETING")
	b.Click("@open-delete-vars")
	b.Press("@do-delete-vars")
	b.Sees("@vars", "DB_PASSWORD")
	b.Misses("@select-PORTS")
	b.Misses("@select-GREETING")
}
