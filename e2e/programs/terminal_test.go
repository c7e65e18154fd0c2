package programs

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"sync"

	"github.com/coder/websocket"

	"slipway/e2e/world"
)

// terminal is a client of the dashboard's terminal.
type terminal struct {
	s    appSite
	conn *websocket.Conn

	mu    sync.Mutex // guards the following fields
	shown bytes.Buffer
	over  error // why it was closed; nil while it is open
}

// signIn returns a browser that is signed in to the dashboard.
func (s appSite) signIn() *http.Client {
	s.t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		s.t.Fatal(err)
	}
	c := &http.Client{Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	a, err := world.Read(c.PostForm("http://"+s.Listen+"/sign-in", url.Values{"email": {"ada@example.test"}, "password": {world.Password}}))
	if err != nil || a.Status != 303 {
		s.t.Fatalf("sign in: %d %.300s %v", a.Status, a.Body, err)
	}
	return c
}

// terminal opens a terminal of 100 columns and 30 rows.
func (s appSite) terminal(browser *http.Client) *terminal {
	s.t.Helper()
	conn, _, err := websocket.Dial(s.t.Context(), "ws://"+s.Listen+"/sites/"+s.ID+"/terminal/connect?columns=100&rows=30",
		&websocket.DialOptions{HTTPClient: browser, HTTPHeader: http.Header{"Origin": {"http://" + s.Listen}}})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = conn.CloseNow() })
	conn.SetReadLimit(-1)
	x := &terminal{s: s, conn: conn}
	go func() {
		for {
			_, data, err := conn.Read(s.t.Context())
			x.mu.Lock()
			x.shown.Write(data)
			x.over = err
			x.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	return x
}

// types types a text.
func (x *terminal) types(text string) {
	x.s.t.Helper()
	if err := x.conn.Write(x.s.t.Context(), websocket.MessageBinary, []byte(text)); err != nil {
		x.s.t.Fatal(err)
	}
}

// shows waits until the terminal shows a text.
func (x *terminal) shows(want string) {
	x.s.t.Helper()
	x.s.until(fmt.Sprintf("%q in the terminal", want), func() (bool, error) {
		x.mu.Lock()
		defer x.mu.Unlock()
		return strings.Contains(x.shown.String(), want), fmt.Errorf("it shows %q, closed by %w", x.shown.String(), x.over)
	})
}

// closes waits until the terminal is closed with a reason.
func (x *terminal) closes(want string) {
	x.s.t.Helper()
	x.s.until("the end of the terminal", func() (bool, error) {
		x.mu.Lock()
		defer x.mu.Unlock()
		var frame websocket.CloseError
		if x.over != nil && (!errors.As(x.over, &frame) || !strings.Contains(frame.Reason, want)) {
			x.s.t.Fatalf("it was closed by %v, want %q; it shows %q", x.over, want, x.shown.String())
		}
		return x.over != nil, fmt.Errorf("it is open and shows %q", x.shown.String())
	})
}

// typeIntoTerminals checks that a terminal is a shell in the program's sandbox, with the program's variables and
// without access to the host. It returns a text in the command line of a process that still runs in a terminal.
func (s appSite) typeIntoTerminals() (left string) {
	s.t.Helper()
	s.call("PATCH", "/sites/"+s.ID, map[string]any{"run": map[string]any{"terminal": true}}, nil)
	browser := s.signIn()
	x := s.terminal(browser)
	x.types(
		"echo $((40+2))-$SECRET-$SLIPWAY_SITE_ID; stty size; tty >/dev/null || echo no name; ls; touch /usr/here; touch /tmp/there && echo wrote; cat /etc/shadow; ls /root /home\n",
	)
	for _, want := range []string{
		"42-hunter2hunter2-" + s.ID,
		"30 100", "package.json", "Read-only file system", "wrote", "/etc/shadow: No such file",
		"/root': No such file",
	} {
		x.shows(want)
	}
	x.types("node -e 'setInterval(() => {}, 1000); console.log(\"runs\" + 1)'\n")
	x.shows("runs1")
	x.types("\x03") // to the foreground process
	x.types("echo after $?\n")
	x.shows("after 130")
	x.types("exit 3\n")
	x.closes("The shell ended: exit code 3")

	// Signing out ends the terminal and the processes started in it.
	mine := "terminal-of-" + s.ID
	x = s.terminal(browser)
	x.types("trap '' HUP TERM; setsid node -e 'setInterval(() => {}, 1000)' " + mine + " & wait\n")
	s.until("its process", func() (bool, error) { return running(mine) == 1, fmt.Errorf("%d run", running(mine)) })
	if a, err := world.Read(browser.PostForm("http://"+s.Listen+"/sign-out", nil)); err != nil || a.Status != 303 {
		s.t.Fatalf("sign out: %d %v", a.Status, err)
	}
	x.closes("session has ended")
	s.until("its end", func() (bool, error) { return running(mine) == 0, fmt.Errorf("%d run", running(mine)) })

	x = s.terminal(s.signIn())
	x.types("node -e 'setInterval(() => {}, 1000)' " + mine + "\n")
	s.until("its process", func() (bool, error) { return running(mine) == 1, fmt.Errorf("%d run", running(mine)) })
	return mine
}
