package transport

import (
	"context"
	"io"
	"net/http"
)

// Ask requests a path, as a check of the program's health, and returns the status of the answer.
func (t Transport) Ask(ctx context.Context, host, path string) (int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+host+path, nil)
	if err != nil {
		return 0, err
	}
	req.Header.Set("User-Agent", "Slipway-Health/1")
	req.Header.Set("X-Forwarded-Proto", "https")
	resp, err := t.RoundTrip(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	_, _ = io.CopyN(io.Discard, resp.Body, 64<<10)
	return resp.StatusCode, nil
}
