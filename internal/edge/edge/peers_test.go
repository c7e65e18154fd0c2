package edge

import (
	"bytes"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// dial connects to a host of the world with proto.
func (w *world) dial(t *testing.T, host, proto string) *tls.Conn {
	t.Helper()
	c, err := tls.Dial("tcp", w.https, &tls.Config{RootCAs: w.roots, ServerName: host, NextProtos: []string{proto}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(2 * time.Minute))
	return c
}

// ask2 sends a hand-made HTTP/2 request with fields and body that no client library would send, then a valid one. It
// returns the received text once the second is answered or the connection closes.
func ask2(c *tls.Conn, host string, fields [][2]string, body string, trailers ...[2]string) string {
	var got, block bytes.Buffer
	_, _ = io.WriteString(c, http2.ClientPreface)
	f := http2.NewFramer(c, c)
	_ = f.WriteSettings()
	enc := hpack.NewEncoder(&block)
	write := func(id uint32, end bool, fields [][2]string) {
		block.Reset()
		for _, field := range fields {
			_ = enc.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]})
		}
		_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block.Bytes(), EndHeaders: true, EndStream: end})
	}
	write(1, body == "", fields)
	if body != "" {
		_ = f.WriteData(1, len(trailers) == 0, []byte(body))
	}
	if len(trailers) > 0 {
		write(1, true, trailers)
	}
	write(3, true, [][2]string{{":method", "GET"}, {":scheme", "https"}, {":authority", host}, {":path", "/asked"}})
	f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	ended := map[uint32]bool{}
	for !ended[1] || !ended[3] {
		frame, err := f.ReadFrame()
		if err != nil {
			return got.String()
		}
		ended[frame.Header().StreamID] = ended[frame.Header().StreamID] || frame.Header().Flags.Has(http2.FlagDataEndStream) &&
			(frame.Header().Type == http2.FrameData || frame.Header().Type == http2.FrameHeaders)
		switch frame := frame.(type) {
		case *http2.MetaHeadersFrame:
			fmt.Fprintf(&got, "status %s\n", frame.PseudoValue("status"))
		case *http2.DataFrame:
			got.Write(frame.Data())
		case *http2.RSTStreamFrame:
			ended[frame.StreamID] = true
		case *http2.GoAwayFrame:
			return got.String()
		}
	}
	return got.String()
}

// A program receives only requests that a client really sent, each with the client's address. Known attacks on other
// servers (request smuggling, HTTP/2 fields that become HTTP/1.1 lines, names that CGI confuses with others) are
// refused or have no effect.
func TestPeersRequestsOfPrograms(t *testing.T) {
	t.Parallel()
	const host = "app.sites.test"
	const hidden = "GET /smuggled HTTP/1.1\r\nHost: app.sites.test\r\nX-Forwarded-For: 6.6.6.6\r\n\r\n"
	plain := func(method, path string, more ...[2]string) [][2]string {
		return append([][2]string{{":method", method}, {":scheme", "https"}, {":authority", host}, {":path", path}}, more...)
	}
	one := map[string]string{
		"length beside chunks":  "POST /asked HTTP/1.1\r\nHost: app.sites.test\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + hidden,
		"chunks beside length":  "POST /asked HTTP/1.1\r\nHost: app.sites.test\r\nTransfer-Encoding: chunked\r\nContent-Length: 120\r\n\r\n0\r\n\r\n" + hidden,
		"two lengths":           "POST /asked HTTP/1.1\r\nHost: app.sites.test\r\nContent-Length: 0\r\nContent-Length: 99\r\n\r\n" + hidden,
		"list of lengths":       "POST /asked HTTP/1.1\r\nHost: app.sites.test\r\nContent-Length: 0, 99\r\n\r\n" + hidden,
		"signed length":         "POST /asked HTTP/1.1\r\nHost: app.sites.test\r\nContent-Length: +0\r\n\r\n" + hidden,
		"blank before colon":    "POST /asked HTTP/1.1\r\nHost: app.sites.test\r\nTransfer-Encoding : chunked\r\nContent-Length: 0\r\n\r\n" + hidden,
		"two codings":           "POST /asked HTTP/1.1\r\nHost: app.sites.test\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n" + hidden,
		"coding twice":          "POST /asked HTTP/1.1\r\nHost: app.sites.test\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n\r\n0\r\n\r\n" + hidden,
		"coding of HTTP/1.0":    "POST /asked HTTP/1.0\r\nHost: app.sites.test\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + hidden,
		"folded coding":         "POST /asked HTTP/1.1\r\nHost: app.sites.test\r\nContent-Length: 0\r\nTransfer-Encoding:\r\n chunked\r\n\r\n" + hidden,
		"chunk with bare LF":    "POST /asked HTTP/1.1\r\nHost: app.sites.test\r\nTransfer-Encoding: chunked\r\n\r\n1;\nGET /smuggled HTTP/1.1\r\n0\r\n\r\n" + hidden,
		"chunk of another size": "POST /asked HTTP/1.1\r\nHost: app.sites.test\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n0\r\n\r\n" + hidden,
		"negative chunk":        "POST /asked HTTP/1.1\r\nHost: app.sites.test\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n\r\n" + hidden,
		"line in a chunk's name": "POST /asked HTTP/1.1\r\nHost: app.sites.test\r\nTransfer-Encoding: chunked\r\n\r\n0;x=\"\r\n\r\n" +
			hidden,
		"bare CR in a field":  "GET /asked HTTP/1.1\r\nHost: app.sites.test\r\nX: a\rX-Forwarded-For: 6.6.6.6\r\n\r\n",
		"bare LF in a field":  "GET /asked HTTP/1.1\r\nHost: app.sites.test\r\nX: a\nX-Forwarded-For: 6.6.6.6\r\n\r\n",
		"NUL in a field":      "GET /asked HTTP/1.1\r\nHost: app.sites.test\r\nX: a\x00b\r\n\r\n",
		"another host":        "GET http://evil.test/smuggled HTTP/1.1\r\nHost: app.sites.test\r\n\r\n",
		"two hosts":           "GET /asked HTTP/1.1\r\nHost: app.sites.test\r\nHost: evil.test\r\n\r\n",
		"target with a blank": "GET /asked /smuggled HTTP/1.1\r\nHost: app.sites.test\r\n\r\n",
		"upgrade to HTTP/2":   "GET /asked HTTP/1.1\r\nHost: app.sites.test\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA\r\n\r\n" + http2.ClientPreface,
		"trailers that say who asks": "POST /asked HTTP/1.1\r\nHost: app.sites.test\r\nTransfer-Encoding: chunked\r\nTrailer: X-Forwarded-For\r\n\r\n" +
			"0\r\nX-Forwarded-For: 6.6.6.6\r\n\r\n",
		"own fields taken off": "GET /asked HTTP/1.1\r\nHost: app.sites.test\r\nConnection: X-Forwarded-For, X-Real-Ip, Forwarded, close\r\nX-Forwarded-For: 6.6.6.6\r\n\r\n",
	}
	type two struct {
		fields   [][2]string
		body     string
		trailers [][2]string
	}
	injected := "/asked HTTP/1.1\r\nHost: app.sites.test\r\n\r\n" + hidden
	over2 := map[string]two{
		"lines in a path":      {fields: plain("GET", injected)},
		"lines in a method":    {fields: plain("GET "+injected+"GET", "/asked")},
		"lines in a host":      {fields: [][2]string{{":method", "GET"}, {":scheme", "https"}, {":authority", host + "\r\n\r\n" + hidden}, {":path", "/asked"}}},
		"lines in a scheme":    {fields: [][2]string{{":method", "GET"}, {":scheme", "https://evil.test/smuggled?"}, {":authority", host}, {":path", "/asked"}}},
		"lines in a value":     {fields: plain("GET", "/asked", [2]string{"x", "a\r\nx-forwarded-for: 6.6.6.6"})},
		"LF in a value":        {fields: plain("GET", "/asked", [2]string{"x", "a\nx-forwarded-for: 6.6.6.6"})},
		"lines in a cookie":    {fields: plain("GET", "/asked", [2]string{"cookie", "a=b\r\nx-forwarded-for: 6.6.6.6"})},
		"lines in a name":      {fields: plain("GET", "/asked", [2]string{"x: a\r\nx-forwarded-for", "6.6.6.6"})},
		"colon in a name":      {fields: plain("GET", "/asked", [2]string{"x-forwarded-for:", "6.6.6.6"})},
		"coding":               {fields: plain("POST", "/asked", [2]string{"transfer-encoding", "chunked"}), body: "0\r\n\r\n" + hidden},
		"length of nothing":    {fields: plain("POST", "/asked", [2]string{"content-length", "0"}), body: hidden},
		"length too short":     {fields: plain("POST", "/asked", [2]string{"content-length", "5"}), body: hidden},
		"length too long":      {fields: plain("POST", "/asked", [2]string{"content-length", "5000"}), body: hidden},
		"length of a GET":      {fields: plain("GET", "/asked", [2]string{"content-length", "0"}), body: hidden},
		"two lengths":          {fields: plain("POST", "/asked", [2]string{"content-length", "0"}, [2]string{"content-length", "99"}), body: hidden},
		"body without length":  {fields: plain("GET", "/asked"), body: hidden},
		"host beside it":       {fields: plain("GET", "/asked", [2]string{"host", "evil.test"})},
		"path of another host": {fields: plain("GET", "http://evil.test/smuggled")},
		"trailers that say who asks": {
			fields: plain("POST", "/asked"), body: "hello", trailers: [][2]string{{"x-forwarded-for", "6.6.6.6"}},
		},
		"trailers that are a request": {
			fields: plain("POST", "/asked"), body: "hello", trailers: [][2]string{{":path", "/smuggled"}, {"content-length", "0"}},
		},
	}
	for i, name := range []string{
		"X-Forwarded-For", "X_Forwarded_For", "X-Forwarded_For", "X.Forwarded.For", "X-FORWARDED-FOR", "X_Real_Ip", "X-Real.Ip", "Forwarded",
		"X_Forwarded_Proto", "X_Forwarded_Host", "Proxy",
	} {
		one[fmt.Sprint("name ", i, " ", name)] = "GET /asked HTTP/1.1\r\nHost: app.sites.test\r\n" + name + ": 6.6.6.6\r\n\r\n"
		over2["name "+name] = two{fields: plain("GET", "/asked", [2]string{strings.ToLower(name), "6.6.6.6"})}
	}
	for way := range 3 {
		var mu sync.Mutex
		var seen []string
		asked := 0
		p := startProgramBy(t, way, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			said := fmt.Sprint(r.RequestURI, " of ", r.Host, " ", r.Header, r.Trailer)
			cgi := map[string][]string{}
			for name, values := range r.Header {
				cgi[strings.NewReplacer("-", "_", ".", "_").Replace(strings.ToUpper(name))] = values
			}
			mu.Lock()
			defer mu.Unlock()
			asked++
			if r.RequestURI != "/asked" || r.Host != host || strings.Contains(said, "6.6.6.6") || strings.Contains(said, "evil") ||
				strings.Join(cgi["X_FORWARDED_FOR"], ",") != "127.0.0.1" || strings.Join(cgi["X_REAL_IP"], ",") != "127.0.0.1" {
				seen = append(seen, said)
			}
		})
		check := func(name string) {
			mu.Lock()
			defer mu.Unlock()
			if len(seen) > 0 {
				t.Errorf("way %d, %s: the program saw %q", way, name, seen)
			}
			seen = nil
		}
		for name, request := range one {
			c := p.dial(t, host, "http/1.1")
			_, _ = io.WriteString(c, request)
			_ = c.CloseWrite()
			_, _ = io.Copy(io.Discard, c)
			c.Close()
			check("HTTP/1.1, " + name)
		}
		for name, tt := range over2 {
			c := p.dial(t, host, "h2")
			ask2(c, host, tt.fields, tt.body, tt.trailers...)
			c.Close()
			check("HTTP/2, " + name)
		}
		if got := ask2(p.dial(t, host, "h2"), host, plain("GET", "/asked"), ""); strings.Count(got, "status 200") != 2 {
			t.Errorf("way %d: afterwards %q", way, got)
		}
		mu.Lock()
		if asked < len(over2)+22 { // the valid ones, and those whose bad fields are dropped
			t.Errorf("way %d: the program was asked %d times", way, asked)
		}
		mu.Unlock()
	}
}

// No spelling of a path bypasses a folder's password, over HTTP/1.1 or HTTP/2: rules match the path that is served.
func TestPeersPathsOfFiles(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.live("s1", "blog", stateLive, w.publish(map[string]string{
		"index.html": "home", "secret/plan.html": "the plan", "secret/a b.html": "the plan", "open/x.html": "x",
		"_headers":   "/secret/*\n  Basic-Auth: anna:geheim\n",
		"_redirects": "/alias/* /secret/:splat 200\n/old/* /open/:splat 200\n",
	}))
	const host = "blog.sites.test"
	paths := []string{
		"/secret/plan.html", "/secret/plan", "/secret//plan", "//secret/plan", "/./secret/plan", "/open/../secret/plan", "/open/%2e%2e/secret/plan",
		"/open/..%2fsecret/plan", "/%73ecret/plan", "/secre%74/plan.html", "/secret%2fplan.html", "/secret%2Fplan", "/secret%5cplan.html", "/secret\\plan.html",
		"/open/..\\secret\\plan.html", "/open/%2e%2e%5csecret/plan", "/secret/./plan", "/secret/x/../plan", "/SECRET/plan.html", "/Secret/plan",
		"/\u017fecret/plan.html", "/%c5%bfecret/plan.html", "/secret;x/plan.html", "/secret;/../secret/plan", "/secret/plan.html/", "/secret/plan.html;a", "/secret/plan.html.",
		"/secret/plan%00.html", "/secret/plan.html%00", "/secret/plan.html?x=/open/", "/open/x?/../secret/plan", "/secret/a%20b", "/secret/a+b", "/alias/plan",
		"/alias/../secret/plan", "/old/../secret/plan", "/old/..%2fsecret/plan", "/old/%2e%2e/secret/plan", "/old/%252e%252e/secret/plan", "/secret%252fplan", "/%2fsecret/plan",
		"/secret/plan#", "/secret\t/plan", "/secret/plan%23", "/secret/plan%3f",
	}
	for _, path := range paths {
		c := w.dial(t, host, "http/1.1")
		fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", path, host)
		if got, _ := io.ReadAll(c); bytes.Contains(got, []byte("the plan")) {
			t.Errorf("HTTP/1.1: %s leads past the password: %.200q", path, got)
		}
		c.Close()
		c = w.dial(t, host, "h2")
		fields := [][2]string{{":method", "GET"}, {":scheme", "https"}, {":authority", host}, {":path", path}}
		if got := ask2(c, host, fields, ""); strings.Contains(got, "the plan") {
			t.Errorf("HTTP/2: %s leads past the password: %.200q", path, got)
		}
		c.Close()
	}
	auth := "Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte("anna:geheim"))
	w.get("https://"+host+"/secret/plan", auth).want(t, 200, "the plan") // proves that the page can be read with the password
	w.get("https://"+host+"/alias/plan", auth).want(t, 200, "the plan")
}
