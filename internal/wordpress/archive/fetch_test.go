package archive

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"slipway/internal/platform/fault"
)

// responder replaces the network.
type responder func(r *http.Request) (*http.Response, error)

func (s responder) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := s(r)
	if resp != nil {
		resp.Request = r
		if resp.Header == nil {
			resp.Header = http.Header{}
		}
	}
	return resp, err
}

func sends(body io.Reader, length int64) responder {
	return func(r *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: 200, Body: io.NopCloser(until{r.Context(), body}), ContentLength: length}, nil
	}
}

// until is a body that can be read until the request's context ends.
type until struct {
	ctx context.Context
	io.Reader
}

func (u until) Read(b []byte) (int, error) {
	if u.ctx.Err() != nil {
		return 0, u.ctx.Err()
	}
	return u.Reader.Read(b)
}

func redirects(to string) responder {
	return func(r *http.Request) (*http.Response, error) {
		if r.URL.Path == "/there" {
			if r.Header.Get("Referer") != "" {
				return nil, errors.New("it is told where from")
			}
			return sends(strings.NewReader("an archive"), -1)(r)
		}
		return &http.Response{StatusCode: 302, Header: http.Header{"Location": {to}}, Body: http.NoBody}, nil
	}
}

// drip sends a few bytes per second, forever.
type drip int

func (d drip) Read(b []byte) (int, error) {
	time.Sleep(time.Second)
	return min(int(d), len(b)), nil
}

// flood sends forever, as fast as the client reads.
type flood struct{}

func (flood) Read(b []byte) (int, error) { return len(b), nil }

// cutOff ends too early.
type cutOff struct{ io.Reader }

func (c cutOff) Read(b []byte) (int, error) {
	n, err := c.Reader.Read(b)
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// A download stops at the site's storage limit, uses only https, fails if the server stops sending, and must have the
// given checksum.
func TestDownload(t *testing.T) {
	t.Parallel()
	const most = 1 << 30
	right := sha256.Sum256([]byte("an archive"))
	for name, tt := range map[string]struct {
		from responder
		sum  string
		want string // part of the error; if empty, the download succeeds
	}{
		"plain":    {from: sends(strings.NewReader("an archive"), 10)},
		"checksum": {from: sends(strings.NewReader("an archive"), -1), sum: hex.EncodeToString(right[:])},
		"other archive": {
			from: sends(strings.NewReader("another"), -1),
			sum:  hex.EncodeToString(right[:]),
			want: "its SHA-256 is ae448ac86c4e8e4dec645729708ef41873ae79c6dff84eff73360989487f08e5",
		},
		"redirected":          {from: redirects("https://files.test/there")},
		"redirected to http":  {from: redirects("http://files.test/there"), want: "not https"},
		"redirected for ever": {from: redirects("https://files.test/again"), want: "redirected too often"},
		"announced too large": {from: sends(strings.NewReader("x"), most+1), want: "The archive is too large"},
		"too large":           {from: sends(flood{}, -1), want: "The archive is too large"},
		"cut off":             {from: sends(cutOff{strings.NewReader("an arch")}, 10), want: "the connection ended"},
		"too slow":            {from: sends(drip(1000), -1), want: "less than 1 MiB came within a minute"},
		"too long":            {from: sends(io.LimitReader(drip(100<<10), most), -1), want: "longer than an hour"},
		"missing": {from: func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 404, Body: http.NoBody}, nil
		}, want: "status 404"},
		"unknown host": {from: func(*http.Request) (*http.Response, error) {
			return nil, &net.DNSError{Err: "no such host", Name: "files.test", Server: "10.0.0.53"}
		}, want: "its host was not found"},
		"inside": {from: func(*http.Request) (*http.Response, error) {
			return nil, errors.New("dial 10.1.2.3:443: refused by policy")
		}, want: "its server can't be reached"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var got bytes.Buffer
				into := io.Writer(&got)
				if strings.HasPrefix(name, "too l") {
					into = io.Discard
				}
				err := Fetch(t.Context(), &http.Client{Transport: tt.from}, into, "https://files.test/site.tar.gz", tt.sum, most, func(int64, int64) {})
				if tt.want == "" {
					if err != nil || got.String() != "an archive" {
						t.Errorf("%q, %v", got.String(), err)
					}
					return
				}
				f := fault.As(err)
				if f == nil || !strings.Contains(f.Message+": "+f.Details, tt.want) {
					t.Errorf("%v, want %q", err, tt.want)
				}
				if f != nil && strings.Contains(f.Message+f.Details, "10.") {
					t.Errorf("what is inside is named: %v", f.Details)
				}
			})
		})
	}
	synctest.Test(t, func(t *testing.T) { // the service stops: the job starts again later
		out := &http.Client{Transport: sends(drip(2<<20), -1)}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if err := Fetch(ctx, out, io.Discard, "https://files.test/", "", most, func(int64, int64) {}); !errors.Is(
			err,
			context.DeadlineExceeded,
		) || fault.As(err) != nil {
			t.Errorf("%v", err)
		}
	})
}
