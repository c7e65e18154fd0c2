package rest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"
)

// Body is a request with a streamed body.
type Body struct {
	Method   string
	Path     string // below /api/v1
	Type     string // its media type
	Encoding string // Content-Encoding. Optional.
	Size     int64  // size in bytes
	Offset   int64  // with PATCH: the body's position in the file
	Key      string // Idempotency-Key. Optional.
}

// uploadTries is the number of attempts; with the pauses, they outlast a restart of the server.
const uploadTries = 8

// longestPause is the longest pause between attempts.
const longestPause = 8 * time.Second

// Upload sends a body and retries if the connection breaks or the server asks to wait, so repeating it must be
// harmless. A PATCH isn't repeated after a broken connection. open is called for each attempt. It returns errors of the
// body's reader unchanged.
func (c *Client) Upload(ctx context.Context, b Body, open func() (io.ReadCloser, error)) (json.RawMessage, error) {
	pause := 250 * time.Millisecond
	for try := 1; ; try++ {
		answer, wait, err := c.upload(ctx, b, open)
		switch {
		case err == nil:
			return answer, nil
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case try == uploadTries, errors.Is(err, ErrUnreachable) && b.Method == http.MethodPatch:
			return nil, err
		case !errors.Is(err, ErrUnreachable) && (wait <= 0 || wait > maxWait):
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(max(wait, pause)):
		}
		pause = min(2*pause, longestPause)
	}
}

// source keeps the error of a body's reader, which the transport would wrap.
type source struct {
	io.ReadCloser
	err error
}

func (s *source) Read(p []byte) (int, error) {
	n, err := s.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		s.err = err
	}
	return n, err
}

func (c *Client) upload(ctx context.Context, b Body, open func() (io.ReadCloser, error)) (_ json.RawMessage, wait time.Duration, _ error) {
	in, err := open()
	if err != nil {
		return nil, 0, err
	}
	body := &source{ReadCloser: in}
	defer body.Close()
	req, err := http.NewRequestWithContext(ctx, b.Method, c.c.Server+"/api/v1"+b.Path, body)
	if err != nil {
		return nil, 0, err
	}
	req.ContentLength = b.Size
	req.Header.Set("Content-Type", b.Type)
	if b.Encoding != "" {
		req.Header.Set("Content-Encoding", b.Encoding)
	}
	if b.Method == http.MethodPatch {
		req.Header.Set("Upload-Offset", strconv.FormatInt(b.Offset, 10))
	}
	if b.Key != "" {
		req.Header.Set("Idempotency-Key", b.Key)
	}
	req.Header.Set("User-Agent", c.c.Agent)
	if c.c.Token != nil {
		token, err := c.c.Token(ctx)
		if err != nil {
			return nil, 0, err
		}
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := c.http.Do(req)
	switch {
	case err != nil && body.err != nil:
		return nil, 0, body.err
	case err != nil:
		return nil, 0, fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, 0, fmt.Errorf("%w: the answer breaks off: %w", ErrUnreachable, err)
	}
	if resp.StatusCode/100 == 2 {
		return answer, 0, nil
	}
	if resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode == http.StatusServiceUnavailable {
		n, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
		wait = time.Duration(n) * time.Second
	}
	return nil, wait, refused(resp, answer)
}

// Post makes one request to a path outside the REST interface and returns its status and body.
func (c *Client) Post(ctx context.Context, path string, h http.Header, body []byte) (status int, answer []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.c.Server+path, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	req.Header = h.Clone()
	req.Header.Set("User-Agent", c.c.Agent)
	if c.c.Token != nil {
		token, err := c.c.Token(ctx)
		if err != nil {
			return 0, nil, err
		}
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return 0, nil, fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	defer resp.Body.Close()
	if answer, err = io.ReadAll(io.LimitReader(resp.Body, maxAnswer)); err != nil {
		return 0, nil, fmt.Errorf("%w: the answer breaks off: %w", ErrUnreachable, err)
	}
	return resp.StatusCode, answer, nil
}

// Refusal returns the error of an unsuccessful response.
func Refusal(status int, answer []byte) error { return refusal(status, answer) }
