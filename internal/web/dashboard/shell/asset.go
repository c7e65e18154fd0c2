package shell

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"

	"slipway/internal/platform/fault"
)

// asset is a file loaded by pages. Its public name changes with its content, so it can be cached forever.
type asset struct {
	kind  string
	from  fs.FS
	file  string
	sheet []byte // style sheet with the other assets' public names

	once sync.Once // guards gzip
	gzip []byte    // empty if it isn't smaller
}

// Plain returns the bytes from the program's file instead of keeping a rarely used copy in memory.
func (a *asset) Plain() []byte {
	if a.sheet != nil {
		return a.sheet
	}
	body, err := fs.ReadFile(a.from, a.file)
	if err != nil {
		panic(err) // it was readable at startup
	}
	return body
}

// compressed returns the gzipped bytes, or nil if they aren't smaller.
func (a *asset) compressed() []byte {
	a.once.Do(func() {
		var buf bytes.Buffer
		z, _ := gzip.NewWriterLevel(&buf, gzip.BestCompression) // the level is valid
		body := a.Plain()
		z.Write(body)
		z.Close()
		if buf.Len() < len(body) {
			a.gzip = bytes.Clone(buf.Bytes())
		}
	})
	return a.gzip
}

type Assets struct {
	Files map[string]*asset // by public name
	Names map[string]string // public names by original name
}

// loadAssets reads the embedded assets. It panics on errors, which would already occur at the first start.
func loadAssets(from fs.FS) Assets {
	out := Assets{map[string]*asset{}, map[string]string{}}
	list, err := fs.ReadDir(from, "assets")
	if err != nil {
		panic(err)
	}
	// Style sheets come last, since they refer to the other assets as url(file).
	slices.SortStableFunc(list, func(a, b fs.DirEntry) int { return rank(a) - rank(b) })
	for _, f := range list {
		body, err := fs.ReadFile(from, "assets/"+f.Name())
		if err != nil {
			panic(err)
		}
		ext := path.Ext(f.Name())
		if ext == ".css" {
			for plain, public := range out.Names {
				body = bytes.ReplaceAll(body, []byte("url("+plain+")"), []byte("url(/assets/"+public+")"))
			}
		}
		sum := sha256.Sum256(body)
		name := strings.TrimSuffix(f.Name(), ext) + "." + hex.EncodeToString(sum[:6]) + ext
		a := &asset{kind: "application/octet-stream", from: from, file: "assets/" + f.Name()}
		if ext == ".css" {
			a.sheet = body
		}
		switch ext { // package mime would read the host's table, which takes half a megabyte
		case ".js":
			a.kind = "text/javascript; charset=utf-8"
		case ".css":
			a.kind = "text/css; charset=utf-8"
		case ".txt":
			a.kind = "text/plain; charset=utf-8"
		case ".svg":
			a.kind = "image/svg+xml"
		case ".woff2":
			a.kind = "font/woff2"
		}
		out.Files[name], out.Names[f.Name()] = a, name
	}
	return out
}

func rank(f fs.DirEntry) int {
	if path.Ext(f.Name()) == ".css" {
		return 1
	}
	return 0
}

// URL returns the public URL of an asset.
func (a Assets) URL(name string) string {
	public, ok := a.Names[name]
	if !ok {
		panic("no asset " + name)
	}
	return "/assets/" + public
}

func (d *Shell) asset(ctx context.Context, q *Request) (Answer, error) {
	name := q.PathValue("name")
	f, ok := d.Assets.Files[name]
	if !ok {
		return Answer{}, fault.Missing("page")
	}
	return Raw(func(w http.ResponseWriter) {
		h := w.Header()
		h.Set("Content-Type", f.kind)
		h.Set("Cache-Control", "public, max-age=31536000, immutable")
		h.Set("ETag", `"`+name+`"`)
		h.Set("Vary", "Accept-Encoding")
		if q.Header.Get("If-None-Match") == `"`+name+`"` {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		if strings.Contains(q.Header.Get("Accept-Encoding"), "gzip") {
			if packed := f.compressed(); packed != nil {
				h.Set("Content-Encoding", "gzip")
				w.Write(packed)
				return
			}
		}
		w.Write(f.Plain())
	}), nil
}
