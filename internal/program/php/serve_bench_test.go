package php

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"slipway/internal/edge/compress"
)

// BenchmarkStylesheet requests a style sheet of 100 KiB over TLS, uncompressed and compressed.
func BenchmarkStylesheet(b *testing.B) {
	var text strings.Builder
	for i := 0; text.Len() < 100<<10; i++ {
		text.WriteString(".wp-block-" + strings.Repeat(
			string(rune('a'+i%26)),
			1+i*7%11,
		) + " > .is-layout-flow{margin-block-start:" + string(rune('0'+i*13%10)) + "." + string(rune('0'+i*31%10)) + "rem;color:#" + string("0123456789abcdef"[i*29%16]) + "f3}\n")
	}
	dir := b.TempDir()
	if err := os.WriteFile(dir+"/style.css", []byte(text.String()), 0o644); err != nil {
		b.Fatal(err)
	}
	s := &Site{
		Name: "site", Open: func(name string) (*os.File, bool, error) { f, err := os.Open(dir + "/" + name); return f, true, err },
		Copies: compress.New(compress.Config{Now: func() time.Time { return time.Now().Add(time.Hour) }}),
	}
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.Serve(w, r) }))
	defer srv.Close()
	c := srv.Client()
	c.Transport.(*http.Transport).DisableCompression = true
	for name, accept := range map[string]string{"as it is": "identity", "br": "br", "gzip": "gzip", "zstd": "zstd"} {
		b.Run(name, func(b *testing.B) {
			var n int64
			for b.Loop() {
				r, err := http.NewRequestWithContext(b.Context(), http.MethodGet, srv.URL+"/style.css", nil)
				if err != nil {
					b.Fatal(err)
				}
				r.Header.Set("Accept-Encoding", accept)
				resp, err := c.Do(r)
				if err != nil {
					b.Fatal(err)
				}
				if n, err = io.Copy(io.Discard, resp.Body); err != nil {
					b.Fatal(err)
				}
				resp.Body.Close()
			}
			b.ReportMetric(float64(n), "B/answer")
		})
	}
}
