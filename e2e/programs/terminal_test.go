package programs

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"sync"
	"time"

	"slipway/e2e/world"
)

// terminal is one of the dashboard's, as its page holds it.
type terminal struct {
	s    appSite
	conn net.Conn

	mu    sync.Mutex // guards what follows
	shown bytes.Buffer
	why   string // it was closed for; empty while it is open
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
	conn, err := net.Dial("tcp", s.Listen)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { conn.Close() })
	req, err := http.NewRequest("GET", "http://"+s.Listen+"/sites/"+s.ID+"/terminal/connect?columns=100&rows=30", nil)
	if err != nil {
		s.t.Fatal(err)
	}
	for name, value := range map[string]string{"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==", "Origin": "http://" + s.Listen} {
		req.Header.Set(name, value)
	}
	for _, c := range browser.Jar.Cookies(req.URL) {
		req.AddCookie(c)
	}
	if err := req.Write(conn); err != nil {
		s.t.Fatal(err)
	}
	r := bufio.NewReader(conn)
	resp, err := http.ReadResponse(r, req)
	if err != nil || resp.StatusCode != 101 {
		s.t.Fatalf("open terminal: %+v, %v", resp, err)
	}
	x := &terminal{s: s, conn: conn}
	go x.read(r)
	return x
}

func (x *terminal) read(r io.Reader) {
	for {
		var head [4]byte
		_, err := io.ReadFull(r, head[:2])
		size := int(head[1])
		if err == nil && size == 126 {
			_, err = io.ReadFull(r, head[2:])
			size = int(head[2])<<8 | int(head[3])
		}
		data := make([]byte, size)
		if err == nil {
			_, err = io.ReadFull(r, data)
		}
		x.mu.Lock()
		switch {
		case err != nil:
			x.why = "lost: " + err.Error()
		case head[0] == 0x88:
			x.why = string(data[2:])
		case head[0] == 0x82:
			x.shown.Write(data)
		}
		over := x.why != ""
		x.mu.Unlock()
		if over {
			return
		}
	}
}

// types types a text.
func (x *terminal) types(text string) {
	x.s.t.Helper()
	frame := append([]byte{0x82, 0x80 | 126, byte(len(text) >> 8), byte(len(text)), 0, 0, 0, 0}, text...) // masked with zeros
	_ = x.conn.SetWriteDeadline(time.Now().Add(time.Minute))
	if _, err := x.conn.Write(frame); err != nil {
		x.s.t.Fatal(err)
	}
}

// shows waits until a text is shown.
func (x *terminal) shows(want string) {
	x.s.t.Helper()
	x.s.until(fmt.Sprintf("%q in the terminal", want), func() (bool, error) {
		x.mu.Lock()
		defer x.mu.Unlock()
		return strings.Contains(x.shown.String(), want), fmt.Errorf("it shows %q, closed %q", x.shown.String(), x.why)
	})
}

// closes waits until it was closed, with a reason.
func (x *terminal) closes(want string) {
	x.s.t.Helper()
	x.s.until("the end of the terminal", func() (bool, error) {
		x.mu.Lock()
		defer x.mu.Unlock()
		return strings.Contains(x.why, want), fmt.Errorf("closed %q", x.why)
	})
}

// typeIntoTerminals tells what a terminal is: a shell in the program's sandbox, with its
// variables and without its host. It returns the name of a process that goes on in one.
func (s appSite) typeIntoTerminals() (left string) {
	s.t.Helper()
	s.call("PATCH", "/sites/"+s.ID, map[string]any{"run": map[string]any{"terminal": true}}, nil)
	browser := s.signIn()
	x := s.terminal(browser)
	x.types("echo $((40+2))-$SECRET-$SLIPWAY_SITE_ID; stty size; tty >/dev/null || echo no name; ls; touch here; touch /tmp/there && echo wrote; cat /etc/shadow; ls /root /home\n")
	for _, want := range []string{"42-hunter2hunter2-" + s.ID, "30 100", "package.json", "Read-only file system", "wrote", "/etc/shadow: No such file", "/root': No such file"} {
		x.shows(want)
	}
	x.types("node -e 'setInterval(() => {}, 1000); console.log(\"runs\" + 1)'\n")
	x.shows("runs1")
	x.types("\x03") // to what runs in the foreground
	x.types("echo after $?\n")
	x.shows("after 130")
	x.types("exit 3\n")
	x.closes("The shell ended: exit code 3")

	// Signed out, the terminal ends, and what was begun in it too.
	const mine = "terminal-of-e2e-programs"
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
