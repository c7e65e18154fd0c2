package edge

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"slipway/internal/platform/id"
)

// A connection that requests many responses with long header fields and never reads a body holds at most 1 MiB of
// fields plus its goroutines. Before, it held 6 MiB.
func TestUnreadAnswers(t *testing.T) { // not parallel: it measures memory
	w := start(t)
	headers := "/:name\n"
	for i := range 100 {
		headers += fmt.Sprintf("  X-Field-%d: %s\n", i, strings.Repeat(":name", 30))
	}
	const connections, streams = 8, 128
	hosts := make([]string, connections)
	for i := range hosts { // each of another site, because a visitor's limit is per site
		hosts[i] = fmt.Sprintf("blog%d.sites.test", i)
		w.live(id.Site(fmt.Sprint("s", i)), fmt.Sprint("blog", i), stateLive, w.publish(map[string]string{"xxxxx.html": "home", "_headers": headers}))
		w.get("https://"+hosts[i]+"/xxxxx").want(t, 200, "home")
	}
	held := func() int64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc + m.StackInuse)
	}
	before := held()
	sent := 0
	var given, refused atomic.Int64
	for _, host := range hosts {
		c, err := tls.Dial("tcp", w.https, &tls.Config{RootCAs: w.roots, ServerName: host, NextProtos: []string{"h2"}})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		var b, block bytes.Buffer
		b.WriteString(http2.ClientPreface)
		f := http2.NewFramer(&b, c)
		_ = f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
		enc := hpack.NewEncoder(&block)
		for i := range uint32(streams) {
			block.Reset()
			for _, field := range [][2]string{{":method", "GET"}, {":scheme", "https"}, {":authority", host}, {":path", "/xxxxx"}} {
				_ = enc.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]})
			}
			_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 2*i + 1, BlockFragment: block.Bytes(), EndHeaders: true, EndStream: true})
		}
		sent += b.Len()
		if _, err := io.Copy(c, &b); err != nil {
			t.Fatal(err)
		}
		go func() {
			for {
				frame, err := f.ReadFrame()
				if err != nil {
					return
				}
				switch head, ok := frame.(*http2.HeadersFrame); {
				case ok && len(head.HeaderBlockFragment()) < 1000: // an empty 503
					refused.Add(1)
				case ok:
					given.Add(1)
				}
			}
		}()
	}
	w.until("all requests are answered", func() bool { return given.Load()+refused.Load() == connections*streams })
	now := held() - before
	t.Logf("%d bytes sent, %d answers given and %d refused, %d bytes held, of which %d are counted", sent, given.Load(), refused.Load(), now, w.held.Bytes())
	if counted := w.held.Bytes(); counted > connections<<20 || counted < connections<<19 {
		t.Errorf("%d bytes of fields are counted", counted)
	}
	if given.Load() < connections*20 {
		t.Errorf("%d answers were given", given.Load())
	}
	if now > connections*5/2<<20 {
		t.Errorf("%.1f MiB are held", float64(now)/(1<<20))
	}
}
