package fastpath

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"slipway/internal/platform/wait"
)

// corpus holds HTTP/1.1 requests of browsers, programs and attackers. fast is how many of them the fast path answers.
var corpus = map[string]struct {
	text string
	fast int
}{
	"plain":       {get("/", ""), 1},
	"small":       {get("/small", ""), 1},
	"large":       {get("/large", ""), 1},
	"empty":       {get("/empty", ""), 1},
	"escaped":     {get("/a%20b", ""), 1},
	"head":        {"HEAD /large HTTP/1.1\r\nHost: site.test\r\n\r\n", 1},
	"with a port": {"GET / HTTP/1.1\r\nHost: site.test:8443\r\n\r\n", 1},
	"with a dot":  {"GET / HTTP/1.1\r\nHost: site.test.\r\n\r\n", 1},
	"capitals":    {"GET / HTTP/1.1\r\nhOST: SITE.test\r\n\r\n", 1},
	"browser": {
		get(
			"/",
			"User-Agent: Mozilla/5.0\r\nAccept: text/html,*/*;q=0.8\r\nAccept-Language: de\r\nAccept-Encoding: gzip, deflate, br, zstd\r\nCookie: a=b; c=d\r\nConnection: keep-alive\r\nUpgrade-Insecure-Requests: 1\r\nSec-Fetch-Dest: document\r\nReferer: https://site.test/x\r\n",
		),
		1,
	},
	"anonymous": {
		get(
			"/anonymous",
			"User-Agent: x\r\n",
		) + get("/anonymous", "Cookie: b=c\r\ncookie: wp=y\r\n") + get("/anonymous", "cOOkie: c=d; a=b\r\n") + get("/anonymous", ""),
		2,
	},
	"curl":            {get("/", "user-agent: curl/8\r\naccept: */*\r\n"), 1},
	"gzip":            {get("/", "Accept-Encoding: gzip\r\n"), 1},
	"GZIP":            {get("/", "accept-encoding:GZIP ,\tBR\r\n"), 1},
	"weights":         {get("/", "Accept-Encoding: gzip;q=0.5, br\r\n"), 0},
	"star":            {get("/", "Accept-Encoding: *\r\n"), 0},
	"identity":        {get("/", "Accept-Encoding: identity\r\n"), 0},
	"two encodings":   {get("/", "Accept-Encoding: gzip\r\nAccept-Encoding: br\r\n"), 0},
	"no encodings":    {get("/", "Accept-Encoding:\r\n"), 1},
	"close":           {get("/", "Connection: close\r\n") + get("/", ""), 1},
	"Close":           {get("/", "connection: Close\r\n"), 1},
	"two, pipelined":  {get("/", "") + get("/small", ""), 2},
	"many, pipelined": {strings.Repeat(get("/large", ""), 20), 20},
	"head and get":    {"HEAD / HTTP/1.1\r\nHost: site.test\r\n\r\n" + get("/large", ""), 2},
	"plain, then odd": {get("/", "") + get("/?q=1", "") + get("/small", ""), 1},
	"plain, then post": {
		get("/", "") + "POST /x HTTP/1.1\r\nHost: site.test\r\nContent-Length: 5\r\n\r\nhello" + get("/small", ""),
		1,
	},
	"query":               {get("/?q=1", ""), 0},
	"range":               {get("/large", "Range: bytes=0-9\r\n"), 0},
	"condition":           {get("/", "If-None-Match: \"x\"\r\n") + get("/", ""), 2},
	"condition on a HEAD": {"HEAD / HTTP/1.1\r\nHost: site.test\r\nIf-None-Match: \"x\"\r\n\r\n", 1},
	"another tag":         {get("/", "If-None-Match: \"y\"\r\n"), 0},
	"weak tag":            {get("/", "If-None-Match: W/\"x\"\r\n"), 0},
	"any tag":             {get("/", "If-None-Match: *\r\n"), 0},
	"list of tags":        {get("/", "If-None-Match: \"y\", \"x\"\r\n"), 0},
	"two conditions":      {get("/", "If-None-Match: \"x\"\r\nIf-None-Match: \"y\"\r\n"), 0},
	"empty condition":     {get("/", "If-None-Match:\r\n"), 0},
	"condition, missing":  {get("/nothing", "If-None-Match: \"x\"\r\n"), 0},
	"if-match":            {get("/", "If-Match: \"x\"\r\n"), 0},
	"modified":            {get("/", "If-Modified-Since: Sun, 22 Nov 2026 01:02:03 GMT\r\n"), 0},
	"authorization":       {get("/", "Authorization: Basic eDp5\r\n"), 0},
	"expect":              {get("/", "Expect: 100-continue\r\n"), 0},
	"upgrade":             {get("/", "Connection: Upgrade\r\nUpgrade: websocket\r\n"), 0},
	"h2c":                 {get("/", "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n"), 0},
	"te":                  {get("/", "TE: trailers\r\n"), 0},
	"missing":             {get("/nothing", ""), 0},
	"another host":        {"GET / HTTP/1.1\r\nHost: other.test\r\n\r\n", 0},
	"no host":             {"GET / HTTP/1.1\r\n\r\n", 0},
	"two hosts":           {"GET / HTTP/1.1\r\nHost: site.test\r\nHost: site.test\r\n\r\n", 0},
	"empty host":          {"GET / HTTP/1.1\r\nHost:\r\n\r\n", 0},
	"host with path":      {"GET / HTTP/1.1\r\nHost: site.test/x\r\n\r\n", 0},
	"host in brackets":    {"GET / HTTP/1.1\r\nHost: [site.test]\r\n\r\n", 0},
	"absolute":            {"GET https://site.test/ HTTP/1.1\r\nHost: site.test\r\n\r\n", 0},
	"absolute, other":     {"GET http://169.254.169.254/ HTTP/1.1\r\nHost: site.test\r\n\r\n", 0},
	"post":                {"POST / HTTP/1.1\r\nHost: site.test\r\nContent-Length: 5\r\n\r\nhello", 0},
	"post, chunked": {
		"POST / HTTP/1.1\r\nHost: site.test\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX-Trailer: t\r\n\r\n",
		0,
	},
	"get with body":         {get("/", "Content-Length: 5\r\n") + "hello" + get("/", ""), 0},
	"get with no body":      {get("/", "Content-Length: 0\r\n"), 0},
	"CL.TE":                 {get("/", "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n") + "0\r\n\r\n" + get("/small", ""), 0},
	"TE.CL":                 {get("/", "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n") + "0\r\n\r\n" + get("/small", ""), 0},
	"TE.TE":                 {get("/", "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n") + "0\r\n\r\n", 0},
	"TE with a tab":         {get("/", "Transfer-Encoding:\tchunked\r\n") + "0\r\n\r\n", 0},
	"TE, hidden":            {get("/", "Transfer-Encoding : chunked\r\n") + "0\r\n\r\n", 0},
	"TE, vertical tab":      {get("/", "Transfer-Encoding: \vchunked\r\n") + "0\r\n\r\n", 0},
	"two lengths":           {get("/", "Content-Length: 4\r\nContent-Length: 5\r\n") + "hello", 0},
	"negative length":       {get("/", "Content-Length: -1\r\n"), 0},
	"obs-fold":              {get("/", "X: a\r\n b\r\n"), 0},
	"space before colon":    {get("/", "X : a\r\n"), 0},
	"no colon":              {get("/", "nonsense\r\n"), 0},
	"empty name":            {get("/", ": x\r\n"), 0},
	"bare LF":               {"GET / HTTP/1.1\nHost: site.test\n\n", 0},
	"bare CR":               {get("/", "X: a\rb\r\n"), 0},
	"LF in the middle":      {get("/", "X: a\nY: b\r\n"), 0},
	"NUL":                   {get("/", "X: a\x00b\r\n"), 0},
	"eight bits":            {get("/", "X: \xff\xfe\r\n"), 1},
	"name with eight bits":  {get("/", "X\xff: a\r\n"), 0},
	"1.0":                   {"GET / HTTP/1.0\r\nHost: site.test\r\n\r\n", 0},
	"1.0, kept":             {"GET / HTTP/1.0\r\nHost: site.test\r\nConnection: keep-alive\r\n\r\n", 0},
	"0.9":                   {"GET /\r\n\r\n", 0},
	"2.0":                   {"GET / HTTP/2.0\r\nHost: site.test\r\n\r\n", 0},
	"1.2":                   {"GET / HTTP/1.2\r\nHost: site.test\r\n\r\n", 0},
	"lower case":            {"get / HTTP/1.1\r\nHost: site.test\r\n\r\n", 0},
	"two spaces":            {"GET  / HTTP/1.1\r\nHost: site.test\r\n\r\n", 0},
	"tab":                   {"GET\t/ HTTP/1.1\r\nHost: site.test\r\n\r\n", 0},
	"space in the path":     {"GET /a b HTTP/1.1\r\nHost: site.test\r\n\r\n", 0},
	"empty line first":      {"\r\n" + get("/", ""), 0},
	"fragment":              {get("/#x", ""), 0},
	"backslash":             {get(`/..\..\x`, ""), 0},
	"traversal":             {get("/../../etc/passwd", ""), 0},
	"escaped traversal":     {get("/%2e%2e/etc/passwd", ""), 0},
	"bad escape":            {get("/%zz", ""), 0},
	"eight bits in path":    {get("/\xff", ""), 0},
	"options *":             {"OPTIONS * HTTP/1.1\r\nHost: site.test\r\n\r\n", 0},
	"connect":               {"CONNECT site.test:443 HTTP/1.1\r\nHost: site.test\r\n\r\n", 0},
	"trace":                 {"TRACE / HTTP/1.1\r\nHost: site.test\r\n\r\n", 0},
	"preface of HTTP/2":     {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 0},
	"long path":             {get("/"+strings.Repeat("x", 3000), ""), 0},
	"long header":           {get("/", "X: "+strings.Repeat("x", 12<<10)+"\r\n"), 0},
	"too long a header":     {get("/", "X: "+strings.Repeat("x", 64<<10)+"\r\n"), 0},
	"header bomb":           {get("/", strings.Repeat("X: y\r\n", 20_000)), 0},
	"unfinished":            {"GET / HTTP/1.1\r\nHost: site.test\r\n", 0},
	"unfinished after one":  {get("/", "") + "GET / HT", 1},
	"garbage":               {"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\r\n\r\n", 0},
	"proxy connection":      {get("/", "Proxy-Connection: keep-alive\r\n"), 0},
	"keep-alive field":      {get("/", "Keep-Alive: timeout=5\r\n"), 0},
	"connection names host": {get("/", "Connection: keep-alive, Host\r\n"), 0},
	"forwarded":             {get("/", "X-Forwarded-Host: evil.test\r\nX-Forwarded-For: 1.2.3.4\r\nForwarded: for=x\r\n"), 1},
}

func get(path, fields string) string {
	return "GET " + path + " HTTP/1.1\r\nHost: site.test\r\n" + fields + "\r\n"
}

// Every request of the corpus gets the same responses with and without the fast path.
func TestSameAnswersH1(t *testing.T) {
	t.Parallel()
	for name, tt := range corpus {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := start(t)
			var methods []string
			for line := range strings.Lines(tt.text) {
				if method, rest, _ := strings.Cut(line, " "); strings.Contains(rest, " HTTP/") {
					methods = append(methods, method)
				}
			}
			got, gotEnd := exchange(t, w.fast, tt.text, methods)
			want, wantEnd := exchange(t, w.slow, tt.text, methods)
			if !reflect.DeepEqual(got, want) {
				t.Errorf("with the fast path\n%.2000s\nwithout\n%.2000s", fmt.Sprint(got), fmt.Sprint(want))
			}
			if (gotEnd == io.EOF) != (wantEnd == io.EOF) {
				t.Errorf("ends in %v, without the fast path in %v", gotEnd, wantEnd)
			}
			if n := w.served.Load(); int(n) != tt.fast {
				t.Errorf("the fast path answered %d, want %d", n, tt.fast)
			}
		})
	}
}

// A request split into pieces of any size gets the same response.
func TestPieces(t *testing.T) {
	t.Parallel()
	w := start(t)
	text := get("/", "Accept-Encoding: br\r\n") + get("/small", "") + get("/?x", "")
	for _, size := range []int{1, 2, 3, 7, 50, 255, 256, 257} {
		c := dial(t, w.fast, "http/1.1")
		go func() {
			for rest := text; rest != ""; {
				n := min(size, len(rest))
				io.WriteString(c, rest[:n])
				rest = rest[n:]
			}
			c.CloseWrite()
		}()
		b, err := io.ReadAll(c)
		if err != nil || strings.Count(string(b), "HTTP/1.1 200 OK") != 3 || strings.Count(string(b), "hello") != 3 {
			t.Errorf("in pieces of %d: %v, %q", size, err, b)
		}
	}
}

// Slow handshakes, slow headers, idle connections and clients that don't read are closed after a timeout.
func TestSlowClients(t *testing.T) {
	t.Parallel()
	w := start(t, func(c *Config) {
		c.HeaderTime, c.IdleTime, c.WriteTime = 300*time.Millisecond, 600*time.Millisecond, 500*time.Millisecond
		c.HTTP.ReadHeaderTimeout = 300 * time.Millisecond
	})
	ends := func(name string, c net.Conn) {
		t.Helper()
		c.SetDeadline(time.Now().Add(patience))
		if _, err := io.Copy(io.Discard, c); err != nil {
			if ne, ok := err.(net.Error); ok && ne.Timeout() {
				t.Errorf("%s: the connection stays open", name)
			}
		}
	}
	raw, err := net.Dial("tcp", w.fast)
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	ends("no handshake", raw)
	for name, text := range map[string]string{
		"idle":           "",
		"half a header":  "GET / HTTP/1.1\r\nHost: si",
		"idle after one": get("/", ""),
		"half after one": get("/", "") + "GET /",
	} {
		c := dial(t, w.fast, "http/1.1")
		io.WriteString(c, text)
		ends(name, c)
	}
	// A client that sends a byte now and then is closed too.
	c := dial(t, w.fast, "http/1.1")
	stop := make(chan struct{})
	go func() {
		defer close(stop)
		for _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: site.test\r\nX: "); err == nil; _, err = io.WriteString(c, "x") {
			time.Sleep(50 * time.Millisecond)
		}
	}()
	ends("drop by drop", c)
	c.Close()
	<-stop

	// A client that doesn't read a hundred large responses is closed.
	c = dial(t, w.fast, "http/1.1")
	sent := make(chan error, 1)
	go func() {
		_, err := io.WriteString(c, strings.Repeat(get("/large", ""), 100))
		sent <- err
	}()
	wait.Until(t, "who doesn't read loses the connection", func() bool {
		w.server.mu.Lock()
		defer w.server.mu.Unlock()
		return len(w.server.conns) == 0
	})
}

// Shutdown closes idle connections and lets a response in progress finish.
func TestShutdown(t *testing.T) {
	t.Parallel()
	for _, proto := range []string{"http/1.1", "h2"} {
		w := start(t)
		client := &http.Client{
			Transport: &http.Transport{
				ForceAttemptHTTP2: proto == "h2",
				TLSClientConfig:   &tls.Config{ServerName: site, InsecureSkipVerify: true, NextProtos: []string{proto}},
			},
			Timeout: patience,
		}
		for _, path := range []string{"/large", "/large?odd"} {
			r, err := http.NewRequest("GET", "https://"+w.fast+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Host = site
			resp, err := client.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			if path == "/large" {
				io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
				continue
			}
			done := make(chan error, 1)
			go func() { done <- w.server.Shutdown(t.Context()) }()
			b, err := io.ReadAll(resp.Body)
			if err != nil || len(b) != len(large) {
				t.Errorf("%s: %d bytes during Shutdown, %v", proto, len(b), err)
			}
			resp.Body.Close()
			select {
			case err := <-done:
				if err != nil {
					t.Errorf("%s: Shutdown: %v", proto, err)
				}
			case <-time.After(patience):
				t.Errorf("%s: Shutdown doesn't end", proto)
			}
		}
	}
}

func TestNewAnswer(t *testing.T) {
	t.Parallel()
	good := http.Header{"Content-Type": {"a/b"}, "Content-Length": {"1"}}
	if _, err := NewAnswer(good, []byte("x")); err != nil {
		t.Error(err)
	}
	for name, value := range map[string]string{
		"Connection":        "close",
		"Transfer-Encoding": "chunked",
		"X":                 "a\r\nSet-Cookie: b",
		"X Y":               "z",
		"Date":              "x",
		"Content-Length":    "2",
		"Y":                 " padded",
	} {
		h := good.Clone()
		h[name] = []string{value}
		if _, err := NewAnswer(h, []byte("x")); err == nil {
			t.Errorf("%s: %q is taken", name, value)
		}
	}
}

// For any bytes, the fast path gives the same responses as net/http.
func FuzzH1(f *testing.F) {
	for _, c := range corpus {
		if len(c.text) < 2000 {
			f.Add(c.text)
		}
	}
	w := start(f)
	f.Fuzz(func(t *testing.T, text string) {
		got, _ := exchange(t, w.fast, text, nil)
		want, _ := exchange(t, w.slow, text, nil)
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%q\nwith the fast path %.1000s\nwithout %.1000s", text, fmt.Sprint(got), fmt.Sprint(want))
		}
	})
}
