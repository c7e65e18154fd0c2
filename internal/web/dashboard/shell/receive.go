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

// receiver processes a form's file while it is uploaded, after the fields before it. drop deletes the received file if
// the route's handler fails.
type receiver func(ctx context.Context, q *Request, file io.Reader) (received any, drop func(), err error)

// Receives returns the route with a receiver for the form's file. The handler finds the result in q.Received, which is
// nil if no file was chosen.
func (rt Route) Receives(fn receiver) Route {
	rt.receive = fn
	return rt
}

// Limits of a form with a file.
const (
	maxFields    = 50
	maxField     = 16 << 10
	fileTime     = time.Minute // how long the browser may send nothing
	maxDiscarded = 16 << 20    // read from a refused upload, so that the browser shows the response
)

// boundaryOf returns the multipart boundary of a form with a file, or "" for another form.
func boundaryOf(r *http.Request) string {
	kind, params, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if kind != "multipart/form-data" {
		return ""
	}
	return params["boundary"]
}

// receiveForm reads a form with a file. drop deletes the received file.
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
	defer func() { _ = conn.SetReadDeadline(time.Time{}) }() // test recorders have no deadline
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

// arriving extends the read deadline as long as the browser keeps sending.
type arriving struct {
	io.Reader
	conn *http.ResponseController
}

func (r *arriving) Read(b []byte) (int, error) {
	_ = r.conn.SetReadDeadline(time.Now().Add(fileTime))
	return r.Reader.Read(b)
}
