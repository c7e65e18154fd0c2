package fileserver

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/gzip"
)

// Visitors get the best encoding that they accept.
func TestEncodings(t *testing.T) {
	t.Parallel()
	w := start(t)
	tags := map[string]string{}
	for accept, want := range map[string]string{
		"":                               "",
		"gzip, deflate, br, zstd":        "br",
		"gzip":                           "gzip",
		"x-gzip":                         "gzip",
		"GZIP":                           "gzip",
		"br;q=0, gzip":                   "gzip",
		"br;q=0.5, gzip;q=0.9":           "gzip",
		"br;q=0.5, gzip;q=0.5":           "br",
		"*":                              "br",
		"*;q=0":                          "",
		"gzip;q=0, *":                    "br",
		"identity":                       "",
		"identity, br;q=0.5":             "",
		"identity;q=0, br;q=0.001":       "br",
		"br;q=1.5, gzip;q=x":             "",
		"br;q=NaN":                       "",
		"deflate":                        "",
		",,;,br ; q=1,":                  "br",
		strings.Repeat("x,", 100) + "br": "", // more entries than are considered
	} {
		a := w.get("/app.js", "Accept-Encoding: "+accept)
		a.want(t, 200, "").head(t, "Content-Encoding", want).head(t, "Vary", "Accept-Encoding").head(t, "Content-Type",
			"text/javascript; charset=utf-8")
		var r io.Reader = strings.NewReader(a.body)
		switch want {
		case "br":
			r = brotli.NewReader(r)
		case "gzip":
			var err error
			if r, err = gzip.NewReader(r); err != nil {
				t.Fatal(err)
			}
		}
		if b, err := io.ReadAll(r); err != nil || string(b) != script {
			t.Errorf("Accept-Encoding %q: unpacks to %d bytes, %v", accept, len(b), err)
		}
		tag := a.header.Get("Etag")
		if !strings.HasPrefix(tag, `"`) || tags[want] != "" && tags[want] != tag {
			t.Errorf("Accept-Encoding %q: ETag %s, before %s", accept, tag, tags[want])
		}
		tags[want] = tag
	}
	if tags[""] == tags["br"] || tags["br"] == tags["gzip"] || tags["gzip"] == tags[""] {
		t.Errorf("two representations have one tag: %v", tags)
	}
}

// Conditional requests follow RFC 9110, section 13.
func TestConditions(t *testing.T) {
	t.Parallel()
	w := start(t)
	const url = "/app.js"
	tag := w.get(url).header.Get("Etag")
	packed := w.get(url, "Accept-Encoding: br").header.Get("Etag")
	for _, tt := range []struct {
		headers []string
		status  int
	}{
		{[]string{"If-None-Match: " + tag}, 304},
		{[]string{"If-None-Match: W/" + tag}, 304},
		{[]string{"If-None-Match: *"}, 304},
		{[]string{`If-None-Match: "a", W/"b" ,` + tag}, 304},
		{[]string{`If-None-Match: "a"`, "If-None-Match: " + tag}, 304},
		{[]string{`If-None-Match: "other"`}, 200},
		{[]string{"If-None-Match: " + strings.Trim(tag, `"`)}, 200},
		{[]string{`If-None-Match: "unfinished`}, 200},
		{[]string{"If-None-Match: " + packed}, 200},
		{[]string{"If-None-Match: " + packed, "Accept-Encoding: br"}, 304},
		{[]string{"If-Match: " + tag}, 200},
		{[]string{"If-Match: " + packed}, 200},
		{[]string{"If-Match: *"}, 200},
		{[]string{"If-Match: W/" + tag}, 412},
		{[]string{`If-Match: "other"`}, 412},
		{[]string{`If-Match: "other"`, "If-None-Match: " + tag}, 412},
		{[]string{"If-Modified-Since: " + time.Now().UTC().Format(http.TimeFormat)}, 200},
		{[]string{"If-None-Match: " + tag, "Range: bytes=0-1"}, 304},
	} {
		a := w.get(url, tt.headers...)
		if a.status != tt.status {
			t.Errorf("%q: status %d, want %d", tt.headers, a.status, tt.status)
		}
		if a.status == 304 {
			a.head(t, "Cache-Control", "public, max-age=0, must-revalidate").head(t, "Vary", "Accept-Encoding").head(t, "Content-Type", "")
			if a.header.Get("Etag") == "" || a.body != "" {
				t.Errorf("%q: a 304 without a tag, or with %d bytes", tt.headers, len(a.body))
			}
		}
	}
}

// Content negotiation with three encodings follows RFC 9110, section 12.5.3.
func TestThreeEncodings(t *testing.T) {
	t.Parallel()
	w := start(t)
	for accept, want := range map[string]string{
		"gzip, deflate, br, zstd":    "br",
		"zstd, gzip":                 "zstd",
		"gzip":                       "gzip",
		"zstd;q=1, br;q=0.9":         "zstd",
		"gzip;q=1.0, zstd;q=0.5":     "gzip",
		"*":                          "br",
		"br;q=0, *":                  "zstd",
		"identity":                   "",
		"br;q=0, gzip;q=0, zstd;q=0": "",
		"identity;q=1, zstd;q=0.5":   "",
		"":                           "",
		"compress":                   "",
	} {
		a := w.get("/app.js", "Accept-Encoding: "+accept)
		a.want(t, 200, "").head(t, "Content-Encoding", want).head(t, "Vary", "Accept-Encoding")
	}
}
