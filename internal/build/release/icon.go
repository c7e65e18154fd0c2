package release

import (
	"bytes"
	"context"
	"html"
	"net/url"
	"path"
	"regexp"
	"strings"

	"slipway/internal/build/rules"
)

const (
	maxHead = 64 << 10  // bytes of the first page that are searched for <link rel="icon">
	maxIcon = 256 << 10 // bytes
)

var (
	iconLink = regexp.MustCompile(`(?i)<link\s[^>]*\brel=["']?(?:shortcut )?icon\b[^>]*>`)
	hrefOf   = regexp.MustCompile(`(?i)\shref=(?:"([^"]*)"|'([^']*)'|([^\s>"']+))`)
	svgStart = regexp.MustCompile(`(?s)^\s*(?:<\?xml[^>]*>|<!--.*?-->|<!DOCTYPE svg[^>\[]*>|\s)*<svg[\s>]`)
)

// Icon returns the file that browsers show as the site's icon, and its media type: the first <link rel="icon"> of its
// first page, or a file at a usual path. It returns nil without one, or if the file is no PNG, JPEG, GIF, WebP, ICO or
// SVG. The caller must serve it with a policy that forbids scripts and loading: the file is the tenant's, unchanged.
func (r *Releases) Icon(ctx context.Context, id ID) (body []byte, mediaType string, err error) {
	t, err := r.Load(ctx, id)
	if err != nil {
		return nil, "", err
	}
	var paths []string
	if a := t.Resolve(rules.Request{Path: "/"}); a.Kind == Found && strings.HasPrefix(a.File.Type, "text/html") {
		page, err := r.Peek(ctx, a.File, maxHead)
		if err != nil {
			return nil, "", err
		}
		if m := hrefOf.FindSubmatch(iconLink.Find(page)); m != nil {
			to, err := url.Parse(html.UnescapeString(string(bytes.Join(m[1:], nil))))
			if err == nil && to.Host == "" && to.Scheme == "" {
				paths = append(paths, strings.TrimPrefix(path.Join("/", to.Path), "/"))
			}
		}
	}
	for _, at := range append(paths, "favicon.svg", "favicon.ico", "favicon.png", "apple-touch-icon.png") {
		f, ok := t.Lookup(at)
		if !ok || f.Body.Size > maxIcon {
			continue
		}
		b, err := r.Read(ctx, f, maxIcon)
		if err != nil {
			return nil, "", err
		}
		if mediaType := imageType(b); mediaType != "" {
			return b, mediaType, nil
		}
	}
	return nil, "", nil
}

// imageType returns the media type of an image by its first bytes, or "".
func imageType(b []byte) string {
	for start, is := range map[string]string{
		"\x89PNG\r\n\x1a\n": "image/png", "\xff\xd8\xff": "image/jpeg", "GIF8": "image/gif", "\x00\x00\x01\x00": "image/x-icon",
	} {
		if bytes.HasPrefix(b, []byte(start)) {
			return is
		}
	}
	switch {
	case len(b) > 12 && string(b[:4]) == "RIFF" && string(b[8:12]) == "WEBP":
		return "image/webp"
	case svgStart.Match(b[:min(len(b), 4<<10)]):
		return "image/svg+xml"
	}
	return ""
}
