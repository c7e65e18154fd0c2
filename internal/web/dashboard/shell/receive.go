package shell

import (
	"context"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"net/url"
	"strings"
	"time"

	"slipway/internal/platform/fault"
)

// receiver takes the file of a form while it comes, after the fields that stand before it. drop removes what was
// received where the route's handler fails.
type receiver func(ctx context.Context, q *Request, file io.Reader) (received any, drop func(), err error)

// Receives returns the route as one whose form has a file. Its handler finds what was received in q.Received; nil: no
// file was chosen.
func (rt Route) Receives(fn receiver) Route {
	rt.receive = fn
	return rt
}

// Bounds of a form with a file.
const (
	maxFields    = 50
	maxField     = 16 << 10
	fileTime     = time.Minute // how long a browser may be silent
	maxDiscarded = 16 << 20    // of what is refused, so that the browser reads why
)

// boundaryOf returns what stands between the parts of a form with a file; empty: it is another form.
func boundaryOf(r *http.Request) string {
	kind, params, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if kind != "multipart/form-data" {
		return ""
	}
	return params["boundary"]
}

// receiveForm reads a form with a file.
func (d *Shell) receiveForm(ctx context.Context, w http.ResponseWriter, rt Route, q *Request, boundary string) (drop func(), err error) {
	done, ok := d.Streams.Begin(q.User.ID, q.Addr)
	if !ok {
		return nil, &fault.Error{
			Kind: fault.Limited, Message: "Too many open uploads", Details: "wait until one of them finishes", Code: "too_many_streams",
			RetryAfter: 5 * time.Second,
		}
	}
	defer done()
	conn := http.NewResponseController(w)
	defer func() { _ = conn.SetReadDeadline(time.Time{}) }() // recorders of tests have none
	body := &arriving{q.Body, conn}
	defer func() {
		if err != nil {
			_, _ = io.CopyN(io.Discard, body, maxDiscarded)
		}
	}()
	q.PostForm = url.Values{}
	parts := multipart.NewReader(body, boundary)
	for range maxFields {
		part, err := parts.NextPart()
		if errors.Is(err, io.EOF) {
			return nil, nil
		}
		if err != nil {
			return nil, &fault.Error{Kind: fault.Invalid, Message: "Invalid form data", Details: "the upload ended early, or is malformed"}
		}
		if part.FileName() != "" {
			q.Received, drop, err = rt.receive(ctx, q, part)
			return drop, err
		}
		text, err := io.ReadAll(io.LimitReader(part, maxField+1))
		if err != nil || len(text) > maxField {
			return nil, &fault.Error{Kind: fault.Invalid, Message: "Invalid form data", Details: "a field is too long, or malformed"}
		}
		q.PostForm.Add(part.FormName(), strings.ReplaceAll(string(text), "\r\n", "\n"))
	}
	return nil, &fault.Error{Kind: fault.Invalid, Message: "Invalid form data", Details: "the form has too many fields"}
}

// arriving reads for as long as the browser sends something every fileTime.
type arriving struct {
	io.Reader
	conn *http.ResponseController
}

func (r *arriving) Read(b []byte) (int, error) {
	_ = r.conn.SetReadDeadline(time.Now().Add(fileTime))
	return r.Reader.Read(b)
}
