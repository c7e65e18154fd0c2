package edge

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
)

// Clients reach a protected application with the site's password in basic authentication, without a limit on correct
// ones, and the program doesn't see the password. Without it no request reaches the program.
func TestProtectedProgram(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	for way := range 3 {
		p := startProgramBy(t, way, func(w http.ResponseWriter, r *http.Request) {
			asked.Add(1)
			w.Header().Set("Cache-Control", "public, s-maxage=600, max-age=60")
			fmt.Fprintf(w, "%q %q", r.Header["Authorization"], r.Header["Cookie"])
		})
		p.guard.Password = func(hash, given string) bool { return hash == "hash of "+given }
		p.settle("s1", `{"protection":"all","hash":"hash of right horse"}`)
		const at = "https://app.sites.test/"
		p.until("it is protected", func() bool { return p.get(at).status == 401 })
		basic := func(password string) string {
			return "Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte("anybody:"+password))
		}
		asked.Store(0)
		p.get(at, "Authorization: Bearer right horse").want(t, 401, "This site is protected").head(t, "WWW-Authenticate", "")
		p.get(at, "Authorization: Basic cmlnaHQgaG9yc2U=").want(t, 401, "This site is protected")
		p.do("POST", at).want(t, 401, "")
		p.get(at, "Connection: Upgrade", "Upgrade: websocket").want(t, 401, "")
		for _, wrong := range []string{"wrong horse", ""} {
			p.get(at, basic(wrong)).want(t, 401, "").head(t, "WWW-Authenticate", `Basic realm="Protected", charset="UTF-8"`)
		}
		if n := asked.Load(); n != 0 {
			t.Errorf("way %d: the program was asked %d times without the password", way, n)
		}
		for range 2 * guesses { // more than the allowed guesses
			p.get(at, basic("right horse"), "Cookie: own=1").want(t, 200, `[] ["own=1"]`).head(t, "Cache-Control", "private, max-age=60")
		}
		p.send("POST", at, strings.NewReader("x"), basic("right horse")).want(t, 200, "[]")
		p.settle("s1", `{"protection":"all","hash":"hash of another"}`)
		p.until("the old password is wrong", func() bool { return p.get(at, basic("right horse")).status != 200 })
		limited := false
		for i := range guesses + 1 {
			limited = limited || p.get(at, basic(fmt.Sprint("guess ", i))).status == 429
		}
		if !limited {
			t.Errorf("way %d: guesses have no limit", way)
		}
	}
}
