package fastcgi

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/fcgi"
	"strings"
	"testing"
	"time"
)

// serve runs the standard library's FastCGI server with this handler and returns a function that dials it.
func serve(t *testing.T, h http.HandlerFunc) func() net.Conn {
	t.Helper()
	l, err := net.Listen("unix", t.TempDir()+"/s")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go fcgi.Serve(l, h)
	return func() net.Conn {
		c, err := net.Dial("unix", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
}

var params = []Param{
	{"REQUEST_METHOD", "POST"},
	{"SERVER_PROTOCOL", "HTTP/1.1"},
	{"REQUEST_URI", "/a?b=c"},
	{"HTTP_HOST", "site.test"},
	{"LONG", strings.Repeat("x", 70_000)},
}

func TestDo(t *testing.T) {
	t.Parallel()
	dial := serve(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		w.Header().Set("X-Uri", r.URL.RequestURI())
		w.Header()["Set-Cookie"] = []string{"a=1", "b=2"}
		w.WriteHeader(http.StatusTeapot)
		w.Write(bytes.Repeat(b, 3))
	})
	in := strings.Repeat("0123456789", 20_000)
	resp, err := Do(t.Context(), dial(), Request{Params: append(params, Param{"CONTENT_LENGTH", "200000"}), Body: strings.NewReader(in)})
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || string(b) != strings.Repeat(in, 3) {
		t.Errorf("%d bytes, %v", len(b), err)
	}
	if resp.StatusCode != http.StatusTeapot || resp.Header.Get("X-Uri") != "/a?b=c" || len(resp.Header["Set-Cookie"]) != 2 {
		t.Errorf("%d %v", resp.StatusCode, resp.Header)
	}
}

// An answer must stream: its first part must arrive while the responder still waits for the rest of the request.
func TestStreamsBothWays(t *testing.T) {
	t.Parallel()
	dial := serve(t, func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "first")
		w.(http.Flusher).Flush()
		io.Copy(io.Discard, r.Body)
		io.WriteString(w, " last")
	})
	body, send := io.Pipe()
	go send.Write([]byte("bo")) // the library's server calls its handler at the first bytes of a body
	resp, err := Do(t.Context(), dial(), Request{Params: append(params, Param{"CONTENT_LENGTH", "4"}), Body: body})
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	part := make([]byte, 5)
	if _, err := io.ReadFull(resp.Body, part); err != nil || string(part) != "first" {
		t.Fatalf("%q %v", part, err)
	}
	send.Write([]byte("dy"))
	send.Close()
	rest, err := io.ReadAll(resp.Body)
	if err != nil || string(rest) != " last" {
		t.Errorf("%q %v", rest, err)
	}
}

// raw returns a connection to a responder that sends these bytes, whatever it receives.
func raw(t testing.TB, answer []byte) net.Conn {
	ours, theirs := net.Pipe()
	go io.Copy(io.Discard, theirs)
	go func() {
		theirs.Write(answer)
		theirs.Close()
	}()
	return ours
}

func end(status byte) []byte { return record(nil, typeEnd, []byte{0, 0, 0, 0, status, 0, 0, 0}) }

func join(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

func out(text string) []byte { return record(nil, typeStdout, []byte(text)) }

func TestAnswers(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 40_000)
	for name, tt := range map[string]struct {
		answer []byte
		head   bool
		status int
		body   string
		err    error // the error that Do returns
		broken bool  // the body ends with an error
	}{
		"plain":            {answer: join(out("A: b\r\n\r\nhello"), end(0)), status: 200, body: "hello"},
		"line feeds alone": {answer: join(out("A: b\n\nhello"), end(0)), status: 200, body: "hello"},
		"status":           {answer: join(out("Status: 404 Not Found\r\n\r\n"), end(0)), status: 404},
		"location":         {answer: join(out("Location: /x\r\n\r\n"), end(0)), status: 302},
		"in pieces": {
			answer: join(out("A: b\r"), out("\n\r"), out("\nhe"), record(nil, typeStderr, []byte("oh")), out("llo"), end(0)),
			status: 200,
			body:   "hello",
		},
		"announced":              {answer: join(out("Content-Length: 5\r\n\r\nhello"), end(0)), status: 200, body: "hello"},
		"more than announced":    {answer: join(out("Content-Length: 5\r\n\r\nhello, world"), end(0)), status: 200, body: "hello"},
		"less than announced":    {answer: join(out("Content-Length: 9\r\n\r\nhello"), end(0)), status: 200, body: "hello", broken: true},
		"head":                   {answer: join(out("Content-Length: 9\r\n\r\n"), end(0)), head: true, status: 200},
		"no end":                 {answer: out("A: b\r\n\r\nhello"), status: 200, body: "hello", broken: true},
		"record cut off":         {answer: out("A: b\r\n\r\nhello")[:20], status: 200, body: "hell", broken: true},
		"nothing":                {err: io.ErrUnexpectedEOF},
		"no head":                {answer: end(0), err: io.ErrUnexpectedEOF},
		"overloaded":             {answer: end(2), err: ErrOverloaded},
		"unknown role":           {answer: end(3), err: ErrProtocol},
		"another version":        {answer: []byte("HTTP/1.1 200 OK\r\n\r\n"), err: ErrProtocol},
		"switching protocols":    {answer: join(out("Status: 101\r\n\r\n"), end(0)), err: ErrProtocol},
		"early hints":            {answer: join(out("Status: 103\r\n\r\n"), end(0)), err: ErrProtocol},
		"no status":              {answer: join(out("Status: abc\r\n\r\n"), end(0)), err: ErrProtocol},
		"no field":               {answer: join(out("hello\r\n\r\n"), end(0)), err: ErrProtocol},
		"space before the colon": {answer: join(out("A : b\r\n\r\n"), end(0)), err: ErrProtocol},
		"control character":      {answer: join(out("A: b\x00c\r\n\r\n"), end(0)), err: ErrProtocol},
		"two lengths":            {answer: join(out("Content-Length: 1\r\nContent-Length: 2\r\n\r\n"), end(0)), err: ErrProtocol},
		"negative length":        {answer: join(out("Content-Length: -1\r\n\r\n"), end(0)), err: ErrProtocol},
		"chunked":                {answer: join(out("Transfer-Encoding: chunked\r\n\r\nhello"), end(0)), status: 200, body: "hello"},
		"endless line":           {answer: join(out("A: "+long), out(long), end(0)), err: ErrProtocol},
		"many fields":            {answer: join(out(strings.Repeat("A: b\r\n", 300)), end(0)), err: ErrProtocol},
		"flood beside":           {answer: bytes.Repeat(record(nil, typeStderr, []byte(long)), 300), err: ErrProtocol},
		"short end":              {answer: record(nil, typeEnd, nil), err: ErrProtocol},
		"another request's": {
			answer: join([]byte{1, typeStdout, 0, 7, 0, 1, 0, 0, 'x'}, out("A: b\r\n\r\nhello"), end(0)),
			status: 200,
			body:   "hello",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			resp, err := Do(t.Context(), raw(t, tt.answer), Request{Params: params, Head: tt.head})
			if tt.err != nil {
				if !errors.Is(err, tt.err) {
					t.Fatalf("%v, want %v", err, tt.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			b, err := io.ReadAll(resp.Body)
			if resp.StatusCode != tt.status || string(b) != tt.body || (err != nil) != tt.broken {
				t.Errorf("%d %q %v", resp.StatusCode, b, err)
			}
			if resp.Header.Get("Transfer-Encoding") != "" || resp.Header.Get("Status") != "" {
				t.Errorf("%v", resp.Header)
			}
		})
	}
}

// If a request's body breaks off, the request must be aborted, so that the responder does not take the body as
// complete.
func TestHalfARequest(t *testing.T) {
	t.Parallel()
	got := make(chan error, 1)
	dial := serve(t, func(w http.ResponseWriter, r *http.Request) {
		_, err := io.ReadAll(r.Body)
		got <- err
	})
	_, err := Do(t.Context(), dial(), Request{
		Params: append(params, Param{"CONTENT_LENGTH", "10"}),
		Body:   io.MultiReader(strings.NewReader("half"), failing{}),
	})
	if err == nil {
		t.Error("Do returned an answer to an incomplete request")
	}
	select {
	case err := <-got:
		if err == nil {
			t.Error("the responder took an incomplete request as complete")
		}
	case <-time.After(time.Minute):
		t.Error("the responder still waits")
	}
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errors.New("the visitor has left") }

// When the context ends, an unanswered request must end too.
func TestCanceled(t *testing.T) {
	t.Parallel()
	ours, theirs := net.Pipe()
	defer theirs.Close()
	go io.Copy(io.Discard, theirs)
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("left")
	time.AfterFunc(10*time.Millisecond, func() { cancel(why) })
	if _, err := Do(ctx, ours, Request{Params: params}); !errors.Is(err, why) {
		t.Errorf("%v", err)
	}
}

func TestTooLargeEnvironment(t *testing.T) {
	t.Parallel()
	if _, err := Do(t.Context(), raw(t, nil), Request{Params: []Param{{"A", strings.Repeat("x", maxParam+1)}}}); err == nil {
		t.Error("sent")
	}
}

// Whatever a responder sends, Do and the body must end. An answer must have a status from 200 to 599 and a head within
// the limits, and its body must hold no more than was sent.
func FuzzAnswer(f *testing.F) {
	f.Add(join(out("Status: 404\r\nContent-Length: 3\r\n\r\nabc"), end(0)))
	f.Add(join(out("A: b\n\n"), record(nil, typeStderr, []byte("x")), end(0)))
	f.Add(end(2))
	f.Add([]byte("HTTP/1.1 200 OK\r\n\r\n"))
	f.Fuzz(func(t *testing.T, answer []byte) {
		resp, err := Do(t.Context(), raw(t, answer), Request{Params: params[:1]})
		if err != nil {
			return
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if resp.StatusCode < 200 || resp.StatusCode > 599 || len(b) > len(answer) || len(resp.Header) > maxFields {
			t.Errorf("%d %d %v", resp.StatusCode, len(b), resp.Header)
		}
		if n := resp.ContentLength; err == nil && n > 0 && int64(len(b)) != n && resp.StatusCode != 204 && resp.StatusCode != 304 {
			t.Errorf("%d bytes announced, %d came", n, len(b))
		}
	})
}
