package dashboard

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"slipway/internal/build/release"
	"slipway/internal/program/runtime"
	"slipway/internal/web/requestinfo"
	"slipway/internal/web/terminal"

	"github.com/coder/websocket"

	"slipway/internal/deploy/deployment"
	"slipway/internal/platform/db"
	"slipway/internal/tenant/site"
	"slipway/internal/web/dashboard/sites"
)

// Frame opcodes (RFC 6455, section 11.8).
const (
	opContinue = 0x0
	opText     = 0x1
	opBinary   = 0x2
	opClose    = 0x8
	opPing     = 0x9
	opPong     = 0xA
)

// wire is a raw WebSocket client, which can send invalid frames.
type wire struct {
	t    *testing.T
	conn net.Conn
	r    *bufio.Reader
	resp *http.Response
}

// connect sends the request that opens a terminal. A header with an empty value is left out.
func (b *browser) connect(t *testing.T, path string, header map[string]string) *wire {
	t.Helper()
	at, err := url.Parse(b.w.srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", at.Host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(2 * time.Minute))
	req, err := http.NewRequest("GET", b.w.srv.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{
		"Connection":            "keep-alive, Upgrade",
		"Upgrade":               "websocket",
		"Sec-WebSocket-Version": "13",
		"Sec-WebSocket-Key":     "dGhlIHNhbXBsZSBub25jZQ==",
		"Origin":                b.w.srv.URL,
	} {
		req.Header.Set(name, value)
	}
	for _, c := range b.client.Jar.Cookies(at) {
		req.AddCookie(c)
	}
	for name, value := range header {
		req.Header.Set(name, value)
		if value == "" {
			req.Header.Del(name)
		}
	}
	if err := req.Write(conn); err != nil {
		t.Fatal(err)
	}
	w := &wire{t: t, conn: conn, r: bufio.NewReader(conn)}
	if w.resp, err = http.ReadResponse(w.r, req); err != nil {
		t.Fatal(err)
	}
	return w
}

// send sends one masked frame.
func (w *wire) send(head byte, data string) {
	w.t.Helper()
	frame := []byte{head}
	switch n := len(data); {
	case n < 126:
		frame = append(frame, 0x80|byte(n))
	case n < 1<<16:
		frame = binary.BigEndian.AppendUint16(append(frame, 0x80|126), uint16(n))
	default:
		frame = binary.BigEndian.AppendUint64(append(frame, 0x80|127), uint64(n))
	}
	mask := []byte{1, 2, 3, 4}
	frame = append(frame, mask...)
	for i := range len(data) {
		frame = append(frame, data[i]^mask[i&3])
	}
	if _, err := w.conn.Write(frame); err != nil && !errors.Is(err, net.ErrClosed) {
		w.t.Logf("send: %v", err)
	}
}

// hear returns the next frame that isn't a ping.
func (w *wire) hear() (op byte, data []byte, err error) {
	for {
		var head [8]byte
		if _, err := io.ReadFull(w.r, head[:2]); err != nil {
			return 0, nil, err
		}
		op, size := head[0], uint64(head[1])
		if head[1] == 126 {
			if _, err := io.ReadFull(w.r, head[:2]); err != nil {
				return 0, nil, err
			}
			size = uint64(binary.BigEndian.Uint16(head[:2]))
		}
		if head[1] == 127 {
			if _, err := io.ReadFull(w.r, head[:8]); err != nil {
				return 0, nil, err
			}
			size = binary.BigEndian.Uint64(head[:8])
		}
		data = make([]byte, size)
		if _, err := io.ReadFull(w.r, data); err != nil {
			return 0, nil, err
		}
		if op != 0x80|opPing {
			return op, data, nil
		}
	}
}

// shows reads until the output contains want.
func (w *wire) shows(want string) {
	w.t.Helper()
	var all strings.Builder
	for !strings.Contains(all.String(), want) {
		op, data, err := w.hear()
		if err != nil || op != 0x80|opBinary {
			w.t.Fatalf("instead of %q came %x %q, %v after %q", want, op, data, err, all.String())
		}
		all.Write(data)
	}
}

// closes reads until the server closes the connection, and fails the test unless it has this code and text.
func (w *wire) closes(code websocket.StatusCode, text string) {
	w.t.Helper()
	for {
		op, data, err := w.hear()
		if err != nil {
			w.t.Fatalf("closed without a word: %v; want %d %q", err, code, text)
		}
		if op != 0x80|opClose {
			continue
		}
		if got := websocket.StatusCode(binary.BigEndian.Uint16(data)); got != code || !strings.Contains(string(data[2:]), text) {
			w.t.Errorf("closed with %d %q, want %d %q", got, data[2:], code, text)
		}
		w.conn.Close()
		return
	}
}

// program makes a site's live deployment a program.
func (w *world) program(s site.Site, id deployment.ID) {
	w.t.Helper()
	must(w.t, w.db.Write(w.t.Context(), func(tx *db.Tx) error {
		if err := w.endTx(tx, id, deployment.Success, "", release.ID("rel_"+string(id))); err != nil {
			return err
		}
		_, err := w.dash.Sites.ActivateTx(w.t.Context(), tx, s.ID, id, release.ID("rel_"+string(id)), "node")
		return err
	}))
}

// A terminal opens only for the site's owner, if the site allows it, from the dashboard's own origin, and up to a
// limit. It ends when one of these no longer holds. Each terminal is in the audit log.
func TestTerminal(t *testing.T) {
	t.Parallel()
	var opened, closed atomic.Int64
	w := newWorld(t, func(c *Config) {
		c.Programs = programs{terminal: func(ctx context.Context, s site.Site, x *runtime.Terminal) (string, error) {
			opened.Add(1)
			defer closed.Add(1)
			fmt.Fprintf(x.Output, "%s has %d by %d\r\n", s.Name, x.Size.Columns, x.Size.Rows)
			typed := make(chan string)
			go func() {
				defer close(typed)
				buf := make([]byte, 1<<10)
				for {
					n, err := x.Input.Read(buf)
					if err != nil {
						return
					}
					select {
					case typed <- string(buf[:n]):
					case <-ctx.Done():
						return
					}
				}
			}()
			for {
				select {
				case size := <-x.Sizes:
					fmt.Fprintf(x.Output, "now %d by %d\r\n", size.Columns, size.Rows)
				case text, ok := <-typed:
					switch {
					case !ok:
						return "hung up", nil
					case text == "exit":
						return "The shell ended: exit code 0", nil
					case text == "flood":
						for block := make([]byte, 1<<20); ; {
							if _, err := x.Output.Write(block); err != nil {
								<-ctx.Done()
								return "", context.Cause(ctx)
							}
						}
					}
					fmt.Fprintf(x.Output, "typed %q\r\n", text)
				case <-ctx.Done():
					return "", context.Cause(ctx)
				}
			}
		}}
	})
	ada := w.user("ada@example.test", false)
	w.user("eve@example.test", false)
	b, eve := w.as("ada@example.test"), w.as("eve@example.test")
	s := w.site(ada, "Shop")
	id := w.deployment(s)
	w.live(s, id)
	page, at := "/sites/"+string(s.ID)+"/terminal", "/sites/"+string(s.ID)+"/terminal/connect?columns=100&rows=30"
	b.get(page).want(t, 200, "No application")
	w.program(s, w.deployment(s))
	b.get(page).want(t, 200, "Enable terminal")

	b.connect(t, at, nil).closes(terminal.CloseRefused, "not enabled for this site")
	if opened.Load() != 0 || w.logged("site.terminal") != 0 {
		t.Error("a terminal opened although the site doesn't allow it")
	}
	if p := eve.post(page, "allow", "1"); p.status != 404 {
		t.Errorf("a stranger allows it: %s", p)
	}
	if p := b.post(page, "allow", "1"); p.status != 303 || w.logged("site.terminal_enabled") != 1 {
		t.Fatal(p)
	}
	b.get(page).want(t, 200, "Start terminal", `data-terminal="/sites/`)

	// Unauthorized requests are refused before the WebSocket is opened.
	for name, tt := range map[string]struct {
		b      *browser
		header map[string]string
		status int
	}{
		"another origin":         {b, map[string]string{"Origin": "https://evil.test"}, 403},
		"a neighbour's origin":   {b, map[string]string{"Origin": strings.Replace(w.srv.URL, "127.0.0.1", "127.0.0.1.evil.test", 1)}, 403},
		"an origin of no page":   {b, map[string]string{"Origin": "null"}, 403},
		"no origin":              {b, map[string]string{"Origin": ""}, 403},
		"a stranger":             {eve, nil, 404},
		"nobody":                 {w.browser(), nil, 303},
		"nobody, asking as JSON": {w.browser(), map[string]string{"Accept": "application/json"}, 401},
		"another version":        {b, map[string]string{"Sec-WebSocket-Version": "8"}, 400},
		"a short key":            {b, map[string]string{"Sec-WebSocket-Key": "AAAA"}, 400},
	} {
		if x := tt.b.connect(t, at, tt.header); x.resp.StatusCode != tt.status {
			t.Errorf("%s: %d, want %d", name, x.resp.StatusCode, tt.status)
		}
	}
	if opened.Load() != 0 {
		t.Error("a terminal opened for another user")
	}

	x := b.connect(t, at, nil)
	if x.resp.StatusCode != 101 || x.resp.Header.Get("Sec-WebSocket-Accept") != "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" { // RFC 6455, section 1.3
		t.Fatalf("%+v", x.resp)
	}
	x.shows("Shop has 100 by 30")
	x.send(0x80|opText, `{"columns": 60, "rows": 20}`)
	x.shows("now 60 by 20")
	x.send(opBinary, "ls") // in two fragments, with a ping between them
	x.send(0x80|opPing, "there?")
	x.send(0x80|opContinue, " -l\r")
	if op, data, err := x.hear(); op != 0x80|opPong || string(data) != "there?" || err != nil {
		t.Errorf("a ping got %x %q %v", op, data, err)
	}
	x.shows(`typed "ls -l\r"`)
	if w.logged("site.terminal") != 1 {
		t.Error("an open terminal is not in the audit log")
	}
	x.send(0x80|opBinary, "exit")
	x.closes(websocket.StatusNormalClosure, "The shell ended: exit code 0")
	w.eventually("the end is recorded", func() bool { return w.logged("site.terminal_closed") == 1 })

	// Invalid frames close the terminal and end its program.
	for name, tt := range map[string]struct {
		send func(x *wire)
		code websocket.StatusCode
	}{
		"without a mask":         {func(x *wire) { x.conn.Write([]byte{0x80 | opBinary, 1, 'x'}) }, terminal.CloseRefused},
		"reserved bits":          {func(x *wire) { x.send(0xC0|opBinary, "x") }, websocket.StatusProtocolError},
		"an unknown kind":        {func(x *wire) { x.send(0x83, "x") }, websocket.StatusProtocolError},
		"text that is no text":   {func(x *wire) { x.send(0x80|opText, "\xff") }, websocket.StatusInvalidFramePayloadData},
		"text that says nothing": {func(x *wire) { x.send(0x80|opText, "{}") }, websocket.StatusInvalidFramePayloadData},
		"too long": {
			func(x *wire) { x.send(0x80|opBinary, strings.Repeat("x", terminal.MaxMessage+1)) },
			websocket.StatusMessageTooBig,
		},
		"too long in parts": {
			func(x *wire) {
				x.send(opBinary, strings.Repeat("x", terminal.MaxMessage))
				x.send(0x80|opContinue, "x")
			},
			websocket.StatusMessageTooBig,
		},
		"a huge length": {func(x *wire) {
			x.conn.Write(append([]byte{0x80 | opBinary, 0xff, 0x7f, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, make([]byte, terminal.MaxMessage+1)...))
		}, websocket.StatusMessageTooBig},
		"a part of nothing":        {func(x *wire) { x.send(0x80|opContinue, "x") }, websocket.StatusProtocolError},
		"a message in a message":   {func(x *wire) { x.send(opBinary, "x"); x.send(0x80|opBinary, "x") }, websocket.StatusProtocolError},
		"a ping in parts":          {func(x *wire) { x.send(opPing, "x") }, websocket.StatusProtocolError},
		"a long ping":              {func(x *wire) { x.send(0x80|opPing, strings.Repeat("x", 126)) }, websocket.StatusProtocolError},
		"more output than allowed": {func(x *wire) { x.send(0x80|opBinary, "flood") }, terminal.CloseRefused},
	} {
		x := b.connect(t, at, nil)
		x.shows("Shop has")
		tt.send(x)
		t.Log(name)
		x.closes(tt.code, "")
	}
	w.eventually("all have ended", func() bool { return opened.Load() == closed.Load() })

	// The number of terminals per user is limited.
	var all []*wire
	for range requestinfo.UserTerminals {
		x := b.connect(t, at, nil)
		x.shows("Shop has")
		all = append(all, x)
	}
	b.connect(t, at, nil).closes(terminal.CloseRefused, "At most 3 terminals")
	if _, ok := w.dash.shell.Streams.Terminals.Begin(ada.ID, netip.Addr{}); ok { // the API counts its terminals here, too
		t.Error("the API opens a fourth terminal")
	}
	all[0].conn.Close() // the connection breaks
	w.eventually("its end is noticed", func() bool { return opened.Load() == closed.Load()+requestinfo.UserTerminals-1 })
	all[1].send(0x80|opClose, "\x03\xe8")
	w.eventually("its end is noticed", func() bool { return opened.Load() == closed.Load()+requestinfo.UserTerminals-2 })

	// An open terminal ends when terminals are turned off, when the session ends and when the site stops.
	if p := b.post(page, "allow", "0"); p.status != 303 {
		t.Fatal(p)
	}
	all[2].closes(terminal.CloseRefused, "not enabled")
	b.post(page, "allow", "1")
	x = b.connect(t, at, nil)
	x.shows("Shop has")
	b.post("/sites/" + string(s.ID) + "/stop")
	x.closes(terminal.CloseRefused, "This site is stopped")
	b.connect(t, at, nil).closes(terminal.CloseRefused, "This site is stopped")
	b.post("/sites/" + string(s.ID) + "/start")
	x = b.connect(t, at, nil)
	x.shows("Shop has")
	if p := b.post("/sign-out"); p.status != 303 {
		t.Fatal(p)
	}
	x.closes(terminal.CloseRefused, "session has ended")
	w.eventually("all have ended", func() bool { return opened.Load() == closed.Load() })
	w.eventually("each end is recorded", func() bool { return w.logged("site.terminal") == w.logged("site.terminal_closed") })
}

// The run settings are shown, changed and reset to their defaults. An invalid value is reported at its field and
// changes nothing.
func TestRunSettings(t *testing.T) {
	t.Parallel()
	restarted := 0
	w := newWorld(t, func(c *Config) {
		c.Programs = programs{stored: sites.Storage{Bytes: 300 << 20, MeasuredAt: db.Now(), Full: true}, restart: func() { restarted++ }}
	})
	ada := w.user("ada@example.test", false)
	b := w.as("ada@example.test")
	s := w.site(ada, "Shop")
	at := "/sites/" + string(s.ID) + "/settings"
	if p := b.get(at); p.has("save-run") {
		t.Error("a site without a program has its settings")
	}
	w.program(s, w.deployment(s))
	b.get(at).want(t, 200, "300 MiB of 1.0 GiB used", "Storage limit reached")
	now := func() site.Run {
		x, err := w.dash.Sites.Get(t.Context(), ada.Owner, s.ID)
		must(t, err)
		return x.Run
	}
	set := func(form ...string) {
		t.Helper()
		if p := b.post(at, form...); p.status != 303 {
			t.Fatal(p)
		}
	}
	set(
		"part", "run", "run_command", "node server.js", "run_health_path", "/ready", "run_health_timeout", "90",
		"run_sleep", "0", "run_memory", "1024", "run_cpus", "0.5", "run_pids", "100", "run_drain", "10",
		"run_request_mib", "50", "run_response", "20", "run_instances_min", "1", "run_instances_max", "1",
	)
	set("part", "storage", "run_storage", "public/uploads\n\n /data/ \n", "run_storage_mib", "2048")
	set("part", "closed", "run_closed", "/data/\nconfig/keys.txt")
	set("part", "php", "run_document_root", ".", "run_front_controller", "app/index.php", "run_passthru", "false")
	set("part", "ports", "run_ports", "5432, 6379")
	b.get(at).want(
		t, 200, `value="node server.js"`, `value="/ready"`, `value="90"`, `value="1024"`, `value="0.5"`,
		"public/uploads\ndata", `value="5432, 6379"`, "300 MiB of 2.0 GiB used",
	)
	r := now()
	if *r.Command != "node server.js" || *r.HealthCheck.Path != "/ready" || *r.HealthCheck.TimeoutSeconds != 90 || *r.SleepAfterSeconds != 0 || *r.MemoryMiB != 1024 || *r.CPUs != 0.5 || *r.Pids != 100 ||
		*r.Instances.Min != 1 || *r.Instances.Max != 1 || *r.DrainSeconds != 10 || *r.RequestMiB != 50 || *r.ResponseSeconds != 20 || r.Release != nil ||
		fmt.Sprint(*r.Storage) != "[public/uploads data]" ||
		*r.StorageMiB != 2048 ||
		fmt.Sprint(*r.Closed) != "[data config/keys.txt]" ||
		*r.DocumentRoot != "" || *r.FrontController != "app/index.php" || *r.Passthru ||
		fmt.Sprint(*r.Ports) != "[5432 6379]" {
		t.Errorf("%+v", r)
	}
	for field, form := range map[string][]string{
		"run_memory":           {"part", "run", "run_memory", "63"},
		"run_sleep":            {"part", "run", "run_sleep", "soon"},
		"run_cpus":             {"part", "run", "run_cpus", "NaN"},
		"run_health_path":      {"part", "run", "run_health_path", "ready"},
		"run_health_timeout":   {"part", "run", "run_health_timeout", "601"},
		"run_drain":            {"part", "run", "run_drain", "-1"},
		"run_pids":             {"part", "run", "run_pids", "31"},
		"run_instances_min":    {"part", "run", "run_instances_min", "0"},
		"run_instances_max":    {"part", "run", "run_instances_max", "2"}, // not allowed with storage
		"run_request_mib":      {"part", "run", "run_request_mib", "0"},
		"run_response":         {"part", "run", "run_response", "3601"},
		"run_storage":          {"part", "storage", "run_storage", "../x"},
		"run_storage_mib":      {"part", "storage", "run_storage_mib", "15"},
		"run_closed":           {"part", "closed", "run_closed", "../x"},
		"run_document_root":    {"part", "php", "run_document_root", "../x"},
		"run_front_controller": {"part", "php", "run_front_controller", "index.html"},
		"run_passthru":         {"part", "php", "run_passthru", "maybe"},
		"run_ports":            {"part", "ports", "run_ports", "5432, 25"},
	} {
		if p := b.post(at, form...); p.status != 422 || !p.has("wrong-"+field) {
			t.Errorf("%v: %s", form, p)
		}
	}
	if p := b.post(at, "part", "ports", "run_ports", "5432; drop"); p.status != 422 || !p.has("wrong-run_ports") {
		t.Error(p)
	}
	if fmt.Sprintf("%+v", *now().Ports) != "[5432 6379]" || *now().MemoryMiB != 1024 {
		t.Errorf("an invalid value was stored: %+v", now())
	}
	set("part", "run")
	set("part", "storage")
	set("part", "closed")
	set("part", "php")
	set("part", "ports")
	if r := now(); (r != site.Run{}) {
		t.Errorf("returned to the defaults it is %+v", r)
	}
	if p := b.post("/sites/" + string(s.ID) + "/restart"); p.status != 303 || restarted != 1 || w.logged("site.restarted") != 1 {
		t.Errorf("%s, %d restarts", p, restarted)
	}
}

// A member's open terminal ends soon after the member is removed or loses the right to it.
func TestTerminalEndsWithTheMembership(t *testing.T) {
	t.Parallel()
	w := newConsenting(t, func(c *Config) {
		c.Programs = programs{terminal: func(ctx context.Context, s site.Site, x *runtime.Terminal) (string, error) {
			fmt.Fprintf(x.Output, "%s is open", s.Name)
			<-ctx.Done()
			return "", context.Cause(ctx)
		}}
	})
	id := w.deployment(w.shop)
	w.live(w.shop, id)
	w.program(w.shop, w.deployment(w.shop))
	page := "/sites/" + string(w.shop.ID) + "/terminal"
	w.ada.post(page, "allow", "1").to(t, page)
	grace := string(w.users["grace@example.test"].ID)
	for _, end := range [][]string{{"/role", "role", "viewer"}, {"/remove"}} {
		w.ada.post("/teams/acme/members/"+grace+"/role", "role", "developer").to(t, "/teams/acme/members")
		x := w.grace.connect(t, page+"/connect?columns=100&rows=30", nil)
		x.shows("Shop is open")
		begun := time.Now()
		if p := w.ada.post("/teams/acme/members/"+grace+end[0], end[1:]...); p.status != 303 {
			t.Fatal(p)
		}
		x.closes(terminal.CloseRefused, "session has ended")
		t.Logf("after %s it ends within %s", end[0], time.Since(begun))
	}
	w.eventually("each end is recorded", func() bool { return w.logged("site.terminal_closed") == 2 })
}
